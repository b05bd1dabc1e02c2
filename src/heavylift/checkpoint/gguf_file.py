"""GGUF files on disk: the thin edge around the header reader."""

from __future__ import annotations

import mmap
from pathlib import Path

from heavylift.checkpoint import gguf
from heavylift.errors import HeavyliftError


def read_gguf(path: Path) -> gguf.GgufFile:
    """The header of the GGUF file at `path`, however large the file: only the header is touched.

    Raises CKPT061 when the file cannot be read, and what `gguf.parse` raises.
    """
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:  # an empty file cannot be mapped
                return gguf.parse(b"", path=str(path))
            with (
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as view,
            ):
                return gguf.parse(view, path=str(path))
    except OSError as error:
        raise HeavyliftError(
            "CKPT061", {"path": str(path), "reason": error.strerror or type(error).__name__}
        ) from error
