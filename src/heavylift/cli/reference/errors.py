"""A page for every error code, and the list of them by stage."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.cli import codes
from heavylift.cli.codes import ErrorPage
from heavylift.cli.reference.markdown import cell, code, table
from heavylift.cli.text import text
from heavylift.errors import Exit


def pages() -> Iterator[tuple[str, str]]:
    """Path -> text: the list, and a page for each code."""
    found = [page for each in codes.codes() if (page := codes.page(each)) is not None]
    yield "errors/index.md", "\n".join(_list(found))
    for page in found:
        yield f"errors/{page.code}.md", "\n".join(_page(page))


def _list(found: list[ErrorPage]) -> Iterator[str]:
    yield f"# {text('reference.errors')}"
    yield ""
    yield text("reference.errors_intro")
    yield ""
    statuses = ((str(int(exit_)), text(f"codes.status.{int(exit_)}")) for exit_ in Exit)
    yield from table("reference.statuses_columns", statuses)
    for stage in dict.fromkeys(page.stage for page in found):
        yield f"## {stage}"
        yield ""
        rows = (
            (f"[{page.code}]({page.code}.md)", cell(page.sentence), str(page.exit_status))
            for page in found
            if page.stage == stage
        )
        yield from table("reference.errors_columns", rows)


def _page(page: ErrorPage) -> Iterator[str]:
    yield f"# {page.code}"
    yield ""
    yield "```text"
    yield f"error[{page.code}]: {page.sentence}"
    yield "```"
    yield ""
    yield page.advice
    yield ""
    rows = [
        (text("codes.stage"), cell(page.stage)),
        (text("codes.status"), f"{page.exit_status} ({cell(page.exit_meaning)})"),
    ]
    if page.parameters:
        rows.append((text("codes.filled"), ", ".join(map(code, page.parameters))))
    if page.next_command is not None:
        rows.append((text("next"), code(page.next_command)))
    yield from table("reference.error_columns", rows)
    yield f"[{text('reference.errors_all')}](index.md)"
    yield ""
