"""The only door to the terminal: the text sink and the JSON sink.

Data goes to standard output, everything else to standard error. Screens are 80 columns, without
right-hand borders, with a word beside every glyph, and plain when the output is not a terminal or
`NO_COLOR` is set.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

import click
import msgspec
from rich.console import Console
from rich.text import Text

from heavylift.cli import cells
from heavylift.cli.text import labelled, printable, text
from heavylift.locale import catalogue
from heavylift.records.sink import Sink

WIDTH: Final = cells.WIDTH

# record key -> module under heavylift.cli.screens whose `lines(record)` draws it
_SCREENS: Final = {
    "plan": "plan",
    "compare": "compare",
    "fit": "fit",
    "imported": "imported",
    "variants": "variants",
    "search": "search",
    "explain": "explain",
    "error_page": "error_page",
    "facts": "facts",
    "inspect": "inspect",
    "checksum": "checksum",
    "fetch": "fetch",
    "lint": "lint",
    "doctor": "doctor",
    "demo": "demo",
    "engine": "engine",
    "batch": "batch",
    "diagnosis": "diagnosis",
    "walk": "walk",
    "bundle": "bundle",
    "keys": "keys",
    "scenarios": "scenarios",
    "bad_servers": "bad_servers",
    "bench": "bench",
    "bench_compare": "bench_compare",
    "verify": "verify",
    "quality": "quality",
    "sparse_checkpoint": "sparse_checkpoint",
    "model_facts": "model_facts",
    "speed": "speed",
    "pd": "pd",
    "decide": "decide",
    "simulation": "simulation",
    "usage": "usage",
    "recipe": "recipe",
    "recipe_explained": "recipe_explained",
    "recipe_diff": "recipe_diff",
    "rehearsal": "rehearsal",
    "bring_up": "bring_up",
    "status": "status",
    "top": "top",
    "history": "history",
    "status_report": "status_report",
    "releases": "releases",
    "release_diff": "release_diff",
    "golive": "golive",
}

# Screens with commands to be copied: they fold their prose themselves, and no command.
_WITH_COMMANDS: Final = frozenset(
    {"recipe", "recipe_explained", "lint", "diagnosis", "walk", "golive"}
)

F = TypeVar("F", bound=Callable[..., Any])


def _plain(stream: Any) -> bool:
    return not stream.isatty() or "NO_COLOR" in os.environ


class _Console(Console):
    """A console that leaves a closed pipe to the caller: it is no failure of the command."""

    def on_broken_pipe(self) -> None:
        """Pass it on."""
        raise BrokenPipeError


def _console(stream: Any) -> Console:
    return _Console(
        file=stream,
        width=WIDTH,
        no_color=_plain(stream),
        force_terminal=False if _plain(stream) else None,
        highlight=False,
        emoji=False,
        soft_wrap=True,
    )


def _harmless(line: Text | str) -> Text:
    """A line of a screen; a stranger's words in it may not steer the terminal."""
    words = line.plain if isinstance(line, Text) else line
    shown = "\n".join(map(printable, words.split("\n")))
    return line if isinstance(line, Text) and shown == words else Text(shown)


def tell(words: str) -> None:
    """Write a line to standard error; at a terminal on lines of 80 cells.

    One that goes to a file or to a program stays whole, so that it can be searched.
    """
    lines = [words]
    if cells.cell_len(words) > WIDTH and sys.stderr.isatty():
        lines = list(cells.fold(words))
    for line in lines:
        click.echo(line, err=True)


def _folded(line: Text) -> list[Text]:
    """A line of a screen on lines of 80 cells, the later ones indented more than the first."""
    if all(cells.cell_len(part) <= WIDTH for part in line.plain.split("\n")):
        return [line]
    found: list[Text] = []
    for part in line.plain.split("\n"):
        found.extend(Text(each, style=line.style) for each in cells.fold(part))
    return found


def terminal() -> Console:
    """The console of a screen that is drawn again and again."""
    return _console(sys.stdout)


def drawn(key: str, record: Any) -> Text:
    """The screen of a record as one text, to be drawn over the one before."""
    screen = importlib.import_module(f"heavylift.cli.screens.{_SCREENS[key]}")
    return Text("\n").join(map(_harmless, screen.lines(record)))


class TextSink(Sink):
    """Draws records for a person."""

    def __init__(self) -> None:
        self._out = _console(sys.stdout)
        self._err = _console(sys.stderr)

    def record(self, key: str, record: Any) -> None:
        """Draw one record with the screen of its kind."""
        screen = importlib.import_module(f"heavylift.cli.screens.{_SCREENS[key]}")
        for line in screen.lines(record):
            shown = _harmless(line)
            for part in [shown] if key in _WITH_COMMANDS else _folded(shown):
                self._out.print(part)

    def note(self, key: str, **params: Any) -> None:
        """Write a remark to standard error."""
        self._told(text(key, **params))

    def step(self, key: str, **params: Any) -> None:
        """Write a finished step to standard error."""
        self._told(text(key, **params))

    def _told(self, words: str) -> None:
        shown = Text(words)
        for part in _folded(shown) if sys.stderr.isatty() else [shown]:
            self._err.print(part)

    def next_command(self, command: str) -> None:
        """Write the next command as the last line of the result."""
        self._out.print(_harmless(labelled("next", command)))


class JsonSink(Sink):
    """Writes the result as one JSON document and nothing else on standard output."""

    documents = 0
    """How many were written, by all sinks together."""

    def record(self, key: str, record: Any) -> None:  # noqa: ARG002 - the same for every kind
        """Write the record; fields are those of the record, in their order."""
        document = msgspec.json.format(msgspec.json.encode(record), indent=2)
        JsonSink.documents += 1
        sys.stdout.write(document.decode() + "\n")

    def note(self, key: str, **params: Any) -> None:
        """Write a remark to standard error."""
        click.echo(text(key, **params), err=True)

    def step(self, key: str, **params: Any) -> None:
        """Write a finished step to standard error."""
        click.echo(text(key, **params), err=True)

    def next_command(self, command: str) -> None:
        """Nothing: a program does not need to be told what to type."""


def sink(as_json: bool) -> Sink:
    """The sink a command writes to."""
    return JsonSink() if as_json else TextSink()


def wording(as_json: bool) -> AbstractContextManager[None]:
    """Inside the block words of a record are made: those of a JSON document are English."""
    return catalogue.spoken(catalogue.ENGLISH if as_json else catalogue.current())


def json_option(function: F) -> F:
    """Adds `--json` to a command; it arrives as `as_json`."""
    option = click.option("--json", "as_json", is_flag=True, help=text("help.json"))
    decorated: F = option(function)
    return decorated


@functools.cache
def glyphs() -> dict[str, str]:
    """The glyph of each status word; always shown with the word."""
    return {"ok": "✓", "info": "·", "warn": "!", "fail": "x", "unknown": "?"}
