"""Logs that do not grow for ever: the start of an engine's log, its last part, and what comes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

START: Final = ".start"
"""The first part, which tells the phases and the memory: kept as long as the attempt."""

BEFORE: Final = ".1"
"""The part before the one that is written now."""


def bounded(log: Path, limit_bytes: int) -> bool:
    """Put a log that is over its limit aside and empty it; True when that was done.

    The engine goes on writing to the same file, at its new end. A line that it writes in the very
    moment may be lost. At most three parts of `limit_bytes` are kept of an attempt.
    """
    try:
        if log.stat().st_size <= limit_bytes:
            return False
    except FileNotFoundError:
        return False
    start = log.with_name(log.name + START)
    aside = log.with_name(log.name + BEFORE) if start.exists() else start
    shutil.copyfile(log, aside)
    aside.chmod(0o600)
    with log.open("r+b") as file:
        file.truncate()
    return True
