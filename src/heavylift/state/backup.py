"""A copy of what must not be lost: databases whole while others write, files, and their digests.

Secrets and logs stay where they are. A copy says of each file what it holds, so that it can be seen
later whether it still does.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from heavylift.errors import HeavyliftError, reason
from heavylift.state import paths

MANIFEST: Final = "manifest.json"
_DATABASE: Final = ".db"
_LEFT_OUT: Final = frozenset({"secrets.env", "runs"})
"""Names that are not copied: secrets are made or given anew, logs are no state."""
_LARGEST_FILE_BYTES: Final = 64 << 20
_SUFFIXES: Final = frozenset(
    {".json", ".jsonl", ".toml", ".yaml", ".yml", ".sh", ".md", ".service"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedFile:
    """A file of a copy, its path relative to the copy's folder."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BackedUp:
    """A copy: where it lies (absolute), of when, and its files."""

    folder: str
    at: str
    files: tuple[CopiedFile, ...]


def back_up(target: Path, *, at: str) -> BackedUp:
    """Copy the state of this user into a new folder under `target`, `at` being now.

    Raises STA007 when it cannot be written or lies inside the state itself.
    """
    source = paths.state_dir().absolute()
    folder = target.absolute() / f"heavylift-{''.join(c for c in at if c.isdigit())[:14]}"
    if folder.is_relative_to(source):
        raise HeavyliftError("STA007", {"path": str(folder), "reason": "inside_the_state"})
    try:
        folder.mkdir(parents=True, mode=0o700)
        found = tuple(_copied(path, source, folder) for path in _files(source))
        record = BackedUp(folder=str(folder), at=at, files=found)
        (folder / MANIFEST).write_bytes(msgspec.json.encode(record))
    except (OSError, sqlite3.Error) as error:
        raise HeavyliftError("STA007", {"path": str(folder), "reason": reason(error)}) from error
    return record


def lost(record: BackedUp) -> tuple[str, ...]:
    """The files of a copy that are not there any more, or hold something else."""
    folder = Path(record.folder)
    gone = []
    for file in record.files:
        try:
            same = _digest(folder / file.path) == file.sha256
        except OSError:
            same = False
        if not same:
            gone.append(file.path)
    return tuple(gone)


def _files(source: Path) -> Iterator[Path]:
    for path in sorted(source.rglob("*")):
        if _LEFT_OUT.intersection(path.relative_to(source).parts) or not path.is_file():
            continue
        is_small = path.stat().st_size <= _LARGEST_FILE_BYTES
        if path.suffix == _DATABASE or (path.suffix in _SUFFIXES and is_small):
            yield path


def _copied(path: Path, source: Path, folder: Path) -> CopiedFile:
    relative = path.relative_to(source)
    copy = folder / relative
    copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.suffix == _DATABASE:
        _copy_database(path, copy)
    else:
        shutil.copyfile(path, copy)
    copy.chmod(0o600)
    return CopiedFile(path=str(relative), bytes=copy.stat().st_size, sha256=_digest(copy))


def _copy_database(path: Path, copy: Path) -> None:
    """One consistent state of a database that others may be writing to."""
    with (
        contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as theirs,
        contextlib.closing(sqlite3.connect(copy)) as ours,
    ):
        theirs.backup(ours)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
