"""A page for every command: what `--help` says, for it and for what is under it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from heavylift.cli.main import COMMANDS, cli
from heavylift.cli.reference.markdown import cell, code, table
from heavylift.cli.text import text

_WIDTH = 80


def pages() -> Iterator[tuple[str, str]]:
    """Path -> text: the list, and a page for each command."""
    root = click.Context(
        cli,
        info_name="heavylift",
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        **cli.context_settings,
    )
    yield "cli/index.md", "\n".join(_list(root))
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None  # noqa: S101 - it is in the list
        yield f"cli/{name}.md", "\n".join(_command(command, name, root, 1))


def _list(root: click.Context) -> Iterator[str]:
    yield f"# {text('reference.commands')}"
    yield ""
    yield text("reference.commands_intro")
    yield ""
    rows = ((f"[{name}]({name}.md)", cell(text(f"help.{name}"))) for name in COMMANDS)
    yield from table("reference.commands_columns", rows)
    yield from _block(cli.get_help(root))


def _command(command: click.Command, name: str, parent: click.Context, level: int) -> Iterator[str]:
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
    )
    yield f"{'#' * level} {code(context.command_path)}"
    yield ""
    yield from _block(command.get_help(context))
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                yield from _command(found, inner, context, level + 1)


def _block(words: str) -> Iterator[str]:
    yield "```text"
    yield words.rstrip()
    yield "```"
    yield ""
