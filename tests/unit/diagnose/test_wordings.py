"""How engines word their failures: every class by several wordings of its own."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from heavylift.diagnose.symptoms import CompiledSymptoms
from heavylift.records.diagnosis import Diagnosis

Diagnosed = Callable[..., Diagnosis]

WORDINGS: Final[dict[str, list[list[str]]]] = tomllib.loads(
    Path(__file__).with_name("wordings.toml").read_text("utf-8")
)["wordings"]


def test_every_class_is_worded(symptoms: CompiledSymptoms) -> None:
    """No class is without, and none is named that the facts do not know."""
    assert set(WORDINGS) == set(symptoms.causes)


def test_most_wordings_name_their_class(diagnosed: Diagnosed) -> None:
    """One or two lines without the log around them: nineteen of twenty come first."""
    first = third = count = 0
    for wanted, texts in WORDINGS.items():
        for lines in texts:
            named = [each.cause_class for each in diagnosed("\n".join(lines)).causes]
            count += 1
            first += named[:1] == [wanted]
            third += wanted in named[:3]
    assert first >= 0.95 * count
    assert third >= 0.98 * count


@pytest.mark.parametrize("wanted", WORDINGS)
def test_a_class_is_found_by_most_of_its_wordings(diagnosed: Diagnosed, wanted: str) -> None:
    """No class lives on another's account: it is among the first three for most of its own."""
    texts = WORDINGS[wanted]
    hits = [
        wanted in [each.cause_class for each in diagnosed("\n".join(lines)).causes][:3]
        for lines in texts
    ]
    assert sum(hits) * 2 > len(hits)
