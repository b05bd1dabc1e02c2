"""`heavylift`: the group of commands. A command's module is imported when it is run or helped."""

from __future__ import annotations

import importlib
from typing import Any, Final

import click

from heavylift import __version__
from heavylift.cli.text import text
from heavylift.locale import catalogue

# command -> module under heavylift.cli that defines `command`; in the order of the story.
COMMANDS: Final = {
    "plan": "plan",
    "compare": "compare",
    "fit": "fit",
    "variants": "variants",
    "explain": "explain",
    "speed": "speed",
    "pd": "pd",
    "simulate": "simulate",
    "decide": "decide",
    "recipe": "recipe",
    "import": "imports",
    "facts": "facts",
    "inspect": "inspect",
    "checksum": "checksum",
    "fetch": "fetch",
    "lint": "lint",
    "doctor": "doctor",
    "engine": "engine",
    "rehearse": "rehearse",
    "bring-up": "bring_up",
    "up": "up",
    "status": "status",
    "logs": "logs",
    "down": "down",
    "restart": "restart",
    "releases": "releases",
    "rollback": "rollback",
    "supervise": "supervise",
    "diagnose": "diagnose",
    "bundle": "bundle",
    "verify": "verify",
    "bench": "bench",
    "top": "top",
    "metrics": "metrics",
    "quality": "quality",
    "golive": "golive",
    "batch": "batch",
    "web": "web",
    "gateway": "gateway",
    "keys": "keys",
    "usage": "usage",
    "demo": "demo",
    "completion": "completion",
    "dev": "dev",
}


class StoryGroup(click.Group):
    """Lists the commands in the order they are used in, and imports one only when it is needed."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Names of the commands, in order."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"heavylift.cli.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line per command from the catalogue, without importing any of them."""
        with formatter.section(text("help.commands")):
            formatter.write_dl([(name, text(f"help.{name}")) for name in COMMANDS])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a suggestion when the name is nearly one of ours."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if close:
                ctx.fail(text("usage.command_suggestion", name=args[0], suggestion=close[0]))
        return super().resolve_command(ctx, args)


def _known_language(_ctx: click.Context, _option: click.Parameter, tag: str | None) -> None:
    """The language was chosen before anything was loaded; here it is refused when there is none."""
    if tag is not None and catalogue.normalised(tag) is None:
        known = ", ".join(language.replace("_", "-") for language in catalogue.LANGUAGES)
        raise click.BadParameter(text("usage.lang", tag=tag, known=known))


@click.group(
    cls=StoryGroup,
    help=text("help.heavylift"),
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="heavylift", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help=text("help.debug"))
@click.option("--lang", callback=_known_language, expose_value=False, help=text("help.lang"))
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """The root: holds what all commands share."""
    ctx.obj = {"debug": debug}


def main(args: list[str] | None = None) -> Any:
    """Run the command line and exit with the project's statuses, never with a traceback."""
    from heavylift.cli.errors import run

    return run(cli, args)
