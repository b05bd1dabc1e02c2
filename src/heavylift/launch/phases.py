"""What went wrong, from the lines of an engine's log; how far it came is `telemetry.engine_log`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# llama.cpp marks the level of a line with a letter after the time; Python errors name themselves.
_ERROR: Final = re.compile(
    r"^\S+ E |\b(?:\w*error|\w*exception|failed|fatal|terminate called|out of memory)\b",
    re.IGNORECASE,
)


def first_errors(lines: Iterable[str], limit: int = 5) -> tuple[str, ...]:
    """The first lines that speak of an error; the last lines of the log when none does."""
    kept = [line.rstrip() for line in lines if line.strip()]
    errors = [line for line in kept if _ERROR.search(line)]
    return tuple(errors[:limit] or kept[-limit:])
