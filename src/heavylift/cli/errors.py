"""From a failure to a sentence and an exit status: the edge where codes become text."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError


def run(command: click.Command, args: list[str] | None = None) -> NoReturn:
    """Run `command` and leave the process. A traceback is shown only with `--debug`."""
    arguments = sys.argv[1:] if args is None else args
    try:
        result = command.main(arguments, prog_name="heavylift", standalone_mode=False)
    except HeavyliftError as error:
        if _debug(arguments):
            raise
        show(error)
        sys.exit(error.exit_status)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(Exit.USAGE)
    except click.UsageError as error:
        error.show()
        sys.exit(Exit.USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo(text("usage.interrupted"), err=True)
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, less) left; there is nobody to tell. Point stdout elsewhere so that
        # the interpreter's own flush at exit does not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.OK)
    sys.exit(result if isinstance(result, int) else Exit.OK)


def show(error: HeavyliftError) -> None:
    """Write an error: code and sentence, every defect where there are several, then the hint."""
    click.echo(f"error[{error.code}]: {_sentence(error)}", err=True)
    for defect in getattr(error, "defects", ())[:20]:
        problem = text(f"defect.{defect.problem}", detail=defect.detail)
        click.echo(f"  {defect.path}: {problem}", err=True)
    if error.hint_command:
        click.echo(f"\n{text('hint')}: {error.hint_command}", err=True)


def _sentence(error: HeavyliftError) -> str:
    """The error's text; for a refused layout the reason, for an unknown name the near ones."""
    params = dict(error.params)
    if "refusal" in params:
        params["why"] = text(f"refusal.{params['refusal']}", **error.params)
    sentence = text(f"error.{error.code}", **params)
    if error.params.get("suggestion"):
        return f"{sentence}; {text('error.suggestion', suggestion=error.params['suggestion'])}"
    if error.params.get("known"):
        return f"{sentence}; {text('error.known', known=error.params['known'])}"
    return sentence


def _debug(arguments: list[str]) -> bool:
    return "--debug" in arguments
