"""A search over everything: the best way on each card, and how many there were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from heavylift.cli.output import glyphs
from heavylift.cli.screens.plan import VERDICT_GLYPH, VERDICT_STYLE, wrapped
from heavylift.cli.screens.tables import aligned, widths
from heavylift.cli.text import text
from heavylift.records.search import Searched
from heavylift.units import format_gib

_LEFT: Final = (0, 1, 2, 3, 4, 5)


def lines(found: Searched) -> Iterator[Text | str]:
    """The screen, line by line."""
    words = text(
        "search.title",
        title=found.title,
        candidates=found.candidates,
        racks=found.racks,
        engines=found.engines,
        refused=found.refused,
        too_small=found.too_small,
    )
    yield from wrapped(words, "  ")
    headers = text("search.headers").split("|")
    rows = [
        [
            way.rack,
            text(f"verdict.{way.verdict}").lower(),
            way.engine,
            way.layout.label,
            way.kv_cache_dtype,
            text(f"fix.status.{way.status}"),
            format_gib(way.headroom_bytes, 1),
        ]
        for way in found.best
    ]
    taken = widths([headers, *rows])
    yield f"  {aligned(headers, taken, _LEFT)}"
    for way, cells in zip(found.best, rows, strict=True):
        yield Text(
            f"{glyphs()[VERDICT_GLYPH[way.verdict]]} {aligned(cells, taken, _LEFT)}",
            style=VERDICT_STYLE[way.verdict],
        )
