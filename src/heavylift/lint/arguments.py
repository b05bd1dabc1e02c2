"""The words after a command's name, as options and positional arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from heavylift.lint.command import Option, Span
from heavylift.lint.words import Word
from heavylift.recipe.flags import FlagTable, Found

_NUMBER: Final = re.compile(r"-\d+(?:\.\d+)?")
_GLUED: Final = re.compile(r"(--[a-z][a-z_-]*[a-z])(/.+|:.+|\d.*)")
_CLUSTER: Final = re.compile(r"-[a-zA-Z]{2,4}")
_SHORT_GLUED: Final = re.compile(r"(-[a-zA-Z])([^-=].*)")


def is_flag(text: str) -> bool:
    """True for a word that is a flag rather than a value."""
    return len(text) > 1 and text.startswith("-") and not _NUMBER.fullmatch(text)


def options(
    words: Iterable[Word], table: FlagTable | None, *, stop_at_positional: bool = False
) -> tuple[tuple[Option, ...], tuple[Word, ...]]:
    """Options and positional words. With `stop_at_positional` everything from the first positional
    word on is positional, as with a program that runs another.
    """
    given = list(words)
    found: list[Option] = []
    rest: list[Word] = []
    at = 0
    while at < len(given):
        word = given[at]
        at += 1
        if word.text == "--":
            parted = _parted(given, at, table)
            if parted is None:
                rest += given[at:]
                break
            option, used = parted
            found.append(replace(option, at=_span(given[at - 1 : at + used])))
            at += used
            continue
        if not is_flag(word.text):
            rest.append(word)
            if stop_at_positional:
                rest += given[at:]
                break
            continue
        option, used = _option(given, at, table)
        found.append(replace(option, at=_span(given[at - 1 : at + used])))
        at += used
    return tuple(found), tuple(rest)


def _span(words: Sequence[Word]) -> Span | None:
    """Where words stand that follow each other; None where one is not in the text itself."""
    first, last = words[0].at, words[-1].at
    if first is None or last is None or last[0] < first[0]:
        return None
    return first[0], last[1]


def _parted(given: list[Word], at: int, table: FlagTable | None) -> tuple[Option, int] | None:
    """`-- flag value`: a known flag whose dashes stand apart; None where it is no such thing."""
    if at >= len(given) or table is None or is_flag(given[at].text):
        return None
    joined = replace(given[at], text=f"--{given[at].text}")
    if table.flag(joined.text.partition("=")[0]) is None:
        return None
    option, used = _option([*given[:at], joined, *given[at + 1 :]], at + 1, table)
    return replace(option, slip="parted"), used + 1


def _option(given: list[Word], at: int, table: FlagTable | None) -> tuple[Option, int]:
    """The option whose flag is the word before `at`, and how many words its value takes."""
    word = given[at - 1]
    name, equals, joined = word.text.partition("=")
    found = table.flag(name) if table is not None else None
    slip = "one_element" if word.in_one else None
    glued = _GLUED.fullmatch(word.text) if found is None else None
    if glued and (glued[2].startswith("/") or (table and table.flag(glued[1]))):
        # `--device/dev/kfd`: the space, or the equals sign, was lost.
        name, value = glued[1], glued[2].lstrip(":")
        return _made(word, name, table.flag(name) if table else None, value, slip="no_space"), 0
    if found is None and not equals and (short := _SHORT_GLUED.fullmatch(name)):
        known = table.flag(short[1]) if table is not None else None
        if known is not None and known.facts.takes_value:
            return _made(word, short[1], known, short[2]), 0
    if equals:
        return _made(word, name, found, joined, slip=slip, joined=True), 0
    count = _values(name, found, given, at)
    if count == 0:
        return _made(word, name, found, None, slip=slip), 0
    taken = given[at : at + count]
    value = " ".join(each.text for each in taken)
    loose = any(each.loose_json for each in taken)
    return _made(word, name, found, value, slip=slip, loose=loose), count


def _values(flag: str, found: Found | None, given: list[Word], at: int) -> int:
    """How many of the words from `at` on are the flag's values."""
    many = found is not None and found.facts.type == "list"
    run = 0
    for word in given[at:] if many else given[at : at + 1]:
        if is_flag(word.text) and not word.quoted:
            break
        run += 1
    if found is None:
        # An unknown flag has at most one value; letters in a row (`-avP`) are switches.
        return 0 if _CLUSTER.fullmatch(flag) else min(run, 1)
    if found.facts.type == "list":
        return run
    if not found.facts.takes_value or found.negated:
        return 0
    return min(run, 1)


def _made(
    word: Word,
    name: str,
    found: Found | None,
    value: str | None,
    *,
    slip: str | None = None,
    joined: bool = False,
    loose: bool = False,
) -> Option:
    dotted = found is not None and any("." in each for each in found.facts.aliases)
    member = name.split(".", 1)[1] if found is not None and "." in name and not dotted else None
    return Option(
        written=name,
        name=found.name if found is not None else name,
        value=value,
        member=member,
        found=found,
        joined=joined,
        loose_json=loose or word.loose_json,
        slip=slip,
    )
