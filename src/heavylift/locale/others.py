"""Known sentences of the operating system and of libraries in the language in use.

An error often ends in what another said (`No such file or directory`). Sentences that a person meets
again and again are in the catalogue, word for word, and found by their English text; any other is
shown as it was said.
"""

from __future__ import annotations

import functools
import re
import string
from typing import Final

from heavylift.locale import catalogue

AREA: Final = "others"


def others(words: str) -> str:
    """The words of another in the language in use, where the catalogue has them."""
    if catalogue.current() == catalogue.ENGLISH:
        return words
    for key, pattern in _patterns():
        found = pattern.fullmatch(words)
        if found is not None:
            return catalogue.template(key).format(**found.groupdict())
    return words


@functools.cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (key, re.compile("".join(map(_piece, string.Formatter().parse(english)))))
        for key, english in catalogue.entries(AREA).items()
    )


def _piece(parsed: tuple[str, str | None, str | None, str | None]) -> str:
    literal, name, _, _ = parsed
    return re.escape(literal) + (f"(?P<{name}>.+?)" if name else "")
