"""Tables and cells of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from heavylift.cli.text import of_facts, text
from heavylift.facts.schema import FactKind


def cell(value: object) -> str:
    """A value in a cell: what Markdown would take for its own is written out."""
    if value is None or value == "":
        return "–"
    words = str(value).replace("\n", " ")
    for mark, written in (("&", "&amp;"), ("<", "&lt;"), ("|", "&#124;"), ("*", "&#42;")):
        words = words.replace(mark, written)
    return words.replace("_", "&#95;") if "__" in words else words


def code(value: object) -> str:
    """A word that is typed or read by machines."""
    return f"`{value}`".replace("|", "\\|")


def table(key: str, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table; the catalogue has its columns under `key`, parted by `|`."""
    columns = [name.strip() for name in text(key).split("|")]
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def source(identifier: str) -> str:
    """A source as a link to its line on the page of sources beside this one."""
    return f"[{identifier}](sources.md#{identifier})"


def kind(value: FactKind) -> str:
    """What a value rests on, in words."""
    return text(f"kind.{value}")


def day(value: date) -> str:
    """A day as it is written everywhere."""
    return value.isoformat()


def note(words: str | None) -> str:
    """A remark of the facts in the language in use."""
    return cell(of_facts(words) if words else None)
