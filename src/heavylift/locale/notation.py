"""Formulas in the language in use: numbers, operators and names stay, what is counted is a word.

A plan's formula is notation (`22 pages of 768 tokens × 24 layers × 884,736 B`), the same in every
language and in JSON. The words in it are the keys `notation.*` of the catalogue and no others: what
an engine's own rule computes with (`heads*v_head_dim`) are names.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from heavylift.locale import catalogue
from heavylift.locale.text import text

_AREA: Final = "notation"
_PREFIX: Final = "notation."
_NUMBER: Final = r"\d(?:[\d,.]*\d)?"
_PAIR: Final = "notation.of"
_DEFINED: Final = "page"


def units() -> tuple[str, ...]:
    """What formulas count, in English; the longer ones first."""
    found = (key.removeprefix(_PREFIX) for key in catalogue.entries(_AREA) if key != _PAIR)
    return tuple(sorted(found, key=lambda unit: (-len(unit), unit)))


def formula(notation: str) -> str:
    """A formula of a plan with its words in the language in use."""
    if catalogue.current() == catalogue.ENGLISH:
        return notation
    pair, unit, defined = _patterns()
    words = pair.sub(lambda found: _paired(*found.groups()), notation)
    words = unit.sub(lambda found: f"{found[1]} {_word(found[2])}", words)
    return defined.sub(_word(_DEFINED), words)


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    names = "|".join(map(re.escape, units()))
    return (
        re.compile(rf"({_NUMBER}) ({names}) of ({_NUMBER}) ({names})\b"),
        re.compile(rf"({_NUMBER}) ({names})\b"),
        re.compile(rf"^{_DEFINED}\b(?= =)"),
    )


def _paired(count: str, unit: str, each: str, part: str) -> str:
    return text(_PAIR, count=count, unit=_word(unit), each=each, part=_word(part))


def _word(unit: str) -> str:
    return text(f"{_PREFIX}{unit}")
