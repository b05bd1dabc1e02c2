"""How often the right cause is named, on lines of real failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from heavylift.devserver.healthy_log import ENGINES, healthy_lines
from heavylift.records.diagnosis import Diagnosis

Diagnosed = Callable[[tuple[str, ...]], Diagnosis]


def _shares(cases: Sequence[Any], diagnosed: Diagnosed) -> tuple[float, float]:
    """How often the right class comes first, and among the first three."""
    first = third = 0
    for case in cases:
        named = [cause.cause_class for cause in diagnosed(case.lines).causes]
        first += named[:1] == [case.cause_class]
        third += case.cause_class in named[:3]
    return first / len(cases), third / len(cases)


def test_the_right_cause_comes_first(own: Sequence[Any], diagnosed: Diagnosed) -> None:
    """Nine of ten failing logs are answered with the right class, nearly all within three."""
    first, third = _shares(own, diagnosed)
    assert first >= 0.90
    assert third >= 0.95


@pytest.mark.shared
def test_the_right_cause_comes_first_in_the_reference_cases(
    shared: Sequence[Any], diagnosed: Diagnosed
) -> None:
    """The same on the reference cases as they are."""
    first, third = _shares(shared, diagnosed)
    assert first >= 0.90
    assert third >= 0.96


def test_a_long_log_with_consequences_changes_no_answer(
    own: Sequence[Any],
    diagnosed: Diagnosed,
    spliced: Callable[[Any], tuple[str, ...]],
) -> None:
    """A recognised cause stays first inside 20,000 healthy lines and between consequences."""
    changed = []
    recognised = 0
    for case in own:
        alone = diagnosed(case.lines)
        if not alone.recognised:
            continue
        recognised += 1
        inside = diagnosed(spliced(case))
        if inside.causes[0].cause_class != alone.causes[0].cause_class:
            changed.append(case.id)
    assert changed == []
    assert recognised >= 0.9 * len(own)


def test_the_evidence_is_the_line_of_the_long_log(
    own: Sequence[Any],
    diagnosed: Diagnosed,
    spliced: Callable[[Any], tuple[str, ...]],
) -> None:
    """The number of the evidence leads to the very line in the log it was found in."""
    for case in own[::10]:
        lines = spliced(case)
        for cause in diagnosed(lines).causes:
            assert cause.evidence.line in lines[cause.evidence.number - 1]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_healthy_log_has_no_cause(engine: str, diagnosed: Diagnosed) -> None:
    """Nothing is recognised in a log of a start and of serving that went well."""
    for seed in range(3):
        diagnosis = diagnosed(tuple(healthy_lines(engine, 5_000, seed)))
        assert not diagnosis.recognised
        assert diagnosis.root is None


def test_every_class_has_a_pattern_that_is_seen_to_work(
    own: Sequence[Any], diagnosed: Diagnosed
) -> None:
    """The classes of our cases are nearly all of those that have symptoms."""
    named = {
        diagnosed(case.lines).causes[0].cause_class for case in own if diagnosed(case.lines).causes
    }
    assert len(named) >= 50
