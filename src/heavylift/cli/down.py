"""`heavylift down`: a deployment and whatever is left of it is stopped."""

from __future__ import annotations

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text


@click.command(help=text("help.down"))
@click.argument("name")
@json_option
def command(name: str, as_json: bool) -> None:
    """Stop it; doing it again changes nothing."""
    from heavylift.operate import operations

    out = sink(as_json)
    out.record("status", operations.down(name))
    out.next_command(f"heavylift restart {name}")
