"""How far an engine has come, and what went wrong, from its log lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

# engine -> (text in a log line, phase it begins), in the order they pass
_MARKS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "embedded": (
        ("init: initializing", "start"),
        ("fitting params to device memory", "fit"),
        ("load_tensors: loading model tensors", "weights"),
        ("llama_context: constructing llama_context", "memory"),
        ("warming up the model", "warm_up"),
        ("init: listening on", "api"),
    ),
}

# llama.cpp marks the level of a line with a letter after the time; Python errors name themselves.
_ERROR: Final = re.compile(
    r"^\S+ E |\b(?:\w*error|\w*exception|failed|fatal|terminate called|out of memory)\b",
    re.IGNORECASE,
)


def phase_of(engine: str, line: str) -> str | None:
    """The phase that begins with this line, or None for any other line."""
    for mark, phase in _MARKS.get(engine, ()):
        if mark in line:
            return phase
    return None


def first_errors(lines: Iterable[str], limit: int = 5) -> tuple[str, ...]:
    """The first lines that speak of an error; the last lines of the log when none does."""
    kept = [line.rstrip() for line in lines if line.strip()]
    errors = [line for line in kept if _ERROR.search(line)]
    return tuple(errors[:limit] or kept[-limit:])
