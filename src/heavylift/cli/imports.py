"""`heavylift import`: another planner's output, checked against our memory."""

from __future__ import annotations

from pathlib import Path

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit


@click.command("import", help=text("help.import"))
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@json_option
def command(path: Path, as_json: bool) -> int:
    """Read, plan, show; 1 when an offer does not fit."""
    from heavylift.importing import Importing

    found = Importing().read(path)
    out = sink(as_json)
    out.record("imported", found)
    return Exit.NEGATIVE if found.wrong else Exit.OK
