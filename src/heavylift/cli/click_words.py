"""The words of click in the language in use, and its help in lines that are counted in cells.

click asks `gettext` for its words, in a domain that is the whole process's. Here the functions it
asks are replaced, in the modules that said `from gettext import …`. What stands for a value and the
names of types are no words of its gettext: these are replaced where click makes them.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from typing import Any, Final

import click
from click import formatting, types, unstyle
from rich.cells import cell_len

from heavylift.cli.cells import wrap
from heavylift.locale import catalogue
from heavylift.locale.text import keys

AREA: Final = "click"

_MODULES: Final = ("core", "decorators", "exceptions", "formatting", "parser", "types")

_METAVAR: Final = "metavar."
# A word that stands for a value. `RANGE` only says that there are bounds: they are shown beside it.
_VALUE: Final = re.compile(r"\b([A-Z][A-Z_]*)(?: RANGE)?\b")
_TYPES: Final = {
    "StringParamType": "text",
    "UnprocessedParamType": "text",
    "IntParamType": "integer",
    "IntRange": "integer",
    "FloatParamType": "float",
    "FloatRange": "float",
    "BoolParamType": "boolean",
    "File": "filename",
}

_wrap_text: Final = formatting.wrap_text
_argument_metavar: Final = click.Argument.make_metavar
_option_metavar: Final = click.Parameter.make_metavar


class Formatter(click.HelpFormatter):
    """Headings and usage with the colon of the language, and its words for values."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """The line of usage."""
        begin = _tight(f"{said('Usage:')} ") if prefix is None else prefix
        super().write_usage(prog, metavar(args), begin)

    def write_heading(self, heading: str) -> None:
        """A heading and its colon."""
        head = catalogue.template("label").format(name=heading, words="").rstrip()
        self.write(f"{'':>{self.current_indent}}{head}\n")


def install() -> None:
    """Let click speak through the catalogue. In English it says what it always did."""
    replaced: dict[str, Callable[..., Any]] = {"_": said, "ngettext": _said_of_many}
    for name in _MODULES:
        module = importlib.import_module(f"click.{name}")
        for function, ours in replaced.items():
            if hasattr(module, function):
                setattr(module, function, ours)
    formatting.wrap_text = _wrapped
    vars(formatting)["term_len"] = _cells
    click.Context.formatter_class = Formatter
    setattr(click.Parameter, "make_metavar", _worded(_option_metavar))  # noqa: B010 - for mypy
    setattr(click.Argument, "make_metavar", _worded(_argument_metavar))  # noqa: B010
    for name, english in _TYPES.items():
        setattr(getattr(types, name), "name", property(_named(english)))  # noqa: B010


def metavar(words: str) -> str:
    """What stands for values, in the language in use; what is no such word as it is."""
    if catalogue.current() == catalogue.ENGLISH:
        return words
    return _VALUE.sub(_value, words)


def _value(found: re.Match[str]) -> str:
    key = f"{_METAVAR}{found[1]}"
    return catalogue.template(key) if key in _metavars() else found[0]


@functools.cache
def _metavars() -> frozenset[str]:
    return frozenset(key for key in keys() if key.startswith(_METAVAR))


def _worded(original: Callable[..., str]) -> Callable[..., str]:
    def make_metavar(self: click.Parameter, *context: Any, **named: Any) -> str:
        return metavar(original(self, *context, **named))

    return make_metavar


def _named(english: str) -> Callable[[Any], str]:
    return lambda _type: said(english)


def tidied(message: str) -> str:
    """A message that click put together, with the punctuation of the language in use."""
    if catalogue.current() == catalogue.ENGLISH:
        return message
    return _tight(re.sub(r"(?<=[\u3400-\u9fff'\]])\.(?=\s|$)", "。", message))


def _tight(words: str) -> str:
    return re.sub(r"(?<=[，。；：！？]) +", "", words)


def said(message: str) -> str:
    """A text of click in the language in use; one that the catalogue does not have as it is."""
    key = _keys().get(message)
    return message if key is None else catalogue.template(key)


def _said_of_many(one: str, many: str, count: int) -> str:
    return said(one if count == 1 else many)


@functools.cache
def _keys() -> dict[str, str]:
    return {english: key for key, english in catalogue.entries(AREA).items()}


def _cells(words: str) -> int:
    return cell_len(unstyle(words))


def _wrapped(
    text: str,
    width: int = 78,
    initial_indent: str = "",
    subsequent_indent: str = "",
    preserve_paragraphs: bool = False,
) -> str:
    def paragraph(words: str) -> str:
        if words.isascii() or "\b" in words:
            return _wrap_text(words, width, initial_indent, subsequent_indent, preserve_paragraphs)
        folded = wrap(" ".join(words.split()), initial_indent, subsequent_indent, width=width)
        return "\n".join(folded)

    paragraphs = text.split("\n\n") if preserve_paragraphs else [text]
    return "\n\n".join(map(paragraph, paragraphs))
