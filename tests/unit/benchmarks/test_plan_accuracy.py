"""The accuracy that the planner promises, on the measured starts in the repository."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from heavylift.planning import Planning

ROOT = Path(__file__).parents[3] / "benchmarks"
WEIGHTS_PLANNED = 23
KV_PLANNED = 45
WEIGHTS_MEDIAN = 0.01
KV_MEDIAN = 0.005
BALANCED = 0.9


@pytest.fixture(scope="module")
def benchmark_modules() -> Iterator[tuple[ModuleType, ModuleType, ModuleType]]:
    """The benchmark's modules: cases, scoring, the report."""
    paths = [str(ROOT), str(ROOT / "accuracy")]
    sys.path[:0] = paths
    try:
        yield import_module("cases"), import_module("scoring"), import_module("plan_accuracy")
    finally:
        for path in paths:
            sys.path.remove(path)


@pytest.fixture(scope="module")
def results(benchmark_modules: tuple[ModuleType, ModuleType, ModuleType]) -> list[object]:
    """Every case, planned."""
    cases, scoring, _ = benchmark_modules
    found: list[object] = scoring.score_all(
        cases.read_cases(ROOT / "accuracy" / "cases.jsonl"), Planning()
    )
    return found


def test_most_measured_starts_are_planned_and_closely(
    benchmark_modules: tuple[ModuleType, ModuleType, ModuleType], results: list[object]
) -> None:
    """Of 29 weights and 57 KV pools by log or table most are planned, the median within bounds."""
    _, scoring, report = benchmark_modules
    exact = [each for each in results if each.case.evidence in scoring.EXACT]  # type: ignore[attr-defined]
    found = report.summaries(exact)
    assert (found["weights"].total, found["kv"].total) == (29, 57)
    assert found["weights"].planned >= WEIGHTS_PLANNED
    assert found["kv"].planned >= KV_PLANNED
    assert found["weights"].median <= WEIGHTS_MEDIAN
    assert found["kv"].median <= KV_MEDIAN


def test_no_start_that_ran_out_of_memory_is_called_fits(
    benchmark_modules: tuple[ModuleType, ModuleType, ModuleType], results: list[object]
) -> None:
    """Each is refused or warned of, and hardly one that ran is refused."""
    found = benchmark_modules[1].fit(results)
    assert found.count("oom", "fits") == 0
    assert found.count("oom", "tight", "does_not_fit") >= 8
    assert found.warned >= BALANCED


def test_what_is_not_planned_names_a_fact(results: list[object]) -> None:
    """An excluded case says what is missing; none fails for a reason nobody wrote down."""
    for each in results:
        if each.plan is None:  # type: ignore[attr-defined]
            assert each.case.lacks("all") or each.case.missing, each  # type: ignore[attr-defined]
