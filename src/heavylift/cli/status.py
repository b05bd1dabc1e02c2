"""`heavylift status`: the truth about deployments, checked against what runs."""

from __future__ import annotations

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit


@click.command(help=text("help.status"))
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> int:
    """Show one deployment or all; with a name, 1 when it does not serve and 8 while it starts."""
    from heavylift.operate import truth
    from heavylift.records.deployment import Alive, Phase
    from heavylift.state.deployments import deployments_path, open_deployments

    out = sink(as_json)
    with open_deployments(deployments_path()) as store:
        report = truth.report(store, name)
    out.record("status_report", report)
    if not report.deployments:
        out.next_command("heavylift up RECIPE_DIR")
        return Exit.OK
    first = report.deployments[0]
    if first.phase is Phase.LOST or first.leftovers:
        out.next_command(f"heavylift restart {first.name}")
    elif first.failure is not None and first.failure.next_command is not None:
        out.next_command(first.failure.next_command)
    else:
        out.next_command(f"heavylift logs {first.name}")
    if name is None or (first.ready and first.alive is not Alive.DEAD):
        return Exit.OK
    return Exit.NEGATIVE if first.phase.is_over else Exit.PENDING
