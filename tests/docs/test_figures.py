"""Figures in the READMEs are those that the benchmark last wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.markdown import LANGUAGES, ROOT, TREE

RESULTS = ROOT / "benchmarks" / "accuracy_results.md"
READMES = sorted(ROOT.glob("README*.md"))
MEMORY = [TREE / language / "concepts" / "memory.md" for language in LANGUAGES]


@pytest.fixture(autouse=True)
def only_in_a_checkout() -> None:
    """An installed package has no documentation beside it."""
    if not RESULTS.is_file() or not READMES:
        pytest.skip("not a checkout")


def starts() -> str:
    """How many starts the benchmark judged."""
    return matched(r"`make bench-accuracy`: (\d+) starts", RESULTS.read_text("utf-8"))[1]


def matched(pattern: str, words: str) -> re.Match[str]:
    """What a pattern finds."""
    found = re.search(pattern, words)
    assert found is not None, pattern
    return found


def row(term: str) -> tuple[str, str, float]:
    """Planned, measured, and the median error in per cent of a term."""
    line = next(
        each for each in RESULTS.read_text("utf-8").splitlines() if each.startswith(f"| {term} |")
    )
    found = matched(r"\| (\d+)/(\d+) \| ([\d.]+) % \|", line)
    return found[1], found[2], float(found[3])


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_a_readme_says_what_was_measured(page: Path) -> None:
    """Starts, terms planned of those measured, and the median errors, in the paragraph about it."""
    paragraph = next(
        each for each in page.read_text("utf-8").split("\n\n") if "accuracy_results.md" in each
    )
    numbers = re.findall(r"\d+(?:\.\d+)?", paragraph)
    wanted = [starts()]
    for term in ("weights", "KV bytes each"):
        planned, measured, _ = row(term)
        wanted += [planned, measured]
    assert [each for each in wanted if each not in numbers] == []
    errors = [float(each) for each in re.findall(r"([\d.]+) %", paragraph)]
    measured_errors = [row(term)[2] for term in ("weights", "KV bytes each")]
    assert [round(error, 1 if error >= 0.1 else 2) for error in measured_errors] == errors


@pytest.mark.parametrize("page", MEMORY, ids=lambda page: page.parts[-3])
def test_the_page_on_memory_counts_the_same_starts(page: Path) -> None:
    """The number of starts is the benchmark's."""
    line = next(each for each in page.read_text("utf-8").splitlines() if "bench-accuracy" in each)
    assert line.startswith(f"{starts()} ")
