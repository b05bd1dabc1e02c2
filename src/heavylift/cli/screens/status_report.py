"""All deployments: one in full, several as a list."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.screens import status
from heavylift.cli.text import text
from heavylift.records.deployment import StatusReport


def lines(report: StatusReport) -> Iterator[str]:
    """The screen, line by line."""
    if not report.deployments:
        yield text("status.nothing")
    if len(report.deployments) == 1:
        yield from status.lines(report.deployments[0])
        return
    for each in report.deployments:
        yield status.headline(each)
        where = each.url or text("status.nowhere")
        yield text("status.short", release=each.release, model=each.model, where=where)
