"""What the catalogue holds, a line per kind, and every defect."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.facts import FactsReport
from heavylift.cli.text import text


def lines(report: FactsReport) -> Iterator[str]:
    """The screen, line by line."""
    for kind, ids in report.entries.items():
        yield text("facts.count", kind=kind, count=report.counts[kind], ids=", ".join(ids))
    if not report.defects:
        yield text("facts.sound")
    for defect in report.defects:
        yield text(
            "facts.defect",
            path=defect.path,
            problem=text(f"defect.{defect.problem}", detail=defect.detail),
        )
