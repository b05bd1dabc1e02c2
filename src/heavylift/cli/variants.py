"""`heavylift variants`: the published forms of a model, and the smallest rack for each."""

from __future__ import annotations

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit
from heavylift.reciping import Reciping


@click.command(help=text("help.variants"))
@click.argument("model")
@json_option
def command(model: str, as_json: bool) -> int:
    """Plan each form on each card, show the smallest that holds."""
    table = Reciping().variants(model)
    out = sink(as_json)
    out.record("variants", table)
    first = next((row for row in table.rows if row.rack is not None), None)
    if first is not None:
        out.next_command(f"heavylift recipe {table.model} --on {first.rack} --variant {first.id}")
    return Exit.OK
