"""`heavylift inspect`: what a checkpoint holds, from its headers alone."""

from __future__ import annotations

import shlex

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit


@click.command(help=text("help.inspect"))
@click.argument("target", metavar="PATH|ID")
@click.option("--hub", metavar="HUB", help=text("option.hub"))
@click.option("--fresh", is_flag=True, help=text("option.fresh"))
@json_option
def command(target: str, hub: str | None, fresh: bool, as_json: bool) -> int:
    """Count and show; 1 when something is wrong with the files."""
    from heavylift.cli.hub import reach_hub
    from heavylift.facts.catalog import Catalog
    from heavylift.inspecting import inspect

    catalog = Catalog()
    out = sink(as_json)
    found = inspect(target, catalog, reach_hub(catalog, hub, out), fresh=fresh)
    out.record("inspect", found)
    if found.sound:
        rack = catalog.showcase().rack
        out.next_command(f"heavylift plan {shlex.quote(target)} --on {rack}")
    return Exit.OK if found.sound else Exit.NEGATIVE
