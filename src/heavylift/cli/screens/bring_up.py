"""A bring-up: a line per rung, why it stopped, what is next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from heavylift.cli.output import glyphs
from heavylift.cli.screens.status import failure_lines, wrapped
from heavylift.cli.text import keys, text
from heavylift.records.bring_up import BringUp, Rung, RungStatus
from heavylift.units import GIB, format_tokens

_GLYPHS: Final = {
    RungStatus.PASSED: "ok",
    RungStatus.FAILED: "fail",
    RungStatus.SKIPPED: "info",
    RungStatus.PENDING: "unknown",
}


def lines(record: BringUp) -> Iterator[str]:
    """The screen, line by line."""
    word = "up" if record.is_up else "stopped" if record.stopped_at else "open"
    glyph = glyphs()["ok" if record.is_up else "fail" if record.stopped_at else "unknown"]
    yield text("bring_up.title", glyph=glyph, name=record.name, word=text(f"bring_up.{word}"))
    yield text(
        "rehearsal.what",
        model=record.model,
        engine=record.engine,
        version=record.engine_version,
    )
    for rung in record.rungs:
        yield from wrapped(rung_line(rung), "")
    failed = next((each for each in record.rungs if each.id == record.stopped_at), None)
    if failed is not None:
        yield from _why(failed)
    if record.url is not None:
        yield text("status.url", url=record.url)


def rung_line(rung: Rung) -> str:
    """Glyph, word, name and the figures of a rung: one line."""
    line = text(
        "bring_up.rung",
        glyph=glyphs()[_GLYPHS[rung.status]],
        word=text(f"bring_up.status.{rung.status}"),
        name=_name(rung),
    )
    if rung.status is RungStatus.SKIPPED:
        return f"{line} {text(f'bring_up.reason.{rung.reason}')}"
    return " ".join((line, *_figures(rung)))


def _name(rung: Rung) -> str:
    if rung.context_tokens is not None:
        return text("bring_up.name.context", tokens=format_tokens(rung.context_tokens))
    if rung.concurrency is not None:
        return text("bring_up.name.concurrency", count=rung.concurrency)
    if rung.kind == "rehearsal":
        name = "rehearsal_full" if rung.layers is None else "rehearsal"
        return text(f"bring_up.name.{name}", layers=rung.layers)
    return text(f"bring_up.name.{rung.kind}")


def _figures(rung: Rung) -> Iterator[str]:
    if rung.seconds is not None:
        yield text("bring_up.figure.seconds", seconds=f"{rung.seconds:,.1f}")
    if rung.requests:
        yield text("bring_up.figure.errors", errors=rung.errors, requests=rung.requests)
    if rung.output_tokens_per_s is not None:
        yield text("bring_up.figure.pace", pace=f"{rung.output_tokens_per_s:,.1f}")
    if rung.peak_memory_bytes is not None:
        gib = f"{rung.peak_memory_bytes / GIB:,.2f}"
        yield text(f"bring_up.figure.{rung.memory_of}", gib=gib)
    if rung.tool_calls is not None:
        yield text(f"bring_up.tools.{rung.tool_calls}")


def _why(rung: Rung) -> Iterator[str]:
    key = f"bring_up.reason.{rung.reason}"
    known = key in keys()
    words = (
        text(key, **rung.params)
        if known
        else text(f"error.{rung.reason}", **rung.params)
        if f"error.{rung.reason}" in keys()
        else text("bring_up.reason.other", reason=rung.reason)
    )
    yield from wrapped(words, f"{glyphs()['fail']} ")
    for finding in rung.findings:
        yield from wrapped(f"{finding.id}: {finding.subject} {finding.observed}", "    ")
    if rung.failure is not None:
        yield from failure_lines(rung.failure)
    for line in rung.evidence:
        yield from wrapped(line, "  | ")
