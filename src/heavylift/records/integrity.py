"""Integrity: what came of comparing a checkpoint's files with what they should be."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.records.inspection import FoundDefect

SCHEMA: Final = 1


class FileState(StrEnum):
    """What a file turned out to be."""

    OK = "ok"
    """Its bytes are those that were published."""
    RECORDED = "recorded"
    """Read, and nobody says what it should be."""
    DIFFERS = "differs"
    """The right length, other bytes."""
    SWAPPED = "swapped"
    """The bytes of another file of the list."""
    TRUNCATED = "truncated"
    TOO_LONG = "too_long"
    POINTER = "pointer"
    """A Git LFS pointer in its place."""
    MISSING = "missing"
    UNREADABLE = "unreadable"
    CHANGED = "changed"
    """Somebody wrote to it while it was read."""


WEIGHTS: Final = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
"""Suffixes of files of weights."""
GOOD: Final = frozenset({FileState.OK, FileState.RECORDED})


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedFile:
    """One file. `expected` and `expected_bytes` are None where nobody states them; `kept` = the
    digest is that of an earlier run, the file has not changed since. `detail`: whose bytes a
    swapped file has, why one cannot be read.
    """

    path: str
    state: FileState
    bytes: int | None = None
    expected_bytes: int | None = None
    sha256: str | None = None
    expected: str | None = None
    kept: bool = False
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrity:
    """A checkpoint's files checked. `defects` are those of index and headers. `sound`: nothing is
    wrong. `bytes_per_s` is the speed of reading and hashing, None when nothing was read. `compared`
    are files whose bytes somebody states, `compared_with` who: `list`, `hub_cache`,
    `hub_download`.
    """

    where: str
    files: tuple[CheckedFile, ...]
    defects: tuple[FoundDefect, ...]
    compared: int
    compared_with: tuple[str, ...]
    bytes_read: int
    bytes_kept: int
    seconds: float
    bytes_per_s: float | None
    sound: bool
    schema: int = field(default=SCHEMA)
