"""`heavylift variants`: the published forms of a model, and which of them to take with what one
has.
"""

from __future__ import annotations

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.request import Word
from heavylift.cli.text import text
from heavylift.errors import Exit
from heavylift.planning import Planning


@click.command(help=text("help.variants"))
@click.argument("model")
@click.option("--have", "have_text", type=Word(), metavar="WHAT", help=text("option.have"))
@json_option
def command(model: str, have_text: str | None, as_json: bool) -> int:
    """Show the table; with --have 0 when there is a form to take, 1 when the answer is no."""
    planning = Planning()
    have = None if have_text is None else planning.have(have_text)
    table = planning.variants(model, have)
    sink(as_json).record("variants", table)
    return Exit.OK if have is None or table.choices else Exit.NEGATIVE
