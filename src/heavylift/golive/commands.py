"""Commands of points, for one deployment: words filled in and quoted, never a line of shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Final

PROGRAM: Final = "heavylift"
_WORD: Final = re.compile(r"\{([a-z_]+)\}")


def first(templates: Iterable[str], words: Mapping[str, str]) -> str | None:
    """The first command all of whose `{words}` are known, with the program before it; None when
    there is none.
    """
    for template in templates:
        if needed(template) <= words.keys():
            return shlex.join([PROGRAM, *filled(template, words)])
    return None


def filled(template: str, words: Mapping[str, str]) -> list[str]:
    """The words of a command. A value with spaces stays one word."""
    return [_WORD.sub(lambda found: words[found[1]], part) for part in template.split()]


def needed(template: str) -> frozenset[str]:
    """The names that a command needs."""
    return frozenset(_WORD.findall(template))
