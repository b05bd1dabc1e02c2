"""Keeping what a command printed, for a go-live report. A report that cannot be kept is no failure
of what it reports.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from heavylift.errors import HeavyliftError, reason
from heavylift.records.sink import Sink


def keep(out: Sink, kind: str, report: Any, *, url: str | None = None) -> None:
    """Keep a report, with the deployment that answers at `url` where it is one of ours."""
    from heavylift.operate import reporting

    _kept(out, lambda: reporting.keep(kind, report, url=url))


def keep_of(out: Sink, kind: str, report: Any, name: str) -> None:
    """Keep a report on a deployment by its name."""
    from heavylift.operate import reporting

    _kept(out, lambda: reporting.keep(kind, report, name=name))


def keep_of_recipe(out: Sink, kind: str, report: Any, folder: Path) -> None:
    """Keep a report on the recipe in a folder."""
    from heavylift.operate import reporting

    _kept(out, lambda: reporting.keep_of_recipe(kind, report, folder))


def _kept(out: Sink, write: Callable[[], Path]) -> None:
    import sqlite3

    try:
        write()
    except (OSError, sqlite3.Error, HeavyliftError) as error:
        told = error.code if isinstance(error, HeavyliftError) else reason(error)
        out.note("golive.not_kept", reason=told)
