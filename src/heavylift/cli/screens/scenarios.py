"""The list of shipped scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heavylift.cli.text import text
from heavylift.devserver.library import Shipped


def lines(record: Sequence[Shipped]) -> Iterator[str]:
    """One line each: the name and what it does."""
    width = max(len(scenario.name) for scenario in record)
    for scenario in record:
        yield f"{scenario.name:<{width}}  {text(f'scenario.{scenario.name}')}"
