"""Another planner's offers, a row each: what it says, what it comes to here."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from heavylift.cli.errors import sentence
from heavylift.cli.output import WIDTH, glyphs
from heavylift.cli.screens.plan import wrapped
from heavylift.cli.screens.tables import aligned, fitting, widths
from heavylift.cli.text import text
from heavylift.errors import HeavyliftError
from heavylift.records.imported import Imported, ImportedRow
from heavylift.records.plan import Capacity
from heavylift.units import GB, format_gb, format_gib

_GLYPHS = {Capacity.FITS: "ok", Capacity.TIGHT: "warn", Capacity.DOES_NOT_FIT: "fail"}
_LEFT = (0, 1, 2, 5)
_SPARE = (2,)
_LEFT_WITHOUT_SPARE = (0, 1, 4)


def lines(found: Imported) -> Iterator[Text | str]:
    """The screen, line by line."""
    yield text(f"imported.title.{found.form}", model=found.model, path=found.path)
    planned = [row for row in found.rows if row.capacity is not None]
    if planned:
        headers = text("imported.headers").split("|")
        table = fitting([headers, *(_cells(row) for row in planned)], WIDTH - 2, _SPARE)
        left = _LEFT if len(table[0]) == len(headers) else _LEFT_WITHOUT_SPARE
        taken = widths(table)
        yield f"  {aligned(table[0], taken, left)}"
        for row, cells in zip(planned, table[1:], strict=True):
            glyph = glyphs()[_GLYPHS[row.capacity or Capacity.FITS]]
            style = "bold red" if row.capacity is Capacity.DOES_NOT_FIT else ""
            yield Text(f"{glyph} {aligned(cells, taken, left)}", style=style)
    reasons: dict[str, list[ImportedRow]] = {}
    for row in found.rows:
        if row.capacity is None:
            reason = sentence(HeavyliftError(row.code or "", row.params or {}))
            reasons.setdefault(reason, []).append(row)
    for reason, rows in reasons.items():
        more = text("imported.more", count=len(rows) - 1) if len(rows) > 1 else ""
        yield from wrapped(f"? {rows[0].label}, {rows[0].rack}{more}: {reason}", "  ")
    yield text("imported.wrong" if found.wrong else "imported.right", count=len(found.wrong))


def _cells(row: ImportedRow) -> list[str]:
    said = "–"
    if row.said_bytes is not None:
        said = (
            f"{format_gb(row.said_bytes, 0)} GB" if row.said_total else format_gib(row.said_bytes)
        )
    ours = format_gib(row.known_bytes or 0)
    if row.said_total:
        ours = f"{(row.total_bytes or 0) / GB:,.0f} GB"
    verdict = text(f"verdict.{row.capacity}").lower()
    if row.short_bytes:
        verdict += text("imported.short", short=format_gib(row.short_bytes, 1))
    return [
        row.rack,
        "" if row.layout is None else row.layout.label,
        row.label,
        said,
        ours,
        verdict,
    ]
