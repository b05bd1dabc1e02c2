"""Batches in shards on a real Ray cluster of this machine (`make test-ray`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="the extra `ray` is not installed: make test-ray")

SHARDS = 4
ROWS = 12


@pytest.fixture
def engine() -> Iterator[str]:
    """A scripted engine in a process of its own that takes its time over an answer."""
    command = [sys.executable, "-m", "heavylift", "dev", "engine", "paced", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield process.stderr.readline().split()[-1]
        process.terminate()


@pytest.fixture
def command(tmp_path: Path, engine: str) -> list[str]:
    """The run of four shards by two workers."""
    folder = tmp_path / "in"
    folder.mkdir()
    for shard in range(SHARDS):
        rows = (json.dumps({"prompt": f"say {shard} {row}"}) for row in range(ROWS))
        (folder / f"part{shard}.jsonl").write_text("\n".join(rows))
    run = [sys.executable, "-m", "heavylift", "batch", "run", str(folder), "--endpoint", engine]
    run += ["--model", "scripted", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    return [*run, "--runner", "ray", "--workers", "2", "--concurrency", "4"]


def audit(out: Path) -> dict[str, int]:
    """What `batch audit` says."""
    run = [sys.executable, "-m", "heavylift", "batch", "audit", str(out), "--json"]
    found: dict[str, int] = json.loads(subprocess.run(run, capture_output=True, check=False).stdout)
    return found


def test_two_workers_run_four_shards_and_nothing_is_lost(
    tmp_path: Path, command: list[str]
) -> None:
    """Every row is answered once, whichever worker had its shard."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert audit(tmp_path / "out")["ok"] == SHARDS * ROWS


def test_a_killed_worker_loses_no_row(tmp_path: Path, command: list[str]) -> None:
    """A worker shot while it answers: its shard goes on from its journal, and what it had under
    way is sent once more and counted.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    victim = _worker_with_a_journal(tmp_path / "work")
    os.kill(victim, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    found = audit(tmp_path / "out")
    assert (found["ok"], found["missing"], found["duplicates"]) == (SHARDS * ROWS, 0, 0)
    assert found["resent"] > 0


def _worker_with_a_journal(work: Path) -> int:
    """The process that holds a journal in which answers are already recorded."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for lock in work.glob("*/*/journal.db.writer"):
            named = lock.read_text("ascii").strip()
            output = lock.with_name("output.jsonl")
            if named.isdigit() and output.exists() and output.stat().st_size:
                return int(named)
        time.sleep(0.05)
    pytest.fail("no worker ever recorded an answer")
