"""A model fetched, or what fetching it would take."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from heavylift.cli.screens import checksum
from heavylift.cli.text import text
from heavylift.records.fetched import Fetched
from heavylift.units import format_gb


def lines(found: Fetched) -> Iterator[Text | str]:
    """The screen, line by line."""
    yield text("fetch.model", model=found.model, revision=found.revision, host=found.host)
    yield text("fetch.folder", folder=found.folder)
    yield text(
        "fetch.bytes",
        files=f"{found.files:,}",
        total=format_gb(found.total_bytes, 3),
        weights=format_gb(found.weights_bytes, 3),
    )
    if found.licence is None:
        yield text("fetch.no_licence")
    else:
        yield text("fetch.licence", licence=found.licence, source=found.licence_from)
    if not found.transferred:
        yield text(
            "fetch.room",
            needed=format_gb(found.needed_bytes, 3),
            safe=format_gb(found.safe_bytes, 3),
            free=format_gb(found.free_bytes, 3),
        )
        yield text("fetch.nothing_done")
    if found.integrity is not None:
        yield ""
        yield from checksum.lines(found.integrity)
