"""The words of click in the language in use, and its help in lines that are counted in cells.

click asks `gettext` for its words, in a domain that is the whole process's. Here the functions it
asks are replaced, in the modules that said `from gettext import …`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

from click import formatting, unstyle
from rich.cells import cell_len

from heavylift.cli.cells import wrap
from heavylift.locale import catalogue

AREA: Final = "click"

_MODULES: Final = ("core", "decorators", "exceptions", "formatting", "parser", "types")

_wrap_text: Final = formatting.wrap_text


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
    if text.isascii() or "\b" in text:
        return _wrap_text(text, width, initial_indent, subsequent_indent, preserve_paragraphs)

    paragraphs = text.split("\n\n") if preserve_paragraphs else [text]
    return "\n\n".join(
        "\n".join(wrap(" ".join(each.split()), initial_indent, subsequent_indent, width=width))
        for each in paragraphs
    )
