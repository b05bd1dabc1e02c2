"""The conditions of rules: `tensor > 1`, `kv_dtype ~ fp8*`, `!draft_method`, `$NAME = 1|true`.

A name stands for the values a command gives it, none or several; a condition on values holds when
one of them meets it. `name` alone: it is there and not switched off. `!name`: it is not there at
all. `=` one of the alternatives; `!=` there is no such value; `~` one of the patterns; `<` `<=` `>`
`>=` compare numbers, and hold for no text that is not one.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from heavylift.lint.command import FALSE

Values = Callable[[str], tuple[str, ...]]
"""The values a command gives a name."""

_CONDITION: Final = re.compile(r"(!?)\s*([^\s!<>=~]+)\s*(?:(>=|<=|!=|=|<|>|~)\s*(.+))?")
_NUMBER: Final = re.compile(r"([\d_]+(?:\.\d+)?(?:e\d{1,2})?)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_SCALE: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class ConditionError(ValueError):
    """A condition that cannot be read."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, taken apart."""

    name: str
    operator: str = ""
    wanted: str = ""
    absent: bool = False

    def holds(self, values: Values) -> bool:
        """True when the command's values meet it."""
        given = values(self.name)
        if self.absent:
            return not given
        if not self.operator:
            return any(value.lower() != FALSE for value in given)
        alternatives = [each.strip().lower() for each in self.wanted.split("|")]
        lowered = [value.lower() for value in given]
        if self.operator == "=":
            return any(value in alternatives for value in lowered)
        if self.operator == "!=":
            return not any(value in alternatives for value in lowered)
        if self.operator == "~":
            return any(
                fnmatch.fnmatchcase(value, each) for value in lowered for each in alternatives
            )
        return any(self._compares(value) for value in lowered)

    def _compares(self, value: str) -> bool:
        have, bound = number(value), number(self.wanted)
        if have is None or bound is None:
            return False
        return {
            "<": have < bound,
            "<=": have <= bound,
            ">": have > bound,
            ">=": have >= bound,
        }[self.operator]


@cache
def parse(text: str) -> Condition:
    """A condition from its text. Raises ConditionError."""
    match = _CONDITION.fullmatch(text.strip())
    if match is None or (match[1] and match[3]):
        raise ConditionError(text)
    return Condition(match[2], match[3] or "", (match[4] or "").strip(), bool(match[1]))


def number(text: str) -> float | None:
    """A number with an optional k, M or G (powers of 1024); None for anything else."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    try:
        value = float(match[1].replace("_", "")) * _SCALE[match[2].lower()]
    except ValueError:  # underscores alone
        return None
    return value if math.isfinite(value) else None
