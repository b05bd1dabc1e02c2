"""Looks in a file: written, cut off, read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.observe.test_exported import REPORT

from heavylift.errors import HeavyliftError
from heavylift.observe.recording import read, recording, replay

LATER = replace(REPORT, at_s=REPORT.at_s + 2.5, name="k3-later")


def written(path: Path) -> Path:
    """A file with two looks."""
    with recording(path) as write:
        write(REPORT)
        write(LATER)
    return path


@pytest.mark.parametrize("name", ["looks.jsonl", "looks.parquet"])
def test_what_was_written_is_read(tmp_path: Path, name: str) -> None:
    """All of it, in order, in either form."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    assert list(read(written(tmp_path / name))) == [REPORT, LATER]


def test_a_parquet_file_has_a_column_for_each_figure(tmp_path: Path) -> None:
    """For tables and plots."""
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(written(tmp_path / "looks.parquet"))
    assert table.column("gpu.rack-7.0.memory_used_bytes").to_pylist() == [2 * 2**30, 2 * 2**30]
    assert table.column("at_s").to_pylist() == [REPORT.at_s, LATER.at_s]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """As a kill leaves it; a broken line before the end is no recording."""
    path = written(tmp_path / "looks.jsonl")
    path.write_bytes(path.read_bytes()[:-40])
    assert list(read(path)) == [REPORT]
    path.write_text('{"no": "look"}\n')
    with pytest.raises(HeavyliftError, match="OBS002") as caught:
        list(read(path))
    assert caught.value.params["line"] == 1


def test_a_parquet_file_of_something_else_is_refused(tmp_path: Path) -> None:
    """By its own reader's words."""
    pytest.importorskip("pyarrow")
    path = tmp_path / "looks.parquet"
    path.write_text("no")
    with pytest.raises(HeavyliftError, match="OBS002"):
        list(read(path))


def test_a_replay_pauses_as_the_looks_did(tmp_path: Path) -> None:
    """Divided by the speed; at 0 there is no pause."""
    path = written(tmp_path / "looks.jsonl")
    pauses: list[float] = []
    assert len(list(replay(path, speed=5.0, sleep=pauses.append))) == 2
    assert pauses == [0.5]
    list(replay(path, speed=0.0, sleep=pauses.append))
    assert pauses == [0.5]


def test_a_file_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    """Before anything is looked at."""
    with pytest.raises(HeavyliftError, match="OBS001"), recording(tmp_path / "no" / "looks.jsonl"):
        pass
