"""Golden commands: what is found in each, what is not, and how it is mended."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from heavylift.cli.lint import show
from heavylift.cli.text import keys
from heavylift.lint.check import Report
from heavylift.linting import Linting
from heavylift.records.finding import Severity

GOLDEN = Path(__file__).resolve().parents[2] / "golden/lint"
CASES: list[dict[str, Any]] = [
    case
    for path in sorted(GOLDEN.glob("*.toml"))
    for case in tomllib.loads(path.read_text("utf-8"))["cases"]
]


_REPORTS: dict[str, Report] = {}


def report_of(case: dict[str, Any], linting: Linting) -> Report:
    """The report on a golden case, made once for all tests."""
    if case["name"] not in _REPORTS:
        _REPORTS[case["name"]] = linting.lint(
            case["text"], rack=case.get("on"), version=case.get("version")
        )
    return _REPORTS[case["name"]]


def test_names_are_their_own() -> None:
    """No two golden commands share a name."""
    assert len({case["name"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden(case: dict[str, Any], linting: Linting) -> None:
    """Each command has the findings listed, none of those ruled out, and mends as shown."""
    report = report_of(case, linting)
    made = {f"{finding.severity} {finding.code}" for finding in report.findings}
    made |= {f"{finding.severity} {finding.rule}" for finding in report.findings}
    assert [wanted for wanted in case.get("finds", ()) if wanted not in made] == []
    assert {finding.rule for finding in report.findings} & set(case.get("lacks", ())) == set()
    if case.get("quiet"):
        assert [finding for finding in report.findings if finding.severity != "info"] == []
    for part in case.get("mended", ()):
        assert part in report.mended
    assert case.get("form", "shell") == report.form


def test_every_rule_of_the_files_is_seen_to_fire(linting: Linting) -> None:
    """No rule file holds a rule that no golden command meets: it could never fire unnoticed."""
    fired = {finding.text for case in CASES for finding in report_of(case, linting).findings}
    assert [rule.id for rule in linting.library.rules if rule.id not in fired] == []


def test_every_finding_has_words(linting: Linting) -> None:
    """Every finding of the golden commands has a message, a fix and a source."""
    for case in CASES:
        for shown in show(report_of(case, linting), linting.catalog).findings:
            assert shown.message
            assert shown.fix
            assert shown.source


def test_every_rule_of_the_files_has_words(linting: Linting) -> None:
    """Every rule has a text under its own id or under its public name."""
    known = keys()
    for rule in linting.library.rules:
        for suffix in ("", ".fix"):
            assert f"lint.{rule.id}{suffix}" in known or f"lint.{rule.rule}{suffix}" in known


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_mending_mends(case: dict[str, Any], linting: Linting) -> None:
    """What could be mended is not found again in the mended text."""
    report = report_of(case, linting)
    if report.form != "shell" or not report.mended:
        return
    again = linting.lint(report.mended, rack=case.get("on"), version=case.get("version"))
    mended = {finding.code for finding in report.findings if finding.mend}
    still = {finding.code for finding in again.findings if finding.mend}
    assert still & mended <= {"unknown_value"}
    # Another KV dtype is other arithmetic: it may show what the refused one hid.
    follows = ("max_model_len_exceeds_kv", "cache_chunk_not_block_times_dcp")
    loud = (Severity.FAIL, Severity.WARN)
    before = {finding.code for finding in report.findings if finding.severity in loud}
    new = {finding.code for finding in again.findings if finding.severity in loud} - before
    assert [code for code in new if not code.startswith(follows)] == []


def test_secrets_are_not_repeated(linting: Linting) -> None:
    """A secret of the text is in no part of the report."""
    report = linting.lint(
        "docker run -e HF_TOKEN=hf_abcdef vllm/vllm-openai:v0.32.0 m --api-key k-1"
    )
    assert "hf_abcdef" not in repr(report)
    assert "k-1" not in repr(report)
