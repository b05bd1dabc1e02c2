"""Measured starts, read as they stand in a public collection and planned by the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Final

import pytest

from heavylift.cli.main import main

ROOT: Final = Path(__file__).parents[3]
GIB: Final = 2**30
EXACT: Final = ("log", "table")


@pytest.fixture(scope="module")
def commands() -> Iterator[ModuleType]:
    """The reader as a module."""
    path = str(ROOT / "benchmarks" / "accuracy")
    sys.path.insert(0, path)
    try:
        yield import_module("commands")
    finally:
        sys.path.remove(path)


@pytest.fixture(scope="module")
def accuracy() -> Iterator[ModuleType]:
    """The benchmark as a module."""
    path = str(ROOT / "benchmarks")
    sys.path.insert(0, path)
    try:
        yield import_module("plan_accuracy")
    finally:
        sys.path.remove(path)


def test_a_record_becomes_the_command_that_was_typed(commands: ModuleType) -> None:
    """Names, counts and dtypes stay in the words of their source."""
    record = {
        "model": None,
        "model_hint": "Gemma-4-31B AutoRound int4",
        "engine": "vllm (ROCm)",
        "engine_version": "0.22.0",
        "gpu": "RTX 3090 24GB",
        "gpu_count": 2,
        "tp": 2,
        "ep": 1,
        "kv_dtype": "bf16",
        "max_model_len": 131072,
        "gpu_memory_utilization": 0.95,
        "extra": {"spec": "MTP4", "max_num_batched_tokens": ">64000", "dcp": None},
    }
    assert commands.argv_of(record) == [
        *("plan", "Gemma-4-31B AutoRound int4", "--on", "2xRTX 3090 24GB"),
        *("--engine", "vllm (ROCm)", "--engine-version", "0.22.0", "--tp", "2"),
        *("--context", "131072", "--kv-dtype", "bf16", "--gpu-memory-utilization", "0.95"),
        *("--max-batched-tokens", "64000", "--mtp", "4", "--json"),
    ]


@pytest.mark.shared
def test_starts_of_a_collection_are_planned_as_they_stand(
    shared: Path,
    commands: ModuleType,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At least 22 of 29 weights and 45 of 57 caches, by log or table, the weights within 1 % in the
    middle; nobody reads the notes of a case first, and no hub answers.
    """
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    text = (shared / "data" / "measured" / "cases.jsonl").read_text()
    weights: list[float] = []
    caches = 0
    for record in map(json.loads, text.splitlines()):
        said = record["measured"]
        measured = said["weights_gib_per_gpu"]
        pool = said.get("kv_gib_per_gpu") or said.get("kv_tokens")
        if record["evidence"] not in EXACT or not (measured or pool):
            continue
        with pytest.raises(SystemExit) as left:
            main(commands.argv_of(record))
        out = capsys.readouterr().out
        if left.value.code not in (0, 1, None):
            continue
        plan = json.loads(out)
        caches += pool is not None
        if measured is not None:
            low = plan["per_gpu"]["weights_bytes"]["low"] / GIB
            weights.append(abs(low / measured - 1))
    assert len(weights) >= 22
    assert median(weights) <= 0.01
    assert caches >= 45


def test_no_collected_start_that_ran_out_of_memory_is_called_fits(
    accuracy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both files, where tight is a warning, nor any that ran refused."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    for cases, starts in ((accuracy.CASES, 99), (accuracy.UNSEEN, 59)):
        results = accuracy.score_all(accuracy.read_cases(cases), accuracy.Planning())
        assert len(results) == starts
        found = accuracy.fit(results)
        assert found.count("oom", "fits") == 0
        assert found.count("oom", "tight") + found.count("oom", "does_not_fit") >= 6
        assert found.count("ok", "does_not_fit") == 0
        assert found.warned >= 0.9


def test_the_kept_report_on_starts_collected_afterwards_is_what_plans_say(
    accuracy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written by `plan_accuracy.py --write`; each case names where it was found."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    cases = accuracy.read_cases(accuracy.UNSEEN)
    assert len({case.id for case in cases}) == len(cases) >= 50
    assert all(case.source for case in cases)
    kept = accuracy.UNSEEN_RESULTS.read_text("utf-8")
    for line in accuracy.report(accuracy.UNSEEN).splitlines()[1:]:
        assert line in kept
