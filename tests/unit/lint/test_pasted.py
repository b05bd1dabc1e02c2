"""The commands that people pasted, collected outside the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heavylift.linting import Linting

RECALL = 0.85


@pytest.mark.shared
def test_recall_and_silence(shared: Path, linting: Linting) -> None:
    """At least 85 % of the expected findings are made, and working commands stay quiet."""
    lines = (shared / "data/recipes/pasted_commands.jsonl").read_text("utf-8").splitlines()
    missed: list[str] = []
    loud: list[str] = []
    expected = 0
    for row in map(json.loads, lines):
        report = linting.lint(row["text"], rack=row["gpu"], version=row["version"])
        rules = {finding.rule for finding in report.findings}
        wanted = [each.partition(":")[0] for each in row["expected_findings"]]
        expected += len(wanted)
        missed += [f"{row['id']} {rule}" for rule in wanted if rule not in rules]
        if row["status"] == "worked":
            loud += [
                f"{row['id']} {finding.code}"
                for finding in report.findings
                if finding.severity in ("fail", "warn")
            ]
    recall = 1 - len(missed) / expected
    assert recall >= RECALL, missed
    assert loud == []
