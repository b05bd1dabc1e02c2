"""Structured output: which answers match, and what is said of those that do not."""

from __future__ import annotations

import pytest

from heavylift.batch.schema import asked_by, checker
from heavylift.errors import HeavyliftError

SCHEMA = {
    "type": "object",
    "required": ["sum"],
    "properties": {"sum": {"type": "integer", "minimum": 0}},
}


@pytest.mark.parametrize(
    ("answer", "defect"),
    [
        ('{"sum": 4}', None),
        ('{"sum": -1}', "$.sum: -1 is less than the minimum of 0"),
        ("{}", "$: 'sum' is a required property"),
        ('The sum is {"sum": 4}', "not JSON: "),
        ("", "not JSON: "),
    ],
)
def test_an_answer_matches_or_its_defects_are_named(answer: str, defect: str | None) -> None:
    """With the path of each, in words that a model can act on."""
    found = checker(SCHEMA)(answer)
    assert found is None if defect is None else (found or "").startswith(defect)


def test_a_schema_that_is_none_is_refused() -> None:
    """Before anything is sent."""
    with pytest.raises(HeavyliftError, match="BAT005"):
        checker({"type": "objekt"})


@pytest.mark.parametrize(
    ("wanted", "schema"),
    [
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}, SCHEMA),
        ({"type": "json_schema"}, None),
        ({"type": "json_object"}, None),
        (None, None),
    ],
)
def test_a_row_may_bring_its_own_schema(wanted: object, schema: object) -> None:
    """In the field that the protocol has for it."""
    assert asked_by({"response_format": wanted}) == schema
