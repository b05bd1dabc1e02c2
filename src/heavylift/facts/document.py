"""The TOML document in a facts file. Whatever the bytes are, it is a table or a defect."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from heavylift.errors import HeavyliftError
from heavylift.facts.defects import Defect, FactsError

_INTEGERS: Final = range(-(2**63), 2**63)
"""What TOML promises to hold. Python reads more, and then cannot print it."""


def read_document(root: Path, relative: str) -> dict[str, Any]:
    """The table in the file `relative` to `root`.

    Raises FACT002 when there is no such file and `FactsError` when it cannot be read as TOML.
    """
    try:
        text = (root / relative).read_text("utf-8")
    except FileNotFoundError as error:
        raise HeavyliftError("FACT002", {"path": relative}) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FactsError([Defect(relative, "unreadable", reason)]) from error
    except UnicodeDecodeError as error:
        raise FactsError([Defect(relative, "not_text", f"0x{error.start:x}")]) from error
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of too many digits
        raise FactsError([Defect(relative, "not_toml", str(error))]) from error
    too_large = tuple(
        Defect(f"{relative}: {path}", "integer_too_large", "64 bit")
        for path, value in _leaves(table)
        if isinstance(value, int) and value not in _INTEGERS
    )
    if too_large:
        raise FactsError(too_large)
    return table


def _leaves(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value that is no table and no list, with its path. Not recursive: files may be deep."""
    waiting: list[tuple[str, Any]] = [("", table)]
    while waiting:
        path, value = waiting.pop()
        match value:
            case dict():
                start = f"{path}." if path else ""
                waiting += [(f"{start}{key}", inner) for key, inner in value.items()]
            case list():
                waiting += [(f"{path}[{index}]", inner) for index, inner in enumerate(value)]
            case _:
                yield path, value
