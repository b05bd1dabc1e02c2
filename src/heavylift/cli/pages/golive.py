"""A go-live report as a page to be printed, and as Markdown for a ticket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final

from heavylift.cli.pages import page
from heavylift.cli.screens import golive as words
from heavylift.cli.text import of_facts, text
from heavylift.records.golive import GoLive, GoLivePoint, Readiness, Standing

_STYLE: Final = {
    Standing.PROVEN: "ok",
    Standing.WAIVED: "warn",
    Standing.MISSING: "warn",
    Standing.FAILED: "fail",
}
_WHOLE: Final = 'style="white-space: nowrap"'
_MARKDOWN: Final = str.maketrans(
    {character: f"\\{character}" for character in "\\`*_[]<>|#"} | {"\n": " "}
)


def html(record: GoLive) -> str:
    """The page."""
    return page.document(text("golive.page_title", name=record.name), _parts(record))


def _parts(record: GoLive) -> Iterator[str]:
    yield page.paragraph(words.what(record))
    yield page.paragraph(text("bench.made", at=record.made_at, version=record.heavylift_version))
    style = "ok" if record.verdict is Readiness.READY else "fail"
    yield page.paragraph(words.verdict_word(record), style)
    yield "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in _numbers(record)) + "</ul>"
    for group, points in groupby(record.points, key=lambda point: point.group):
        yield page.heading(text(f"golive.group.{group}"))
        yield _table(points)
    yield page.heading(text("golive.commands"))
    yield "".join(
        f"<p>{escape(words.title(point))}</p><pre>{escape(point.command)}</pre>"
        for point in record.points
        if point.command is not None
    )
    yield page.heading(text("golive.licence"))
    yield page.paragraph(_licence(record))
    yield page.definitions((clause, source) for clause, source in words.terms(record))
    yield page.heading(text("golive.data"))
    yield (
        "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in words.data_notes(record)) + "</ul>"
    )


def _table(points: Iterable[GoLivePoint]) -> str:
    """A table of points: the standing in its colour, the evidence as a link to its file."""
    head = "".join(f'<th class="words">{escape(each)}</th>' for each in _headers())
    body = "".join(_html_row(point) for point in points)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_row(point: GoLivePoint) -> str:
    title, standing, why, needed, evidence = map(escape, _row(point))
    if point.evidence is not None and point.evidence.path is not None:
        address = escape(Path(point.evidence.path).absolute().as_uri(), quote=True)
        evidence = f'<a href="{address}">{evidence}</a>'
    cells = (
        f'<td class="words {_STYLE[point.standing]}" {_WHOLE}>{standing}</td>',
        f'<td class="words">{why}</td>',
        f'<td class="words" {_WHOLE}>{needed}</td>',
        f'<td class="words">{evidence}</td>',
    )
    return f'<tr><td class="words">{title}</td>{"".join(cells)}</tr>'


def markdown(record: GoLive) -> str:
    """The report as Markdown. Words of strangers are escaped."""
    return "\n".join(_markdown(record)) + "\n"


def _markdown(record: GoLive) -> Iterator[str]:
    yield f"# {_safe(text('golive.page_title', name=record.name))}"
    yield ""
    yield f"**{_safe(words.verdict_word(record))}** · {_safe(words.what(record))}"
    yield ""
    yield _safe(text("bench.made", at=record.made_at, version=record.heavylift_version))
    yield ""
    for each in _numbers(record):
        yield f"- {_safe(each)}"
    for group, points in groupby(record.points, key=lambda point: point.group):
        yield ""
        yield f"## {_safe(text(f'golive.group.{group}'))}"
        yield ""
        headers = _headers()
        yield "| " + " | ".join(headers) + " |"
        yield "|" + "---|" * len(headers)
        for point in points:
            yield "| " + " | ".join(_markdown_row(point)) + " |"
    yield ""
    yield f"## {_safe(text('golive.commands'))}"
    for point in record.points:
        if point.command is not None:
            yield ""
            yield f"{_safe(words.title(point))}:"
            yield ""
            yield f"    {' '.join(point.command.splitlines())}"
    yield ""
    yield f"## {_safe(text('golive.licence'))}"
    yield ""
    yield _safe(_licence(record))
    yield ""
    for clause, source in words.terms(record):
        yield f"- {_safe(clause)} ({_safe(source)})"
    yield ""
    yield f"## {_safe(text('golive.data'))}"
    yield ""
    for each in words.data_notes(record):
        yield f"- {_safe(each)}"


def _markdown_row(point: GoLivePoint) -> Iterator[str]:
    *cells, evidence = map(_safe, _row(point))
    yield from cells
    if point.evidence is None or point.evidence.path is None:
        yield evidence
        return
    yield f"[{evidence}](<{Path(point.evidence.path).absolute().as_uri()}>)"


def _numbers(record: GoLive) -> Iterator[str]:
    yield from map(words.level_line, record.levels)
    if record.required:
        yield words.required_line(record)
    yield words.load_line(record)
    yield from map(words.reach_line, record.reach)


def _headers() -> list[str]:
    return text("golive.headers").split("|")


def _row(point: GoLivePoint) -> tuple[str, ...]:
    why = words.reason(point)
    if point.waiver is not None:
        why = f"{why} · {words.waiver_line(point, point.waiver)}"
    evidence = point.evidence
    shown = ""
    if evidence is not None:
        shown = f"{evidence.at[:10]} {Path(evidence.path).name if evidence.path else ''}".strip()
    return (
        words.title(point),
        words.standing_word(point),
        why,
        words.level_word(point.needed_for),
        shown,
    )


def _licence(record: GoLive) -> str:
    licence = record.licence
    if licence.name is None:
        return text("golive.licence_unknown")
    stated = text(
        "golive.licence_stated",
        licence=licence.name,
        source=licence.source,
        as_of=licence.as_of,
        at=licence.acknowledged_at or text("golive.nobody"),
    )
    return stated if licence.note is None else f"{stated} {of_facts(licence.note)}"


def _safe(words_given: str) -> str:
    return words_given.translate(_MARKDOWN)
