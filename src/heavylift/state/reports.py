"""Reports of stages as they were printed, kept so that a go-live report finds them again.

A report of a deployment lies in the deployment's folder, others in one of their own. A file holds
the report as `--json` prints it, and beside it what it was made of.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.state import paths

FOLDER: Final = "reports"
MOST: Final = 50
"""Reports of a kind that are kept in a folder: a nightly benchmark may not fill a disk."""


class KeptReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A report and what it was made of. `at` is when it was kept (ISO 8601, UTC). None = not known,
    or not of a deployment.
    """

    kind: str
    at: str
    heavylift_version: str
    report: msgspec.Raw
    deployment: str | None = None
    release: int | None = None
    recipe: str | None = None
    revision: str | None = None
    layout: str | None = None
    url: str | None = None


def folder_of(deployment: str | None) -> Path:
    """Where reports of a deployment lie, or (None) those of none."""
    base = paths.state_dir() if deployment is None else paths.deployment_dir(deployment)
    return base / FOLDER


def keep(kept: KeptReport) -> Path:
    """Write a report, readable by its owner alone; its file. The oldest of its kind make room.

    Raises `OSError` when the disk does.
    """
    folder = folder_of(kept.deployment)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = msgspec.json.encode(kept)
    stamp = "".join(character for character in kept.at if character.isdigit())[:17]
    path = folder / f"{kept.kind}-{stamp}-{hashlib.sha256(content).hexdigest()[:8]}.json"
    scratch = path.with_suffix(".new")
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    scratch.replace(path)
    for old in sorted(folder.glob(f"{kept.kind}-*.json"))[:-MOST]:
        old.unlink(missing_ok=True)
    return path


def kept(deployment: str | None) -> Iterator[tuple[Path, KeptReport | None]]:
    """The reports of a deployment, or of none, oldest first; None for a file that is no report."""
    for path in sorted(folder_of(deployment).glob("*.json")):
        yield path, read(path)


def read(path: Path) -> KeptReport | None:
    """The report in a file; None when it is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptReport)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def encoded(report: Any) -> msgspec.Raw:
    """A record as it is kept."""
    return msgspec.Raw(msgspec.json.encode(report))
