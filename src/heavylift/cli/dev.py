"""`heavylift dev`: tools for development."""

from __future__ import annotations

import click

from heavylift.cli import dev_checkpoint, dev_model
from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.errors import Exit


@click.group("dev", help=text("help.dev"))
def command() -> None:
    """The group; it holds nothing."""


@command.command("engine", help=text("help.dev_engine"))
@click.argument("scenario")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help=text("help.dev_port"),
)
def engine(scenario: str, port: int) -> int:
    """Play a scripted engine. Standard output belongs to the script, as to an engine its log."""
    from heavylift.devserver.library import load
    from heavylift.devserver.serve import serve

    output = sink(as_json=False)
    return serve(load(scenario), port, lambda url: output.note("dev.listening", url=url))


command.add_command(dev_checkpoint.command)
command.add_command(dev_model.command)


@command.command("bad-server", help=text("help.dev_bad_server"))
@click.argument("name", required=False)
@click.option("--list", "wants_list", is_flag=True, help=text("help.dev_bad_server_list"))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help=text("help.dev_port"),
)
@json_option
def bad_server(name: str | None, wants_list: bool, port: int, as_json: bool) -> int:
    """Play a misbehaving server, or list them with the check that must catch each."""
    from heavylift.devserver import bad
    from heavylift.devserver.serve import serve

    output = sink(as_json)
    if wants_list or name is None:
        output.record("bad_servers", bad.BAD_SERVERS)
        output.next_command("heavylift dev bad-server marker-leak --port 8000")
        return Exit.OK
    scenario = bad.bad_server(name).scenario()
    return serve(scenario, port, lambda url: output.note("dev.listening", url=url))


@command.command("scenarios", help=text("help.dev_scenarios"))
@json_option
def scenarios(as_json: bool) -> None:
    """List the shipped scenarios."""
    from heavylift.devserver.library import shipped

    output = sink(as_json)
    output.record("scenarios", shipped())
    output.next_command("heavylift dev engine healthy --port 8000")
