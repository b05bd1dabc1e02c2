"""The published forms of a model: the answer, then each form with what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from heavylift.cli.output import glyphs
from heavylift.cli.screens.plan import wrapped
from heavylift.cli.text import listed, of_facts, text
from heavylift.records.variants import Holds, VariantRow, VariantTable
from heavylift.units import format_gb, format_gib, format_tokens

_GLYPH: Final = {
    Holds.FITS: "ok",
    Holds.TIGHT: "warn",
    Holds.WEIGHTS: "warn",
    Holds.STREAMS: "info",
    Holds.UNKNOWN: "unknown",
    Holds.NO: "fail",
}
_STYLE: Final = {Holds.FITS: "green", Holds.TIGHT: "yellow", Holds.WEIGHTS: "yellow"}
_BYTES: Final = frozenset({"need", "have"})


def lines(table: VariantTable) -> Iterator[Text | str]:
    """The screen, line by line."""
    if table.have is not None:
        yield from _answer(table)
    yield text("variants.title", title=table.title, count=len(table.rows))
    for row in table.rows:
        if row.holds is not Holds.NO:
            yield from _row(row)
    refused = [row for row in table.rows if row.holds is Holds.NO]
    if refused:
        yield ""
        yield text("variants.refused")
        for row in refused:
            size = "?" if row.bytes_total is None else format_gb(row.bytes_total, 0)
            words = text(
                "variants.no", glyph=glyphs()["fail"], title=of_facts(row.title), size=size
            )
            yield from wrapped(f"{words} {_because(row)}", "    ")


def _answer(table: VariantTable) -> Iterator[Text | str]:
    params = table.have_params
    memory, unasked = params["memory_bytes"], params["unasked_bytes"]
    if not isinstance(memory, int) or not isinstance(unasked, int):
        raise TypeError(params)
    yield text("variants.have", have=table.have, memory=format_gib(memory, 1))
    setting = params["setting"]
    if memory > unasked and isinstance(setting, str):
        command = setting.format(mib=memory // 2**20, gb=memory // 2**30)
        words = text("variants.raise", unasked=format_gib(unasked, 1), setting=command)
        yield from wrapped(words, "  ")
    if not table.choices:
        yield Text(text("variants.answer_no", title=table.title), style="bold red")
        yield ""
        return
    rows = {row.id: row for row in table.rows}
    first = rows[table.choices[0]]
    words = text("variants.answer", title=of_facts(first.title), how=_because(first))
    yield from wrapped(words, "  ", style="bold")
    speed = _speed(first)
    if speed:
        yield from wrapped(f"  {speed}", "    ")
    if len(table.choices) > 1:
        others = listed([of_facts(rows[name].title) for name in table.choices[1:4]])
        yield from wrapped(text("variants.else", others=others), "  ")
    yield ""


def _row(row: VariantRow) -> Iterator[Text | str]:
    glyph = glyphs()["info" if row.holds is None else _GLYPH[row.holds]]
    word = "" if row.holds is None else text(f"variants.holds.{row.holds}")
    size = "?" if row.bytes_total is None else format_gb(row.bytes_total, 0)
    head = text(
        "variants.row",
        glyph=glyph,
        title=of_facts(row.title),
        size=size,
        word=word,
        engines=listed([of_facts(each) for each in row.engines]),
    )
    yield from wrapped(head.rstrip(), "    ", style=_STYLE.get(row.holds, "") if row.holds else "")
    for detail in (
        _because(row),
        _speed(row),
        of_facts(row.quality or ""),
        _against(row),
        _smallest(row),
    ):
        if detail:
            yield from wrapped(f"    {detail}", "      ")


def _because(row: VariantRow) -> str:
    if row.because is None:
        return ""
    params = {
        name: format_gib(value, 1) if name in _BYTES and isinstance(value, int) else value
        for name, value in row.because.params.items()
    }
    if isinstance(params.get("context"), int):
        params["context"] = format_tokens(int(str(params["context"])))
    disk = params.get("disk")
    params["disk"] = format_gb(disk, 0) if isinstance(disk, int) else "?"
    return text(f"variants.because.{row.because.code}", **params)


def _speed(row: VariantRow) -> str:
    if row.hardware is None:
        return ""
    confidence = text(f"variants.confidence.{row.confidence}")
    low, high = row.tokens_per_s_low, row.tokens_per_s_high
    if low is None or high is None:
        return text("variants.ran", hardware=of_facts(row.hardware), confidence=confidence)
    if high < 1:
        slow = f"{1 / high:,.1f}" if low == high else f"{1 / high:,.1f} – {1 / low:,.1f}"
        return text(
            "variants.slow", speed=slow, hardware=of_facts(row.hardware), confidence=confidence
        )
    speed = f"{high:g}" if low == high else f"{low:g} – {high:g}"
    return text(
        "variants.speed", speed=speed, hardware=of_facts(row.hardware), confidence=confidence
    )


def _against(row: VariantRow) -> str:
    said = []
    if row.dominated_by is not None:
        said.append(text("variants.dominated", by=row.dominated_by))
    if row.unusable:
        said.append(text("variants.unusable"))
    if row.caution is not None:
        said.append(of_facts(row.caution))
    return f"! {listed(said, 'list.clauses')}" if said else ""


def _smallest(row: VariantRow) -> str:
    smallest = row.smallest_rack
    if smallest is None:
        return ""
    key = "variants.smallest_weights" if smallest.weights_alone else "variants.smallest"
    return text(key, rack=smallest.rack, memory=format_gib(smallest.memory_bytes_total, 0))
