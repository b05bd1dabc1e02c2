"""The comparison: a table of racks, then the same in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from heavylift.cli.errors import sentence
from heavylift.cli.output import WIDTH, glyphs
from heavylift.cli.screens.plan import VERDICT_GLYPH, VERDICT_STYLE, status, wrapped
from heavylift.cli.screens.speed import number
from heavylift.cli.screens.tables import aligned, fitting, widths
from heavylift.cli.text import text
from heavylift.errors import HeavyliftError
from heavylift.plan.compare import CompareRow, Comparison, own_workload
from heavylift.plan.compare_speed import RowSpeed
from heavylift.records.plan import Capacity, PlanVerdict, Segment
from heavylift.records.speed import Band
from heavylift.units import format_gib

_LEFT_ALIGNED: Final = (0, 1, 2, 3, 11)
# Columns that are left out, in this order, where a table is wider than the screen: first the card's
# own rates, then what the sentence below says again.
_SPARE: Final = (8, 7, 5, 4, 3, 2)


def lines(comparison: Comparison) -> Iterator[Text | str]:
    """The screen, line by line."""
    yield text("compare.title", title=comparison.title)
    headers = text("compare.headers").split("|")
    rows = [_cells(row) for row in comparison.rows]
    table = fitting([headers, *rows], WIDTH - 2, _SPARE)
    names = {headers[column] for column in _LEFT_ALIGNED}
    left = [column for column, name in enumerate(table[0]) if name in names]
    taken = widths(table)
    yield f"  {aligned(table[0], taken, left)}"
    for row, cells in zip(comparison.rows, table[1:], strict=True):
        verdict = row.plan.verdict
        yield Text(
            f"{glyphs()[VERDICT_GLYPH[verdict]]} {aligned(cells, taken, left)}",
            style=VERDICT_STYLE[verdict],
        )
    yield from _forecast(comparison)
    yield ""
    for failure in comparison.failures:
        words = sentence(HeavyliftError(failure.code, failure.params))
        yield from wrapped(
            f"{glyphs()['fail']} {text('label', name=failure.rack, words=words)}", "  "
        )
    for row in comparison.rows:
        words = f"{glyphs()[VERDICT_GLYPH[row.plan.verdict]]} {_sentence(row)}"
        yield from wrapped(f"{words} {_rent(row)}".rstrip(), "  ")
    if _is_about_vendors(comparison):
        yield from wrapped(text("compare.not_vendor"), "")


def _cells(row: CompareRow) -> list[str]:
    plan = row.plan
    link = row.link_bandwidth_gb_per_s
    return [
        plan.rack.label,
        text(f"verdict.{plan.verdict}").lower(),
        plan.engine,
        plan.layout.label,
        format_gib(plan.per_gpu.known_total_bytes, 1),
        format_gib(plan.per_gpu.budget_bytes, 1),
        format_gib(plan.per_gpu.headroom_bytes, 1),
        "?" if row.memory_bandwidth_tb_per_s is None else f"{row.memory_bandwidth_tb_per_s:g}",
        "?" if link is None else f"{link:g}",
        "-" if row.speed is None else _band(row.speed.output_tokens_per_s),
        _cost(row.speed),
        status(plan.support).split(" ", maxsplit=1)[0],
    ]


def _sentence(row: CompareRow) -> str:
    plan = row.plan
    weights = sum(term.bytes.low for term in plan.terms if term.segment == Segment.WEIGHTS)
    words = {
        "rack": plan.rack.label,
        "layout": plan.layout.label,
        "engine": plan.engine,
        "version": plan.engine_version,
        "need": format_gib(plan.per_gpu.known_total_bytes),
        "have": format_gib(plan.per_gpu.budget_bytes),
        "left": format_gib(plan.per_gpu.headroom_bytes, 1),
        "short": format_gib(-plan.per_gpu.headroom_bytes),
        "weights": format_gib(weights),
        "over": format_gib(weights - plan.per_gpu.budget_bytes),
        "recipe": plan.support.recipe or plan.support.source,
    }
    if plan.verdict.is_positive:
        return text("compare.holds", **words)
    if plan.verdict is PlanVerdict.DOES_NOT_FIT:
        alone = weights > plan.per_gpu.budget_bytes
        return text("compare.short" if alone else "compare.short_total", **words)
    if plan.capacity_verdict is Capacity.DOES_NOT_FIT:
        return text("compare.contradicted", **words)
    return text(f"compare.{plan.verdict}", **words)


def _cost(speed: RowSpeed | None) -> str:
    """USD per million output tokens; `?` where no rent of the card is known."""
    if speed is None:
        return "-"
    cost = speed.usd_per_million_output
    return "?" if cost is None else _band(cost)


def _band(band: Band) -> str:
    low, high = number(band.low), number(band.high)
    return low if low == high else f"{low}–{high}"


def _forecast(comparison: Comparison) -> Iterator[Text | str]:
    """What the columns of speed and cost are of."""
    for row in comparison.rows:
        if row.speed is not None:
            work = own_workload(row.plan)
            yield from wrapped(
                text(
                    "compare.forecast",
                    sequences=f"{row.plan.concurrency:,}",
                    input=f"{work.input_tokens:,}",
                    output=f"{work.output_tokens:,}",
                ),
                "",
            )
            return


def _rent(row: CompareRow) -> str:
    rent = row.rent_usd_per_hour
    if rent is None or not row.plan.verdict.is_positive:
        return ""
    low, high = f"{rent.low:,.0f}", f"{rent.high:,.0f}"
    return text("compare.rent", usd=low if low == high else f"{low} – {high}")


def _is_about_vendors(comparison: Comparison) -> bool:
    """True when cards of one vendor come out on both sides, or both vendors on the same."""
    held = {row.vendor for row in comparison.rows if row.plan.verdict.is_positive}
    missed = {row.vendor for row in comparison.rows if not row.plan.verdict.is_positive}
    return bool(held & missed) or len(held) > 1
