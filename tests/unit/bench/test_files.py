"""Files of a benchmark: prose, traces, samples."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from heavylift.bench.files import read_prose, read_samples, read_trace, shipped_prose
from heavylift.bench.prompts import Workload, Writer
from heavylift.bench.records import Sample
from heavylift.errors import HeavyliftError
from heavylift.traffic.trace import Arrival

SAMPLE = Sample(index=3, prompt_digest="d", scheduled_s=0.0, started_s=0.0, ended_s=1.0)


def test_there_is_prose_without_a_network() -> None:
    """Enough for a hundred thousand tokens, and it does not repeat itself."""
    prose = shipped_prose()
    assert len(prose) > 300_000
    pieces = [prose[start : start + 200] for start in range(0, 200_000, 200)]
    assert len(set(pieces)) == len(pieces)


def test_the_users_own_text_is_taken_when_it_is_long_enough(tmp_path: Path) -> None:
    """A short one would repeat itself within a prompt."""
    path = tmp_path / "text.txt"
    path.write_text("word " * 1000)
    assert len(read_prose(path)) == 5000
    path.write_text("too short")
    with pytest.raises(HeavyliftError, match="USE074"):
        read_prose(path)
    with pytest.raises(HeavyliftError, match="USE062"):
        read_prose(tmp_path / "nothing.txt")


def test_a_trace_file_is_read(tmp_path: Path) -> None:
    """Errors name the file."""
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,input_length,output_length\n0,10,5\n1500,20,6\n")
    assert [arrival.at_s for arrival in read_trace(path)] == [0.0, 1.5]
    path.write_text("timestamp,input_length\n0,many\n")
    with pytest.raises(HeavyliftError, match="USE061") as caught:
        read_trace(path)
    assert caught.value.params["path"] == str(path)


def test_samples_are_found_through_the_report_that_names_them(tmp_path: Path) -> None:
    """Also when both were moved to another folder together."""
    lines = tmp_path / "samples.jsonl"
    lines.write_bytes(msgspec.json.encode(SAMPLE) + b"\n")
    assert read_samples(lines) == (SAMPLE,)
    report = tmp_path / "report.json"
    report.write_text(json.dumps(_report(samples_file="/elsewhere/samples.jsonl")))
    assert read_samples(report) == (SAMPLE,)


def test_a_report_without_samples_cannot_be_compared(tmp_path: Path) -> None:
    """It says what was missing when it was made; what is no report at all is another error."""
    path = tmp_path / "report.json"
    path.write_text(json.dumps(_report(samples_file=None)))
    with pytest.raises(HeavyliftError, match="USE063"):
        read_samples(path)
    path.write_text("no json")
    with pytest.raises(HeavyliftError, match="USE062"):
        read_samples(path)


def _report(*, samples_file: str | None) -> dict[str, object]:
    nothing = dict.fromkeys(("ttft_s", "ttfa_s", "tpot_s", "itl_s", "e2e_s", "goodput_per_s"))
    return {
        **nothing,
        "target": {"url": "u", "model": "m"},
        "started_at": "",
        "heavylift_version": "",
        "seed": 0,
        "settings": {},
        "output_tokens_per_s": 0.0,
        "requests": {"ok": 0, "failed": 0},
        "valid": True,
        "invalid_reasons": [],
        "stages": [],
        "samples_file": samples_file,
    }


def test_a_recorded_conversation_is_replayed_with_its_own_questions() -> None:
    """And one that states only lengths gets prose of that length."""
    writer = Writer(prose=shipped_prose(), chars_per_token=4.0, seed=0)
    workload = Workload(model="m", prompt_tokens=100, wanted_tokens=9)
    told = writer.replayed(Arrival(at_s=0.0, turns=("Hello", "And now?")), workload, 5)
    assert (told.turns, told.wanted_tokens) == (("Hello", "And now?"), 9)
    long = writer.replayed(Arrival(at_s=0.0, input_tokens=300_000, output_tokens=2), workload, 6)
    assert len(long.turns[0]) == pytest.approx(4 * 300_000, rel=0.01)
    assert long.wanted_tokens == 2
