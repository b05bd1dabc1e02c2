"""`heavylift up`: a recipe becomes a supervised deployment that has answered and was verified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError

if TYPE_CHECKING:
    from heavylift.operate.recipes import EmbeddedWish

_READABLE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(help=text("help.up"))
@click.argument("source", metavar="RECIPE_DIR|MODEL")
@click.option("--engine", default="embedded", show_default=True, help=text("up.engine"))
@click.option("--name", help=text("up.name"))
@click.option(
    "--context", metavar="TOKENS", default="4096", show_default=True, help=text("up.context")
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help=text("up.concurrency"),
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help=text("up.port")
)
@click.option("--verify/--no-verify", default=True, show_default=True, help=text("up.verify"))
@click.option("--secrets", type=_READABLE, metavar="FILE", help=text("up.secrets"))
@click.option("--hosts", metavar="A,B,…", help=text("up.hosts"))
@click.option("--ssh-config", type=_READABLE, metavar="FILE", help=text("up.ssh_config"))
@click.option("--target", type=click.Choice(["slurm", "kubernetes"]), help=text("up.target"))
@click.option("--url", help=text("up.url"))
@click.option("--replace", is_flag=True, help=text("up.replace"))
@click.option("--detach", is_flag=True, help=text("up.detach"))
@json_option
def command(
    *,
    source: str,
    engine: str,
    name: str | None,
    context: str,
    concurrency: int,
    port: int,
    verify: bool,
    secrets: Path | None,
    hosts: str | None,
    ssh_config: Path | None,
    target: str | None,
    url: str | None,
    replace: bool,
    detach: bool,
    as_json: bool,
) -> int:
    """Begin the deployment and follow it until it serves; 1 when its verification fails."""
    from heavylift.cli.deployments import follow, status
    from heavylift.operate import operations

    out = sink(as_json)
    folder = Path(source)
    machines = () if hosts is None else tuple(filter(None, hosts.split(",")))
    ssh = ("ssh",) if ssh_config is None else ("ssh", "-F", str(ssh_config.absolute()))
    begun = operations.up(
        operations.UpWish(
            source=folder.absolute()
            if folder.is_dir()
            else _embedded(source, engine, context, concurrency, port),
            name=name,
            verify=verify,
            secrets=secrets,
            hosts=machines,
            ssh=ssh if machines else (),
            replace=replace,
            target=target,
            url=url,
        )
    )
    if begun.was_running:
        out.note("up.was_running", name=begun.name, release=begun.release)
    else:
        out.note("up.begun", name=begun.name, release=begun.release)
    for what in ("ssh" if machines else None, target):
        if what is not None:
            out.note("up.not_run_here", what=what)
    if detach:
        out.record("status", status(begun.name))
        out.next_command(f"heavylift status {begun.name}")
        return Exit.PENDING
    try:
        return follow(out, begun)
    except KeyboardInterrupt:
        out.note("up.goes_on", name=begun.name)
        raise


def _embedded(source: str, engine: str, context: str, concurrency: int, port: int) -> EmbeddedWish:
    from heavylift.cli.verify import tokens
    from heavylift.operate.recipes import EmbeddedWish
    from heavylift.recipe.engines import embedded

    if engine != embedded.ENGINE:
        raise HeavyliftError(
            "REC047",
            {"engine": engine, "source": source},
            hint_command=f"heavylift recipe {source} --engine {engine} --on RACK --out DIR",
        )
    total = tokens(context)
    each = total // concurrency // embedded.CONTEXT_MULTIPLE * embedded.CONTEXT_MULTIPLE
    if each == 0:
        raise HeavyliftError(
            "REC048",
            {"context": total, "concurrency": concurrency, "least": embedded.CONTEXT_MULTIPLE},
        )
    return EmbeddedWish(model=source, slot_tokens=each, slots=concurrency, port=port)
