"""A go-live report: the verdict in numbers, then every point with what would prove it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from heavylift.cli.cells import cell_len, left, wrap
from heavylift.cli.output import glyphs
from heavylift.cli.text import keys, listed, of_facts, printable, text
from heavylift.errors import Scalar
from heavylift.records.golive import (
    GoLive,
    GoLivePoint,
    Level,
    LevelCount,
    Reach,
    Readiness,
    Standing,
    Waiver,
)
from heavylift.units import GIB

GLYPHS: Final = {
    Standing.PROVEN: "ok",
    Standing.WAIVED: "info",
    Standing.MISSING: "unknown",
    Standing.FAILED: "fail",
}
_VERDICT: Final = {
    Readiness.CANNOT_START: "fail",
    Readiness.CAN_START: "unknown",
    Readiness.CAN_VERIFY: "unknown",
    Readiness.READY: "ok",
}
_COUNTED: Final = ("tokens", "context_tokens", "promised", "proven")
_WORDS: Final = {("support", "status"): "fix.status", ("smoke", "status"): "status.verdict"}
"""Parameters whose values are words of other screens: the keys of those."""
_STANDING_CELLS: Final = 9


def lines(record: GoLive) -> Iterator[str]:
    """The screen, line by line."""
    glyph = glyphs()[_VERDICT[record.verdict]]
    yield text("golive.title", glyph=glyph, word=verdict_word(record), name=record.name)
    yield from wrap(what(record), "", "  ")
    yield ""
    for level in record.levels:
        yield level_line(level)
    if record.required:
        yield from wrap(required_line(record), f"{glyphs()['ok' if record.passed else 'fail']} ")
    yield ""
    yield from wrap(load_line(record), "", "  ")
    for reach in record.reach:
        yield f"  {reach_line(reach)}"
    for group, points in groupby(record.points, key=lambda point: point.group):
        yield ""
        yield text(f"golive.group.{group}")
        for point in points:
            yield from _point(point)


def _point(point: GoLivePoint) -> Iterator[str]:
    head = f"{glyphs()[GLYPHS[point.standing]]} {left(standing_word(point), _STANDING_CELLS)} "
    yield from wrap(
        printable(text("label", name=title(point), words=reason(point)) + _dated(point)),
        head,
        " " * cell_len(head),
    )
    if point.waiver is not None:
        yield from wrap(printable(waiver_line(point, point.waiver)), " " * cell_len(head))
    if point.command is not None:
        yield f"    {point.command}"


def _dated(point: GoLivePoint) -> str:
    """The day of the evidence. What is missing has none that counts."""
    evidence = point.evidence
    if evidence is None or not evidence.at or point.standing is Standing.MISSING:
        return ""
    return f" ({evidence.at[:10]})"


# --- words that pages share --------------------------------------------------------------------


def verdict_word(record: GoLive) -> str:
    """The verdict, in capitals where the language has them."""
    return text(f"golive.verdict.{record.verdict}")


def what(record: GoLive) -> str:
    """What the report is of, in one line."""
    parts = [record.model, f"{record.engine} {record.engine_version}", record.rack, record.layout]
    if record.release is not None:
        parts.append(text("golive.release", number=record.release))
    if record.url is not None:
        parts.append(record.url)
    return " · ".join(part for part in parts if part)


def level_line(level: LevelCount) -> str:
    """How far a level is settled."""
    settled = level.settled == level.points
    return text(
        "golive.level",
        glyph=glyphs()["ok" if settled else "unknown"],
        level=left(text(f"golive.level.{level.level}"), 18),
        settled=level.settled,
        points=level.points,
    )


def required_line(record: GoLive) -> str:
    """What was asked for by name, and whether it is settled."""
    word = "golive.required.settled" if record.passed else "golive.required.open"
    return text(word, points=", ".join(record.required))


def load_line(record: GoLive) -> str:
    """That the cards load it, in numbers, and that this is not production."""
    if record.gpus is None or record.weights_bytes is None or record.budget_bytes is None:
        return text("golive.loads_unknown")
    return text(
        "golive.loads" if record.gpus else "golive.loads_host",
        gpus=record.gpus,
        weights=f"{record.weights_bytes / GIB:,.2f}",
        budget=f"{record.budget_bytes / GIB:,.2f}",
    )


def reach_line(reach: Reach) -> str:
    """How far proof goes of what was promised."""
    return text(
        f"golive.reach.{reach.figure}",
        proven="0" if reach.proven is None else f"{reach.proven:,}",
        promised="?" if reach.promised is None else f"{reach.promised:,}",
    )


def title(point: GoLivePoint) -> str:
    """What a point is about."""
    return text(f"golive.point.{point.id}")


def standing_word(point: GoLivePoint) -> str:
    """The standing as a word."""
    return text(f"golive.standing.{point.standing}")


def reason(point: GoLivePoint) -> str:
    """Why a point stands as it does, with its numbers."""
    stage = point.reason.partition("_")[0]
    params = {name: _shown(stage, name, value) for name, value in point.params.items()}
    if point.reason == "covered":
        params["point"] = text(f"golive.point.{point.params['point']}")
    if point.reason == "short":
        params["figure"] = text(f"golive.figure.{point.params['figure']}")
    return text(f"golive.reason.{point.reason}", **params)


def waiver_line(point: GoLivePoint, waiver: Waiver) -> str:
    """Who took a point on, until when; or that this day has passed."""
    counts = point.standing is Standing.WAIVED
    settled = point.standing is Standing.PROVEN
    word = "waiver" if counts else "waiver_unneeded" if settled else "waiver_expired"
    return text(f"golive.{word}", who=waiver.who, why=waiver.why, until=waiver.until)


def level_word(level: Level) -> str:
    """What a point is needed for."""
    return text(f"golive.needed.{level}")


def terms(record: GoLive) -> Iterator[tuple[str, str]]:
    """The conditions of the licence, each with its source and day."""
    for term in record.licence.terms:
        yield of_facts(term.text), listed((term.source, term.as_of), "list.parts")


def data_notes(record: GoLive) -> Iterator[str]:
    """What is kept of requests, and where."""
    for note in record.data_notes:
        yield text(f"golive.data.{note.code}", **note.params)


def _shown(stage: str, name: str, value: Scalar) -> Scalar:
    """A parameter as it is read: numbers with separators, words as other screens say them."""
    if value is None:
        return "?"
    key = f"{_WORDS.get((stage, name), name)}.{value}"
    if key in keys():
        return text(key)
    if isinstance(value, str):
        return of_facts(value)
    return f"{value:,}" if name in _COUNTED and isinstance(value, int) else value
