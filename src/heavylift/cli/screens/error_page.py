"""The page of an error code, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli.cells import wrap
from heavylift.cli.codes import ErrorPage
from heavylift.cli.text import labelled


def lines(page: ErrorPage) -> Iterator[str]:
    """The screen, line by line, within 80 columns."""
    yield from wrap(f"error[{page.code}]: {page.sentence}", "", "  ")
    yield ""
    yield labelled("codes.stage", page.stage)
    yield labelled("codes.status", f"{page.exit_status} ({page.exit_meaning})")
    if page.parameters:
        named = ", ".join(f"{{{name}}}" for name in page.parameters)
        yield from wrap(labelled("codes.filled", named), "", "  ")
    yield ""
    yield from wrap(labelled("codes.advice", page.advice), "", "  ")
