"""Room on the disk: what a model needs there, what is there of it already, what is free."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from heavylift.checkpoint import hub_transfer
from heavylift.checkpoint.listing import ListedFile
from heavylift.errors import HeavyliftError, Scalar, reason

PARTIALS: Final = (Path(".cache/huggingface/download"), hub_transfer.PARTIAL)
"""Where the transfers keep what is not whole yet, below the folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """Bytes: still to come, asked for to be safe, free on the file system."""

    needed_bytes: int
    safe_bytes: int
    free_bytes: int


def room(folder: Path, files: Iterable[ListedFile], weights_bytes: int, total_bytes: int) -> Room:
    """How much room there is for files in a folder that need not exist yet.

    Raises ENV041 when the place cannot be looked at.
    """
    present = bytes_present(folder, files)
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        raise HeavyliftError("ENV041", {"path": str(place), "reason": reason(error)}) from error
    return Room(
        needed_bytes=max(total_bytes - present, 0),
        safe_bytes=max(2 * weights_bytes - present, total_bytes - present, 0),
        free_bytes=free,
    )


def bytes_present(folder: Path, files: Iterable[ListedFile]) -> int:
    """Bytes of the files that are there, whole or in part."""
    total = 0
    for file in files:
        try:
            size = (folder / file.path).stat().st_size
        except OSError:
            continue
        total += min(size, file.size or 0)
    partials = (each for place in PARTIALS for each in (folder / place).rglob("*.incomplete"))
    for partial in partials:
        try:
            # Blocks and not length: a transfer may reserve the length before there are bytes.
            total += partial.stat().st_blocks * 512
        except OSError:
            continue
    return total


def require(room: Room, folder: Path, *, tight: bool) -> None:
    """Raises ENV042 when the files do not fit, ENV043 when only the safe amount does not."""
    params: dict[str, Scalar] = {
        "path": str(folder),
        "free_bytes": room.free_bytes,
        "needed_bytes": room.needed_bytes,
        "safe_bytes": room.safe_bytes,
    }
    if room.free_bytes < room.needed_bytes:
        raise HeavyliftError("ENV042", params)
    if room.free_bytes < room.safe_bytes and not tight:
        raise HeavyliftError("ENV043", params)
