"""The list of bad servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heavylift.devserver.bad import BadServer


def lines(record: Sequence[BadServer]) -> Iterator[str]:
    """One line each: the name, the check that must catch it, and what it must call it."""
    for server in record:
        yield f"{server.name:<25} {server.caught_by:<28} {server.called}"
