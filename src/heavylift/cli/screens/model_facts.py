"""A facts file as it is: every line of it."""

from __future__ import annotations

from collections.abc import Iterator


def lines(document: str) -> Iterator[str]:
    """The lines of the file."""
    yield from document.splitlines()
