"""The demonstration's result: each memory term planned against measured, and each check."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from heavylift.cli.output import glyphs
from heavylift.cli.text import text
from heavylift.demo import Demo
from heavylift.records.finding import Severity
from heavylift.records.plan import TermComparison
from heavylift.units import MIB


def lines(demo: Demo) -> Iterator[str]:
    """The screen, line by line."""
    yield ""
    yield from _table(text("demo.terms", model=demo.small_plan.title), demo.terms)
    yield ""
    yield from _table(text("demo.tiny_terms"), demo.tiny_terms)
    yield ""
    for finding in demo.findings:
        if finding.code == "demo.check.term" and finding.severity is Severity.OK:
            continue
        glyph = glyphs()[finding.severity]
        words = text(finding.code, observed=finding.observed, expected=finding.expected)
        yield f"{glyph} {text(f'severity.{finding.severity}')}  {words}"
    yield ""
    yield text("demo.done" if demo.sound else "demo.not_sound", seconds=demo.seconds)


def _table(title: str, terms: tuple[TermComparison, ...]) -> Iterator[str]:
    yield title
    for term in terms:
        planned = (
            "?" if term.planned is None or term.planned.high is None else _mib(term.planned.low)
        )
        name = term.term.removeprefix("recurrent_state.").removeprefix("workspace.")
        left = f"  {name:<18}{' ' * max(1, 12 - cell_len(planned))}{planned}"
        yield f"{left}{_mib(term.measured_bytes):>12}  " + text(f"demo.agreement.{term.agreement}")


def _mib(value_bytes: int) -> str:
    return f"{value_bytes / MIB:,.2f}"
