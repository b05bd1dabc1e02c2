"""A rehearsal: what came up, what it took, and what it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.output import glyphs
from heavylift.cli.screens.status import failure_lines, finding_lines, wrapped
from heavylift.cli.text import listed, text
from heavylift.records.rehearsal import Rehearsal
from heavylift.units import GIB


def lines(rehearsal: Rehearsal) -> Iterator[str]:
    """The screen, line by line."""
    rung = (
        text("rehearsal.full")
        if rehearsal.layers is None
        else text("rehearsal.layers", count=rehearsal.layers)
    )
    glyph, word = ("ok", "passed") if rehearsal.passed else ("fail", "failed")
    yield text(
        "rehearsal.title",
        glyph=glyphs()[glyph],
        word=text(f"rehearsal.{word}"),
        name=rehearsal.name,
        rung=rung,
    )
    yield text(
        "rehearsal.what",
        model=rehearsal.model,
        engine=rehearsal.engine,
        version=rehearsal.engine_version,
    )
    yield from _figures(rehearsal)
    yield from _why_not(rehearsal)
    for note in rehearsal.notes:
        yield from wrapped(text(f"rehearsal.note.{note}"), f"{glyphs()['warn']} ")
    untold = listed([text(f"rehearsal.untold.{each}") for each in rehearsal.untold])
    yield from wrapped(text("rehearsal.untold", what=untold), f"{glyphs()['unknown']} ")
    if rehearsal.receipt_file is not None:
        yield from wrapped(text("rehearsal.receipt", path=rehearsal.receipt_file), "")
    if rehearsal.log is not None:
        yield text("status.log", path=rehearsal.log)


def _figures(rehearsal: Rehearsal) -> Iterator[str]:
    if rehearsal.image is not None:
        yield text("rehearsal.image", image=rehearsal.image)
    if rehearsal.ready_s is not None:
        yield text("rehearsal.ready", seconds=f"{rehearsal.ready_s:,.1f}")
    tokens = rehearsal.figures.get("kv_tokens")
    if tokens is not None:
        yield text("rehearsal.kv_tokens", tokens=f"{tokens:,.0f}")
    if rehearsal.receipt is not None:
        for term in rehearsal.receipt.terms:
            yield text("rehearsal.term", term=term.term, gib=f"{term.bytes / GIB:,.2f}")
    for finding in rehearsal.findings:
        yield from finding_lines(finding)


def _why_not(rehearsal: Rehearsal) -> Iterator[str]:
    if rehearsal.reason is not None:
        words = text("rehearsal.reason", reason=rehearsal.reason)
        yield from wrapped(words, f"{glyphs()['fail']} ")
    if rehearsal.failure is not None:
        yield from failure_lines(rehearsal.failure)
