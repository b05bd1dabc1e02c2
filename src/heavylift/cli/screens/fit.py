"""What fits a rack: a row per model and form, then the nearest misses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from heavylift.cli.cells import clipped
from heavylift.cli.output import WIDTH, glyphs
from heavylift.cli.screens.plan import VERDICT_GLYPH, VERDICT_STYLE, wrapped
from heavylift.cli.screens.tables import aligned, fitting, widths
from heavylift.cli.text import text
from heavylift.records.fit import FitList, FitRow
from heavylift.units import GB, GIB, format_gib, format_tokens

_LEFT_ALIGNED: Final = (0, 3, 4)
# Left out where the table is wider than the screen: parameters are known by the model's name.
_SPARE: Final = (1,)
_LEFT_WITHOUT_SPARE: Final = (0, 2, 3)
_SHOWN_MISSES: Final = 3
_TITLE_CELLS: Final = 30


def lines(found: FitList) -> Iterator[Text | str]:
    """The screen, line by line."""
    yield text(
        "fit.title",
        rack=found.rack.label,
        each=format_gib(found.visible_bytes, 1),
        total=format_gib(found.visible_bytes * found.rack.gpu_count, 0),
    )
    if found.rows:
        yield from _table(found.rows)
    else:
        yield text("fit.nothing")
    raised = [row for row in found.rows if row.raised]
    if raised and found.raised_bytes is not None:
        setting = "" if found.setting is None else _filled(found.setting, found.raised_bytes)
        words = text("fit.raised", each=format_gib(found.raised_bytes, 1), setting=setting)
        yield from wrapped(words, "  ")
    near = [miss for miss in found.misses if miss.short_bytes is not None]
    for miss in near[:_SHOWN_MISSES]:
        yield from wrapped(
            text(
                "fit.miss",
                title=miss.title,
                variant=miss.variant,
                short=format_gib(miss.short_bytes or 0, 1),
            ),
            "  ",
        )
    if len(found.misses) > _SHOWN_MISSES:
        yield text("fit.more_misses", count=len(found.misses) - min(_SHOWN_MISSES, len(near)))


def _filled(setting: str, amount: int) -> str:
    return setting.format(mib=amount // 2**20, gb=amount // GIB)


def _table(rows: tuple[FitRow, ...]) -> Iterator[Text | str]:
    headers = text("fit.headers").split("|")
    table = fitting([headers, *(_cells(row) for row in rows)], WIDTH - 2, _SPARE)
    left = _LEFT_ALIGNED if len(table[0]) == len(headers) else _LEFT_WITHOUT_SPARE
    taken = widths(table)
    yield f"  {aligned(table[0], taken, left)}"
    for row, cells in zip(rows, table[1:], strict=True):
        yield Text(
            f"{glyphs()[VERDICT_GLYPH[row.verdict]]} {aligned(cells, taken, left)}",
            style=VERDICT_STYLE[row.verdict],
        )


def _cells(row: FitRow) -> list[str]:
    name = row.title if row.variant == "native" else f"{row.title} {row.variant}"
    total = row.total_parameters
    return [
        clipped(name, _TITLE_CELLS),
        "?" if total is None else _billions(total),
        f"{row.checkpoint_bytes / GB:,.1f}",
        f"{row.engine} {row.layout.label}",
        text(f"verdict.{row.verdict}").lower() + ("*" if row.raised else ""),
        _context(row),
    ]


def _context(row: FitRow) -> str:
    low, high = row.max_context_tokens.low, row.max_context_tokens.high or 0
    if low == high:
        return format_tokens(high)
    return f"{format_tokens(low) if low else '?'} – {format_tokens(high)}"


def _billions(count: int) -> str:
    return f"{count / GB:,.1f}B" if count >= GB else f"{count / 10**6:,.0f}M"
