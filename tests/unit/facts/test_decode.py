"""From TOML tables to records, and what is said of tables that are not right."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

import pytest

from heavylift.facts.decode import Decoder
from heavylift.facts.defects import Defect
from heavylift.facts.schema import Fact, FactKind, Rule


class Colour(StrEnum):
    """A choice of two."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A nested table."""

    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One field of every kind the decoder reads."""

    name: str
    share: float
    colour: Colour
    part: Part
    mixed: int | str
    fact: Fact[float] | None
    maybe: int | None
    list_of_parts: tuple[Part, ...] = ()
    table: dict[str, int] | None = None
    count: int = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRule(Rule):
    """A rule with one field."""

    limit: int


SOUND: dict[str, Any] = {
    "name": "n",
    "share": 0.5,
    "colour": "red",
    "part": {"size": 1},
    "mixed": "width*2",
    "fact": {
        "value": 1.5,
        "unit": "TB/s",
        "kind": "spec",
        "source": "maker",
        "as_of": date(2026, 1, 1),
    },
}
PROVENANCE = {"kind": "spec", "source": "maker", "as_of": date(2026, 1, 1)}


def _decode(table: dict[str, Any], cls: type = Sample) -> tuple[Any, list[Defect]]:
    decoder = Decoder("file.toml", frozenset({"maker"}))
    return decoder.record(cls, table), decoder.defects


def test_a_sound_table_becomes_a_record_with_its_defaults() -> None:
    """Fields that may be absent take their default; an optional one without a default is None."""
    record, defects = _decode(SOUND)
    assert defects == []
    assert record == Sample(
        name="n",
        share=0.5,
        colour=Colour.RED,
        part=Part(size=1),
        mixed="width*2",
        fact=Fact(
            value=1.5,
            unit="TB/s",
            kind=FactKind.SPEC,
            source="maker",
            as_of=date(2026, 1, 1),
        ),
        maybe=None,
    )
    assert record.count == 3


def test_lists_and_tables_of_values_are_read_through() -> None:
    """Lists become tuples of records, tables keep their keys, whole numbers pass as fractions."""
    table = {
        **SOUND,
        "share": 1,
        "list_of_parts": [{"size": 1}, {"size": 2}],
        "table": {"a": 1, "provenance": PROVENANCE},
        "mixed": 7,
        "maybe": 4,
        "count": 5,
    }
    record, defects = _decode(table)
    assert defects == []
    assert record.list_of_parts == (Part(size=1), Part(size=2))
    assert record.table == {"a": 1}
    assert (record.share, record.mixed, record.maybe, record.count) == (1.0, 7, 4, 5)


@pytest.mark.parametrize(
    ("change", "path", "problem", "detail"),
    [
        ({"name": 1}, "name", "wrong_type", "str: 1"),
        ({"share": True}, "share", "wrong_type", "float: True"),
        ({"count": True}, "count", "wrong_type", "int: True"),
        ({"count": 1.5}, "count", "wrong_type", "int: 1.5"),
        ({"mixed": True}, "mixed", "wrong_type", "int or str: True"),
        ({"colour": "green"}, "colour", "not_one_of", "red, blue"),
        ({"part": 1}, "part", "wrong_type", "table: 1"),
        ({"part": {}}, "part.size", "missing", ""),
        ({"part": {"size": "x"}}, "part.size", "wrong_type", "int: 'x'"),
        ({"list_of_parts": {}}, "list_of_parts", "wrong_type", "list: {}"),
        ({"list_of_parts": [{"size": 1}, 2]}, "list_of_parts[1]", "wrong_type", "table: 2"),
        ({"table": [1]}, "table", "wrong_type", "table: [1]"),
        ({"table": {"a": "b"}}, "table.a", "wrong_type", "int: 'b'"),
        ({"fact": 3}, "fact", "wrong_type", "fact table {value, unit, …}: 3"),
        ({"naem": "n"}, "naem", "unknown_key", ""),
        ({"provenance": "maker"}, "provenance", "wrong_type", "table: 'maker'"),
        ({"provenance": {**PROVENANCE, "note": "n"}}, "provenance.note", "unknown_key", ""),
    ],
)
def test_a_defect_is_named_by_path_and_kind(
    change: dict[str, Any], path: str, problem: str, detail: str
) -> None:
    """Each wrong part is reported under its own path with what was expected."""
    record, defects = _decode({**SOUND, **change})
    assert defects == [Defect(f"file.toml: {path}", problem, detail)]
    assert (record is None) == (problem != "unknown_key" and path != "provenance")


def test_a_missing_required_field_is_a_defect() -> None:
    """No silent default for a field the schema requires."""
    table = {key: value for key, value in SOUND.items() if key != "name"}
    record, defects = _decode(table)
    assert record is None
    assert defects == [Defect("file.toml: name", "missing")]


@pytest.mark.parametrize("part", ["value", "unit", "kind", "source", "as_of"])
def test_a_fact_without_one_of_its_parts_is_a_defect(part: str) -> None:
    """A value needs unit, kind, source and date, from itself or from the tables around it."""
    fact = {key: value for key, value in SOUND["fact"].items() if key != part}
    record, defects = _decode({**SOUND, "fact": fact})
    assert record is None
    assert defects == [Defect(f"file.toml: fact.{part}", "missing")]


@pytest.mark.parametrize(
    ("part", "value", "problem", "detail"),
    [
        ("value", "x", "wrong_type", "float: 'x'"),
        ("unit", 1, "wrong_type", "str: 1"),
        ("kind", "guess", "not_one_of", "spec, measured, reported, derived, assumed"),
        ("source", 1, "wrong_type", "str: 1"),
        ("as_of", "2026-01-01", "wrong_type", "date: '2026-01-01'"),
        ("note", 1, "wrong_type", "str: 1"),
        ("unti", "GB", "unknown_key", ""),
        ("source", "hearsay", "unknown_source", "hearsay"),
    ],
)
def test_a_wrong_part_of_a_fact_is_a_defect(
    part: str, value: Any, problem: str, detail: str
) -> None:
    """Every part of a fact is typed, and its source must be a known one."""
    _, defects = _decode({**SOUND, "fact": {**SOUND["fact"], part: value}})
    where = "fact.source" if problem == "unknown_source" else f"fact.{part}"
    assert defects == [Defect(f"file.toml: {where}", problem, detail)]


def test_provenance_is_inherited_and_the_nearest_statement_wins() -> None:
    """A fact takes what it does not say from the table around it, but never that table's note."""
    fact = {"value": 2.0, "unit": "W", "kind": "measured", "note": "own"}
    record, defects = _decode({**SOUND, "provenance": PROVENANCE, "fact": fact})
    assert defects == []
    assert record.fact == Fact(
        value=2.0,
        unit="W",
        kind=FactKind.MEASURED,
        source="maker",
        as_of=date(2026, 1, 1),
        note="own",
    )


