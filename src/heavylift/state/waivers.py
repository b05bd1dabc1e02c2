"""Waivers of go-live points: who took on what, why and until when. Nothing is ever taken out."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from heavylift.errors import HeavyliftError, reason
from heavylift.records.golive import Waiver
from heavylift.state import paths


def path_of(deployment: str | None, recipe: str) -> Path:
    """Where the waivers of a deployment lie, or of a recipe by its digest where nothing runs it."""
    if deployment is not None:
        return paths.deployment_dir(deployment) / "waivers.json"
    return paths.state_dir() / f"waivers-{recipe.rpartition(':')[2][:16]}.json"


def read(path: Path) -> tuple[Waiver, ...]:
    """The waivers in a file, oldest first; none where there is no file. Raises STA008 for a file
    that holds none: what cannot be read waives nothing, and somebody has to look at it.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Waiver, ...])
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise HeavyliftError("STA008", {"path": str(path), "reason": reason(error)}) from error


def add(path: Path, waiver: Waiver) -> None:
    """Keep one more. Raises as `read`, and `OSError` when the disk does."""
    found = (*read(path), waiver)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_suffix(".new")
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(found))
    scratch.replace(path)
