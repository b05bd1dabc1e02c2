"""`heavylift rehearse`: a recipe's own start with invented weights, before any weight is read."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from heavylift.cli.kept import keep_of_recipe
from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_READABLE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(help=text("help.rehearse"))
@click.argument("recipe", type=_FOLDER)
@click.option("--layers", type=click.IntRange(min=1), help=text("rehearse.layers"))
@click.option("--full", is_flag=True, help=text("rehearse.full"))
@click.option("--name", help=text("up.name"))
@click.option("--secrets", type=_READABLE, metavar="FILE", help=text("up.secrets"))
@click.option("--hosts", metavar="A,B,…", help=text("up.hosts"))
@click.option("--ssh-config", type=_READABLE, metavar="FILE", help=text("up.ssh_config"))
@click.option("--target", type=click.Choice(["processes", "docker"]), help=text("rehearse.target"))
@json_option
def command(
    *,
    recipe: Path,
    layers: int | None,
    full: bool,
    name: str | None,
    secrets: Path | None,
    hosts: str | None,
    ssh_config: Path | None,
    target: str | None,
    as_json: bool,
) -> int:
    """Start, ask, stop, show; 1 when it did not come up or answer."""
    from heavylift.cli.deployments import teller
    from heavylift.operate import rehearse

    if full and layers is not None:
        raise click.UsageError(text("usage.rehearse_full"))
    out = sink(as_json)
    machines = () if hosts is None else tuple(filter(None, hosts.split(",")))
    ssh = ("ssh",) if ssh_config is None else ("ssh", "-F", str(ssh_config.absolute()))
    found = rehearse.rehearse(
        rehearse.RehearseWish(
            folder=recipe.absolute(),
            layers=None if full else layers or rehearse.LAYERS,
            name=name,
            secrets=secrets,
            hosts=machines,
            ssh=ssh if machines else (),
            target=target,
        ),
        teller(out),
    )
    out.record("rehearsal", found)
    keep_of_recipe(out, "rehearsal", found, recipe)
    folder = shlex.quote(str(recipe))
    if not found.passed:
        wanted = None if found.failure is None else found.failure.next_command
        out.next_command(wanted or f"heavylift diagnose {shlex.quote(found.log or '--last')}")
        return Exit.NEGATIVE
    more = f"rehearse {folder} --full" if found.layers is not None else f"up {folder}"
    out.next_command(f"heavylift {more}")
    return Exit.OK
