"""The published forms of a model: size, engines, the smallest rack, what is lost."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from heavylift.cli.output import WIDTH
from heavylift.cli.text import text
from heavylift.records.recipe import VariantRow, VariantTable
from heavylift.units import format_gb

_NAME_CELLS = 16


def lines(table: VariantTable) -> Iterator[str]:
    """A block per form, in the order of the facts."""
    yield text("variants.head", title=table.title)
    for row in table.rows:
        yield ""
        yield from _row(row)


def _row(row: VariantRow) -> Iterator[str]:
    size = (
        text("variants.unknown_size")
        if row.bytes_total is None
        else text("variants.size", gb=format_gb(row.bytes_total))
    )
    yield f"{row.id:<{_NAME_CELLS}} {size}  {row.title}"
    if row.rack is None or row.verdict is None or row.status is None:
        yield f"  {text('variants.no_rack')}"
    else:
        yield "  " + text(
            "variants.rack",
            rack=row.rack,
            engine=row.rack_engine,
            verdict=text(f"verdict.{row.verdict}").lower(),
            status=row.status.value,
        )
    if row.engines:
        yield "  " + text("variants.engines", engines=", ".join(row.engines))
    if row.note:
        yield from textwrap.wrap(row.note, WIDTH, initial_indent="  ", subsequent_indent="  ")
