"""`heavylift engine`: installs engines into environments of their own, and lists them."""

from __future__ import annotations

from pathlib import Path

import click

from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.recipe.engines import embedded

_INSTALLABLE = (embedded.ENGINE,)


@click.group(help=text("help.engine"))
def command() -> None:
    """The group."""


@command.command("install", help=text("help.engine.install"))
@click.argument("engine", type=click.Choice(_INSTALLABLE))
@click.option(
    "--from",
    "wheels",
    type=click.Path(path_type=Path),
    metavar="WHEEL_DIR",
    help=text("help.engine.from"),
)
@json_option
def install(engine: str, wheels: Path | None, as_json: bool) -> None:  # noqa: ARG001 - one so far
    """Install one engine."""
    from heavylift.launch.engine_env import install_embedded, list_engines

    out = sink(as_json)
    install_embedded(wheels=wheels, on_step=lambda name: out.step(f"engine.step.{name}"))
    out.record("engine", list_engines())
    out.next_command("heavylift demo")


@command.command("list", help=text("help.engine.list"))
@json_option
def list_(as_json: bool) -> None:
    """List the engines."""
    from heavylift.launch.engine_env import list_engines

    engines = list_engines()
    out = sink(as_json)
    out.record("engine", engines)
    for state in engines.engines:
        if not state.installed:
            out.next_command(f"heavylift engine install {state.engine}")
