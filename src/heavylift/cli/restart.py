"""`heavylift restart`: the release that is to run is stopped and begun again."""

from __future__ import annotations

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text


@click.command(help=text("help.restart"))
@click.argument("name")
@json_option
def command(name: str, as_json: bool) -> int:
    """Stop, begin, follow."""
    from heavylift.cli.deployments import follow
    from heavylift.operate import operations

    out = sink(as_json)
    begun = operations.restart(name)
    out.note("up.begun", name=begun.name, release=begun.release)
    return follow(out, begun)
