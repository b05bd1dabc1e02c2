"""`heavylift supervise`: a supervisor in the foreground; what `up` and systemd start."""

from __future__ import annotations

import click

from heavylift.cli.text import text
from heavylift.errors import Exit


@click.command(help=text("help.supervise"))
@click.argument("name")
@click.option("--run", "run_id", metavar="ID", help=text("supervise.run"))
@click.option("--print-unit", is_flag=True, help=text("supervise.unit"))
def command(name: str, run_id: str | None, print_unit: bool) -> int:
    """Supervise until it is over; 1 when it was given up."""
    if print_unit:
        return _print_unit(name)
    from heavylift.operate.supervise import supervise
    from heavylift.records.deployment import Phase

    run = supervise(name, run_id)
    return Exit.OK if run is None or run.phase is Phase.STOPPED else Exit.NEGATIVE


def _print_unit(name: str) -> int:
    import os
    from pathlib import Path

    from heavylift.cli.output import sink
    from heavylift.operate import recipes, truth
    from heavylift.operate.unit import unit_name, unit_text
    from heavylift.state.deployments import deployments_path, open_deployments

    with open_deployments(deployments_path()) as store:
        deployment = truth.require(store, name)
    recipe = recipes.read(recipes.release_dir(name, deployment.release))
    unit = unit_text(
        name,
        grace_s=recipe.rules.grace_s,
        home=os.environ.get("HEAVYLIFT_HOME"),
        folder=Path.cwd(),
    )
    click.echo(unit, nl=False)
    sink(as_json=False).note("supervise.install", unit=unit_name(name))
    return Exit.OK
