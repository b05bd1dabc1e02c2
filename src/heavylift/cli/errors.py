"""From a failure to a sentence and an exit status: the edge where codes become text."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from typing import NoReturn

import click

from heavylift.cli import codes
from heavylift.cli.click_words import tidied
from heavylift.cli.output import JsonSink, tell, wording
from heavylift.cli.text import labelled, printable, sentence, text
from heavylift.errors import Exit, HeavyliftError

__all__ = ["document", "prepare_streams", "run", "sentence", "show"]


def run(command: click.Command, args: list[str] | None = None) -> NoReturn:
    """Run `command` and leave the process. A traceback is shown only with `--debug`."""
    arguments = sys.argv[1:] if args is None else args
    prepare_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Ended from outside, a command cleans up as it does after Ctrl-C.
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(_status(command, arguments))
    except BrokenPipeError:
        # The reader (head, less) left; there is nobody to tell. Point stdout elsewhere so that
        # the interpreter's own flush at exit does not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.OK)


def _status(command: click.Command, arguments: list[str]) -> int:
    """The exit status of one run, after whatever there is to say has been said."""
    debug = "--debug" in arguments
    documents = JsonSink.documents
    try:
        result = command.main(arguments, prog_name="heavylift", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo(text("usage.interrupted"), err=True)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        failure = _failure(error, arguments)
        status = error.exit_code if isinstance(error, click.ClickException) else failure.exit_status
        if _wants_json(arguments) and JsonSink.documents == documents:
            sys.stdout.write(document(failure, status) + "\n")
            sys.stdout.flush()
        if isinstance(error, click.ClickException):
            _show_mistake(error)
        elif debug:
            raise
        else:
            show(failure)
        return status
    return result if isinstance(result, int) else Exit.OK


def _wants_json(arguments: list[str]) -> bool:
    """True when a program reads: `--json` stands among the options, wherever that is."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


def document(error: HeavyliftError, status: int) -> str:
    """An error as the one JSON object that a program gets in place of a result."""
    with wording(as_json=True):
        message = sentence(error)
    fields = {
        "code": error.code,
        "params": error.params,
        "message": message,
        "hint_command": error.hint_command,
        "docs_command": codes.lookup(error.doc_anchor),
        "exit_status": int(status),
    }
    return json.dumps({"error": fields}, indent=2, default=str)


def prepare_streams() -> None:
    """Make the standard streams usable whatever they are: closed, or unable to show a character.

    A closed stream is written to nowhere; what an encoding lacks becomes a question mark.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _failure(error: Exception, arguments: list[str]) -> HeavyliftError:
    """What went wrong as an error with a code, also where nobody foresaw it."""
    if isinstance(error, HeavyliftError):
        return error
    if isinstance(error, click.ClickException):
        return HeavyliftError("USE000", {"detail": error.format_message()})
    if isinstance(error, OSError) and error.errno is not None:
        return HeavyliftError("ENV001", {"reason": error.strerror or str(error)})
    words = [
        word
        for before, word in zip(["", *arguments], arguments, strict=False)
        if before != "--lang" and not word.startswith("-")
    ]
    named = next(iter(words), "COMMAND")
    told = {"kind": type(error).__name__, "reason": str(error)[:200], "command": named}
    return HeavyliftError("INT001", told)


def _show_mistake(error: click.ClickException) -> None:
    """Write what was typed wrong, as click puts it."""
    written = io.StringIO()
    error.show(written)
    for line in tidied(written.getvalue()).splitlines():
        tell(line)


def show(error: HeavyliftError) -> None:
    """Write an error: code and sentence, every defect where there are several, where more is said,
    then the hint.
    """
    tell(f"error[{error.code}]: {sentence(error)}")
    for defect in getattr(error, "defects", ())[:20]:
        problem = text(f"defect.{defect.problem}", detail=defect.detail)
        tell("  " + text("label", name=printable(defect.path), words=problem))
    click.echo(labelled("docs", codes.lookup(error.doc_anchor)), err=True)
    if error.hint_command:
        click.echo(f"\n{labelled('hint', error.hint_command)}", err=True)
