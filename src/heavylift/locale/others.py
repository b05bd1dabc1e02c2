"""Known sentences that reach the edge as English words, in the language in use.

Two kinds: what the operating system and libraries say at the end of an error (`No such file or
directory`), and what a check of a kept report saw. The catalogue has them word for word, and they
are found by their English text; any other is shown as it was said.
"""

from __future__ import annotations

import functools
import re
import string
from typing import Final

from heavylift.locale import catalogue

OTHERS: Final = "others"
EVIDENCE: Final = "evidence"

_NESTED: Final = "rest"
_WHOLE: Final = frozenset({_NESTED, "line"})
_CLAUSE: Final = "; "
# The code of what was wrong stands before the words.
_CODE: Final = re.compile(r"([a-z][a-z0-9_]*): (.+)", re.DOTALL)


def others(words: str) -> str:
    """The words of another in the language in use, where the catalogue has them."""
    return words if catalogue.current() == catalogue.ENGLISH else _known(OTHERS, words) or words


def evidence(words: str) -> str:
    """What a check saw, in the language in use; what a model or a server said stays as it came."""
    if catalogue.current() == catalogue.ENGLISH:
        return words
    whole = _known(EVIDENCE, words)
    if whole is not None:
        return whole
    clauses = words.split(_CLAUSE)
    said = [_known(EVIDENCE, clause) for clause in clauses]
    if any(said):
        parts = (known or clause for known, clause in zip(said, clauses, strict=True))
        joined = catalogue.template("list.clauses")
        return functools.reduce(lambda first, rest: joined.format(first=first, rest=rest), parts)
    coded = _CODE.fullmatch(words)
    return words if coded is None else f"{coded[1]}: {evidence(coded[2])}"


def _known(area: str, words: str) -> str | None:
    for key, pattern in _patterns(area):
        found = pattern.fullmatch(words)
        if found is not None:
            filled = {
                name: evidence(value) if name == _NESTED else value
                for name, value in found.groupdict().items()
            }
            return catalogue.template(key).format(**filled).strip()
    return None


@functools.cache
def _patterns(area: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (key, re.compile("".join(map(_piece, string.Formatter().parse(english))), re.DOTALL))
        for key, english in catalogue.entries(area).items()
    )


def _piece(parsed: tuple[str, str | None, str | None, str | None]) -> str:
    literal, name, _, _ = parsed
    if not name:
        return re.escape(literal)
    # Only what is taken apart again reaches over clauses.
    sign = "." if name in _WHOLE else f"(?:(?!{_CLAUSE}).)"
    return f"{re.escape(literal)}(?P<{name}>{sign}*?)"
