"""The rules in many dresses, and commands that work: what is found does not hang on the wording."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from heavylift.lint.check import Report
from heavylift.linting import Linting
from heavylift.records.finding import Severity

DRESS = Path(__file__).resolve().parents[2] / "golden/lint/dress/dress.toml"
CASES: list[dict[str, Any]] = tomllib.loads(DRESS.read_text("utf-8"))["cases"]
DRESSED = [case for case in CASES if "makes" in case]
HEALTHY = [case for case in CASES if case.get("quiet")]


@cache
def report_of(index: int, linting: Linting) -> Report:
    """The report on a case, made once for all tests."""
    case = CASES[index]
    return linting.lint(case["text"], rack=case.get("on"), version=case.get("version"))


@pytest.mark.parametrize("case", DRESSED, ids=lambda case: case["name"])
def test_dressed(case: dict[str, Any], linting: Linting) -> None:
    """A rule is met however the command is written."""
    report = report_of(CASES.index(case), linting)
    assert set(case["makes"]) <= {finding.rule for finding in report.findings}


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case["name"])
def test_healthy(case: dict[str, Any], linting: Linting) -> None:
    """A command that works has no finding above a remark, and its engine is known."""
    report = report_of(CASES.index(case), linting)
    loud = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    assert loud == []
    assert report.engines


def test_every_case_has_one_name() -> None:
    """No two cases share a name, and each says what it is for."""
    assert len({case["name"] for case in CASES}) == len(CASES) == len(DRESSED) + len(HEALTHY)