def test_a_rule_takes_the_provenance_around_it() -> None:
    """A rule states its provenance itself or takes it from the file; its source must be known."""
    record, defects = _decode({"limit": 1, "provenance": PROVENANCE}, SampleRule)
    assert defects == []
    assert (record.kind, record.source, record.since) == (FactKind.SPEC, "maker", None)
    own, _ = _decode({"limit": 1, "provenance": PROVENANCE, "kind": "assumed"}, SampleRule)
    assert own.kind is FactKind.ASSUMED
    _, unknown = _decode({"limit": 1, **PROVENANCE, "source": "hearsay"}, SampleRule)
    assert unknown == [Defect("file.toml: source", "unknown_source", "hearsay")]
    nothing, missing = _decode({"limit": 1}, SampleRule)
    assert nothing is None
    assert [defect.path for defect in missing] == [
        "file.toml: kind",
        "file.toml: source",
        "file.toml: as_of",
    ]


def test_all_defects_of_a_table_are_reported_at_once() -> None:
    """The decoder goes on after a defect."""
    _, defects = _decode({"name": 1, "colour": "green", "part": {"size": "x"}, "extra": 0})
    assert [(defect.path, defect.problem) for defect in defects] == [
        ("file.toml: extra", "unknown_key"),
        ("file.toml: name", "wrong_type"),
        ("file.toml: share", "missing"),
        ("file.toml: colour", "not_one_of"),
        ("file.toml: part.size", "wrong_type"),
        ("file.toml: mixed", "missing"),
    ]


def test_given_fields_need_not_stand_in_the_table() -> None:
    """The id of a thing is its file name and is handed in."""
    decoder = Decoder("file.toml", sources=None)
    assert decoder.record(Part, {}, given={"size": 9}) == Part(size=9)
    assert decoder.defects == []


def test_sources_are_not_checked_where_there_are_none_to_check_against() -> None:
    """The sources file itself is read before any source is known."""
    decoder = Decoder("sources.toml", sources=None)
    record = decoder.record(SampleRule, {"limit": 1, **PROVENANCE, "source": "hearsay"})
    assert record is not None
    assert decoder.defects == []
