"""`heavylift releases`: what was started, what verified, and how two of them differ."""

from __future__ import annotations

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text


@click.command(help=text("help.releases"))
@click.argument("name")
@click.option(
    "--diff", nargs=2, type=click.IntRange(min=1), metavar="A B", help=text("releases.diff")
)
@json_option
def command(name: str, diff: tuple[int, int] | None, as_json: bool) -> None:
    """List releases, newest first, or compare two."""
    from heavylift.operate import releases
    from heavylift.state.deployments import deployments_path, open_deployments

    out = sink(as_json)
    with open_deployments(deployments_path()) as store:
        if diff is not None:
            out.record("release_diff", releases.compared(store, name, *diff))
            out.next_command(f"heavylift rollback {name} --to {diff[0]}")
            return
        found = releases.listed(store, name)
    out.record("releases", found)
    newest = found.releases[0].release.number if found.releases else 1
    if newest > 1:
        out.next_command(f"heavylift releases {name} --diff {newest - 1} {newest}")
    else:
        out.next_command(f"heavylift status {name}")
