"""`heavylift facts`: what is known, with sources; and a check of every facts file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit
from heavylift.facts.catalog import DATA, Catalog
from heavylift.facts.defects import Defect


@dataclass(frozen=True, kw_only=True, slots=True)
class FactsReport:
    """What the catalogue holds, and what is wrong with it."""

    counts: dict[str, int]
    entries: dict[str, tuple[str, ...]]
    defects: tuple[Defect, ...]


@click.command(help=text("help.facts"))
@click.option(
    "--from",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=text("option.facts_from"),
)
@json_option
def command(folder: Path | None, as_json: bool) -> int:
    """List and check; 3 when a file has a defect."""
    catalog = Catalog(folder or DATA)
    kinds = ("models", "families", "gpus", "nodes", "engines", "recipes")
    entries = {kind: catalog.ids(kind) for kind in kinds}
    report = FactsReport(
        counts={kind: len(ids) for kind, ids in entries.items()},
        entries=entries,
        defects=catalog.check(),
    )
    sink(as_json).record("facts", report)
    return Exit.INPUT if report.defects else Exit.OK
