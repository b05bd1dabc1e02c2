"""The list of bad servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heavylift.devserver.bad import BadServer


def lines(record: Sequence[BadServer]) -> Iterator[str]:
    """One line each: the name, the check that must catch it, and what it must call it; the profile
    that asks often enough, where that is not the shortest.
    """
    for server in record:
        profile = "" if server.profile == "smoke" else f" ({server.profile})"
        yield f"{server.name:<23} {server.caught_by:<26} {server.called}{profile}"
