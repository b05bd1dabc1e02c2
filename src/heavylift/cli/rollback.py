"""`heavylift rollback`: back to the last release that verified."""

from __future__ import annotations

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text


@click.command(help=text("help.rollback"))
@click.argument("name")
@click.option("--to", type=click.IntRange(min=1), metavar="NUMBER", help=text("rollback.to"))
@json_option
def command(name: str, to: int | None, as_json: bool) -> int:
    """Begin the earlier release in place of what runs; a driver that differs is named."""
    from heavylift.cli.deployments import follow
    from heavylift.operate import operations

    out = sink(as_json)
    back = operations.rollback(name, to=to)
    out.note("rollback.begun", name=name, before=back.before, release=back.begun.release)
    if back.driver_differs:
        out.note(
            "rollback.driver",
            then=back.driver_then or text("releases.none"),
            now=back.driver_now or text("releases.none"),
        )
    return follow(out, back.begun)
