"""Whatever stands in a facts file, the check ends with defects that can be said."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heavylift.cli.text import text
from heavylift.facts.catalog import Catalog
from heavylift.facts.defects import Defect

WriteFacts = Callable[..., Catalog]

LITERALS = st.sampled_from(
    [
        *("0", "-1", "1", "2.5", "nan", "inf", "-inf", "1e308", "true", "9223372036854775807"),
        *("0xffffffffffffffffffff", "[]", "{}", "[[]]", "[1, 'a']", "{ value = 1 }", "2026-01-01"),
        *("1979-05-27T07:32:00Z", "''", "'\\'", "'width'", "'1.0'", "'x'", "[{}]", "{a = {}}"),
        *(r'"\u001b[2J"', "'9**9**9'", "'width/0'", "'1/width'", "'heads*heads'", "['', '']"),
        "{ value = nan, unit = 'bytes' }",
    ]
)
VALUE = re.compile(r"(?<== )[^=\n{}]+(?=[,\n}])")
FOLDER_OF_FACTS = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100
)


def said(defects: tuple[Defect, ...]) -> None:
    """Every defect has words, and they print."""
    for defect in defects:
        problem = text(f"defect.{defect.problem}", detail=defect.detail)
        assert text("facts.defect", path=defect.path, problem=problem).isprintable()


@FOLDER_OF_FACTS
@given(data=st.data())
def test_any_value_in_any_place_is_sound_or_a_defect(
    facts: WriteFacts, tmp_path: Path, data: st.DataObject
) -> None:
    """One value of one file is replaced by another literal of TOML."""
    facts()
    files = sorted(tmp_path.rglob("*.toml"))
    path = data.draw(st.sampled_from(files), label="file")
    source = path.read_text("utf-8")
    place = data.draw(st.sampled_from(list(VALUE.finditer(source))), label="place")
    literal = data.draw(LITERALS, label="literal")
    path.write_text(source[: place.start()] + literal + source[place.end() :], "utf-8")
    said(Catalog(tmp_path).check())


@FOLDER_OF_FACTS
@given(data=st.data())
def test_any_bytes_are_sound_or_a_defect(
    facts: WriteFacts, tmp_path: Path, data: st.DataObject
) -> None:
    """A stretch of one file is replaced by anything at all."""
    facts()
    path = data.draw(st.sampled_from(sorted(tmp_path.rglob("*.toml"))), label="file")
    source = path.read_bytes()
    start = data.draw(st.integers(0, len(source)), label="start")
    end = data.draw(st.integers(start, min(len(source), start + 20)), label="end")
    path.write_bytes(source[:start] + data.draw(st.binary(max_size=20)) + source[end:])
    said(Catalog(tmp_path).check())
