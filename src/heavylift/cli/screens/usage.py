"""The table of usage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heavylift.cli.cells import clipped, left
from heavylift.cli.text import text
from heavylift.gateway.store import Usage

_NAME_WIDTH = 30


def lines(record: Sequence[Usage]) -> Iterator[str]:
    """One line per row, then what estimated means if it was."""
    if not record:
        yield text("usage.none")
        return
    yield text("usage.head", group=left(text("usage.group"), _NAME_WIDTH))
    for row in record:
        yield text(
            "usage.row",
            group=left(clipped(_group(row), _NAME_WIDTH), _NAME_WIDTH),
            requests=f"{row.requests:>9,}",
            prompt=f"{row.prompt_tokens:>14,}",
            completion=f"{row.completion_tokens:>14,}",
            estimated=f"{row.estimated:>9,}",
        )
    if any(row.cost_usd_low is not None for row in record):
        yield text("usage.cost_head")
    for row in record:
        if row.cost_usd_low is not None and row.cost_usd_high is not None:
            yield text(
                "usage.cost_row",
                group=f"{_group(row):<{_NAME_WIDTH}.{_NAME_WIDTH}}",
                low=f"{row.cost_usd_low:>12,.2f}",
                high=f"{row.cost_usd_high:>12,.2f}",
            )
    if any(row.estimated for row in record):
        yield text("usage.estimated")


def _group(row: Usage) -> str:
    if row.key_id is not None:
        return f"{row.key_id} {row.name or ''}"
    return row.day or row.team or text("usage.no_team")
