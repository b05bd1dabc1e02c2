"""Books of symptoms that do not agree are named, each defect with its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heavylift.facts.catalog import Catalog

WriteFacts = Callable[..., Catalog]

SOUND = """
provenance = { kind = "spec", source = "maker", as_of = 2026-01-01 }

[[causes]]
id = "port_in_use"
area = "port"
title = { en = "The port is taken." }
fix = { en = "Take another." }
explains = ["port_in_use"]

[[causes.symptoms]]
id = "taken"
anchors = ["in use"]
regex = 'in use'
phases = ["load"]
beside = ["taken"]
fix = { en = "Wait." }
weight = "names"

[[consequences]]
id = "end"
anchors = ["has ended"]
title = { en = "it ends" }

[[marks]]
id = "begin"
anchors = ["begins"]
phase = "start"
version = 'v(\\d)'

[[numbers]]
id = "memory"
regex = '(?P<gib>\\d) GiB'

[[walks]]
id = "slow"
title = { en = "It is slow." }
steps = [{ text = { en = "Look." }, causes = ["port_in_use"] }]
"""

TWIN = """
[[causes]]
id = "port_in_use"
area = "port"
title = { en = "The same." }
fix = { en = "The same." }
symptoms = []

"""


@pytest.fixture
def defects(facts: WriteFacts, tmp_path: Path) -> Callable[[str, str], list[str]]:
    """The problems of the sound book after replacing `old` by `new` in it."""

    def of(old: str = "", new: str = "") -> list[str]:
        assert old in SOUND
        catalog = facts()
        folder = tmp_path / "symptoms"
        folder.mkdir()
        (folder / "book.toml").write_text(SOUND.replace(old, new, 1) if old else SOUND, "utf-8")
        return [defect.problem for defect in catalog.check() if "symptoms/" in defect.path]

    return of


def test_a_sound_book_has_no_defects(defects: Callable[..., list[str]]) -> None:
    """The book the other tests break is sound itself."""
    assert defects() == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('explains = ["port_in_use"]', 'explains = ["nothing"]', "unknown_cause"),
        ('causes = ["port_in_use"]', 'causes = ["nothing"]', "unknown_cause"),
        ('beside = ["taken"]', 'beside = ["nothing"]', "unknown_symptom"),
        ('phases = ["load"]', 'phases = ["lunch"]', "unknown_phase"),
        ('phase = "start"', 'phase = "lunch"', "unknown_phase"),
        ("regex = 'in use'", "regex = '('", "regex"),
        ("regex = 'in use'", f"regex = '{'(' * 5000}'", "regex"),
        ("regex = 'in use'", "regex = 'a{99999999999999}'", "regex"),
        ("version = 'v(\\d)'", "version = 'v('", "regex"),
        ("(?P<gib>\\d) GiB", "(", "regex"),
        ('anchors = ["in use"]', 'anchors = ["In Use"]', "anchor"),
        ('anchors = ["has ended"]', 'anchors = ["137"]', "anchor"),
        ('title = { en = "The port is taken." }', 'title = { zh_Hans = "?" }', "missing"),
        ('fix = { en = "Wait." }', 'fix = { zh_Hans = "?" }', "missing"),
        ('text = { en = "Look." }', "text = {}", "missing"),
        ('title = { en = "it ends" }', "title = {}", "missing"),
        ("[[consequences]]", f"{TWIN}[[consequences]]", "shared_name"),
    ],
)
def test_each_defect_is_named(
    old: str, new: str, problem: str, defects: Callable[..., list[str]]
) -> None:
    """One thing broken, one problem found."""
    assert set(defects(old, new)) == {problem}
