"""Locks that the kernel gives back when their holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from heavylift.state.db import refuse_shared

_RETRY_S: Final = 0.02


@contextlib.contextmanager
def hold(path: Path, *, wait_s: float) -> Iterator[bool]:
    """Hold the lock inside the block; yields False, without it, when another kept it for `wait_s`.

    The holder's process number stands in the file. Raises STA002 on a shared file system.
    """
    refuse_shared(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        has_it = _take(descriptor, wait_s)
        if has_it:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield has_it
    finally:
        os.close(descriptor)


def holder(path: Path) -> int | None:
    """The process that holds the lock; None when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared, so that two who only look do not see each other.
        if _take(descriptor, 0.0, fcntl.LOCK_SH):
            return None
        words = os.pread(descriptor, 32, 0).split()
        return int(words[0]) if words and words[0].isdigit() else 0
    finally:
        os.close(descriptor)


def _take(descriptor: int, wait_s: float, kind: int = fcntl.LOCK_EX) -> bool:
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_RETRY_S)
        else:
            return True
