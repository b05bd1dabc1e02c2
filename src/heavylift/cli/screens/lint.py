"""Findings, the gravest first, and the mended command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from heavylift.cli.cells import left, wrap
from heavylift.cli.lint import ShownFinding, ShownReport
from heavylift.cli.output import glyphs
from heavylift.cli.text import text
from heavylift.records.finding import Severity

_INDENT: Final = "    "


def lines(report: ShownReport) -> Iterator[str]:
    """The screen, line by line. The mended command is not wrapped: it is there to be copied."""
    nothing = text("lint.head.nothing")
    yield text(
        "lint.head",
        form=text(f"lint.form.{report.form}"),
        engines=", ".join(report.engines) or nothing,
        models=", ".join(report.models) or "?",
    )
    for finding in report.findings:
        yield from _finding(finding)
    if not report.findings:
        yield text("lint.clean")
        return
    yield text(
        "lint.count",
        fail=report.counts[Severity.FAIL],
        warn=report.counts[Severity.WARN],
        info=report.counts[Severity.INFO],
    )
    if report.mended:
        yield ""
        yield text("lint.mended")
        yield from report.mended.splitlines()


def _finding(finding: ShownFinding) -> Iterator[str]:
    subject = f" {finding.subject}" if finding.subject else ""
    word = left(text(f"doctor.word.{finding.severity}"), 7)
    yield f"{glyphs()[finding.severity]} {word} {finding.rule}{subject}"
    yield from _wrapped(finding.message)
    yield from _wrapped(text("lint.finding.fix", fix=finding.fix))
    if finding.source and finding.severity is not Severity.INFO:
        source = finding.source
        if finding.as_of:
            source = text("lint.finding.source", source=source, as_of=finding.as_of)
        yield from _wrapped(source)


def _wrapped(words: str) -> Iterator[str]:
    return wrap(words, _INDENT, cuts=False)
