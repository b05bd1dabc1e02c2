"""The language of the rules' conditions."""

from __future__ import annotations

import pytest

from heavylift.lint.conditions import ConditionError, number, parse
from heavylift.linting import Linting

GIVEN = {"tensor": ("8",), "kv": ("fp8_e4m3",), "off": ("false",), "tags": ("a", "b"), "k": ("2k",)}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("tensor", True),
        ("off", False),
        ("nothing", False),
        ("!nothing", True),
        ("!tensor", False),
        ("!off", False),
        ("tensor = 8", True),
        ("tensor = 4|8", True),
        ("tensor = 4", False),
        ("tags = b", True),
        ("tags != c", True),
        ("tags != a", False),
        ("nothing != a", True),
        ("kv ~ fp8*", True),
        ("kv ~ bf*|*e5*", False),
        ("tensor > 7", True),
        ("tensor >= 8", True),
        ("tensor < 8", False),
        ("tensor <= 8", True),
        ("k > 2000", True),
        ("kv > 1", False),
        ("nothing > 1", False),
        ("off = FALSE", True),
    ],
)
def test_condition(condition: str, holds: bool) -> None:
    """Each operator, on one value, several, none and a switch that is off."""
    assert parse(condition).holds(lambda name: GIVEN.get(name, ())) is holds


@pytest.mark.parametrize("text", ["_", "__k", "1.2.3", "9" * 400, "much", ""])
def test_what_only_looks_like_a_number_is_none(text: str) -> None:
    """Underscores alone, two points, more than a float holds: none of them ends the linter."""
    assert number(text) is None


@pytest.mark.parametrize("text", ["", "a b", "!a = 1", "= 1", "a ="])
def test_a_condition_that_cannot_be_read(text: str) -> None:
    """Anything else is refused, so that a misspelt rule cannot pass for one that never holds."""
    with pytest.raises(ConditionError):
        parse(text)


def test_every_condition_of_the_files_can_be_read(linting: Linting) -> None:
    """Every condition of every rule is in the language."""
    for rule in linting.library.rules:
        for condition in (*rule.when, *rule.unless):
            parse(condition)


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("0.9", 0.9), ("1M", 2**20), ("2k", 2048), ("x", None), ("", None)],
)
def test_number(text: str, value: float | None) -> None:
    """Numbers may carry k, M or G; nothing else is one."""
    assert number(text) == value
