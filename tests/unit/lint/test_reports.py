"""Commands of public reports, labelled before the linter saw them."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from heavylift.lint.check import Report
from heavylift.linting import Linting
from heavylift.records.finding import Severity

REPORTS = Path(__file__).resolve().parents[2] / "golden/lint/reports/reports.toml"
CASES: list[dict[str, Any]] = tomllib.loads(REPORTS.read_text("utf-8"))["cases"]
WORKED = [case for case in CASES if case["status"] == "worked"]
RECALL = 0.85


@cache
def report_of(index: int, linting: Linting) -> Report:
    """The report on a case with all that its source says beside it, made once for all tests."""
    case = CASES[index]
    return linting.lint(case["text"], rack=case["gpu"], version=case["version"])


def test_recall(linting: Linting) -> None:
    """At least 85 % of the findings that an engineer would make are made."""
    wanted = made = 0
    for index, case in enumerate(CASES):
        found = {finding.rule for finding in report_of(index, linting).findings}
        wanted += len(case["expected"])
        made += sum(rule in found for rule in case["expected"])
    assert made >= RECALL * wanted


@pytest.mark.parametrize("case", WORKED, ids=lambda case: case["id"])
def test_commands_that_worked_are_left_alone(case: dict[str, Any], linting: Linting) -> None:
    """A command that its source ran has no finding above a remark, and its engine is known."""
    report = report_of(CASES.index(case), linting)
    assert [each.code for each in report.findings if each.severity is not Severity.INFO] == []
    assert report.engines


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_mended_text_holds(case: dict[str, Any], linting: Linting) -> None:
    """The mended text still starts what it started, and has no new failure."""
    report = report_of(CASES.index(case), linting)
    again = linting.lint(report.mended, rack=case["gpu"], version=case["version"])
    assert again.engines == report.engines
    before = {each.code for each in report.findings if each.severity is Severity.FAIL}
    assert {each.code for each in again.findings if each.severity is Severity.FAIL} <= before


def test_sources_are_named() -> None:
    """Each case says where it is from, what became of it, and has an id of its own."""
    assert len({case["id"] for case in CASES}) == len(CASES)
    assert all(case["source"] and case["outcome"] for case in CASES)
