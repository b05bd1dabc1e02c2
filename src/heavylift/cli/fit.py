"""`heavylift fit`: what a rack holds, out of everything that is known."""

from __future__ import annotations

import gc

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.request import Tokens
from heavylift.cli.text import text
from heavylift.errors import Exit
from heavylift.planning import Planning


@click.command(help=text("help.fit"))
@click.option("--on", "rack_text", required=True, metavar="RACK", help=text("option.on_fit"))
@click.option("--context", type=Tokens(), help=text("option.context"))
@json_option
def command(rack_text: str, context: int | None, as_json: bool) -> int:
    """List, the most capable first; 0 when anything fits, 1 when nothing does."""
    # As a search does, it lets go of next to nothing before the answer.
    gc.disable()
    found = Planning().fit(rack_text, context)
    out = sink(as_json)
    out.record("fit", found)
    if not found.rows:
        return Exit.NEGATIVE
    out.next_command(found.rows[0].command)
    return Exit.OK
