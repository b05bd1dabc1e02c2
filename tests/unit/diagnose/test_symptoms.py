"""The symptoms as facts: complete, sound, compiled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heavylift.diagnose.symptoms import CompiledSymptoms, normal_form
from heavylift.facts.catalog import Catalog


def test_the_books_are_sound() -> None:
    """Ids are unique, references lead somewhere, regexes compile, anchors can be watched for."""
    assert [d for d in Catalog().check() if d.path.startswith("symptoms/")] == []


def test_every_cause_can_be_acted_on(symptoms: CompiledSymptoms) -> None:
    """Each cause class has a title, a fix and several patterns, or one that names it."""
    for cause in symptoms.causes.values():
        assert cause.title["en"].endswith(".")
        assert cause.fix["en"]
        assert cause.symptoms


@pytest.mark.shared
def test_every_known_class_has_symptoms(symptoms: CompiledSymptoms) -> None:
    """The class names are those of the reference list, all of them and no other."""
    beside = Path(__file__).resolve().parents[3].parent / "shared"
    root = Path(os.environ.get("HEAVYLIFT_SHARED", beside))
    if not root.is_dir():
        pytest.skip("no reference data here")
    listed = (root / "data" / "failures" / "classes.md").read_text("utf-8").splitlines()
    names = {line.partition(": ")[0] for line in listed if ": " in line and line[0] != "#"}
    assert set(symptoms.causes) == names


def test_an_anchor_leads_to_its_own_pattern(symptoms: CompiledSymptoms) -> None:
    """A line that is nothing but an anchor is a candidate for the pattern the anchor is of."""
    for index, pattern in enumerate(symptoms.patterns):
        for anchor in pattern.anchors:
            normal = b" " + normal_form(anchor.encode()) + b" "
            found = {
                owner
                for word in normal.split()
                for each in symptoms.anchors_at(word)
                if each.stands_in(normal)
                for owner in each.patterns
            }
            assert index in found, anchor


def test_short_words_stand_alone(symptoms: CompiledSymptoms) -> None:
    """`ring` is no part of `string`, `xid` none of `oxide`."""
    ring = next(each for each in symptoms.anchors_at(b"ring") if each.text == b"ring")
    assert ring not in symptoms.anchors_at(b"strings")
