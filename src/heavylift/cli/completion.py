"""`heavylift completion`: the script that lets a shell complete our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from heavylift.cli.text import text

_SHELLS = ("bash", "zsh", "fish")
_PLACES = """\b
~/.bashrc  eval "$(heavylift completion bash)"
~/.zshrc   autoload -U compinit && compinit
           eval "$(heavylift completion zsh)"
fish       heavylift completion fish > ~/.config/fish/completions/heavylift.fish"""


@click.command(
    help=f"{text('help.completion.long')}\n\n{_PLACES}", short_help=text("help.completion")
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Write the script to standard output."""
    made = get_completion_class(shell)
    if made is None:
        raise click.BadParameter(shell)
    root = ctx.find_root()
    script = made(root.command, {}, "heavylift", "_HEAVYLIFT_COMPLETE")
    click.echo(script.source_template % script.source_vars())
