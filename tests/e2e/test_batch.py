"""A batch against the real embedded engine, which is killed and started again in the middle."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from heavylift.batch import job
from heavylift.launch.runner import Served
from heavylift.recipe.engines.embedded import EmbeddedSettings

pytestmark = pytest.mark.e2e

Serve = Callable[[EmbeddedSettings], AbstractContextManager[Served]]
ROWS = 80


def free_port() -> int:
    """A port that both lives of the engine can have."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_eighty_rows_outlive_the_engine(
    start: Serve, smollm2: Path, tmp_path: Path, api_key: str
) -> None:
    """The engine is killed with rows in flight and comes back: the same run goes on by itself, and
    every row is accounted for, once.
    """
    source, out = tmp_path / "rows.csv", tmp_path / "out"
    source.write_text("n\n" + "".join(f"{number}\n" for number in range(ROWS)))
    port = free_port()
    settings = EmbeddedSettings(
        model_path=str(smollm2), model="smollm2", slot_tokens=512, slots=4, port=port
    )
    command = [sys.executable, "-m", "heavylift", "batch", "run", str(source)]
    endpoint = ["--endpoint", f"http://127.0.0.1:{port}", "--model", "smollm2", "--out", str(out)]
    prompt = ["--prompt", "Write one word about the number {{ n }}.", "--param", "max_tokens=4"]
    environment = {**os.environ, "HEAVYLIFT_API_KEY": api_key}
    with start(settings) as served:
        run = subprocess.Popen(
            [*command, *endpoint, *prompt, "--quiet"], env=environment, stdout=subprocess.DEVNULL
        )
        try:
            until = time.monotonic() + 120
            while not (out / "journal.db").exists() or job.status(out).counts.ok < ROWS // 4:
                assert run.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
            os.kill(served.pid, signal.SIGKILL)
        except BaseException:
            run.kill()
            run.wait()
            raise
    before = job.audited(out)
    assert before.missing > 0
    with start(settings):
        assert run.wait(180) == 0
    found = job.audited(out)
    assert found.sound
    assert (found.input, found.ok + found.failed) == (ROWS, ROWS)
    assert found.failed == 0
    lines = (out / "output.jsonl").read_bytes().splitlines()
    assert len({json.loads(line)["custom_id"] for line in lines}) == len(lines) == found.ok
    log = [json.loads(line) for line in (out / "requests.jsonl").read_bytes().splitlines()]
    assert any(entry.get("failures") for entry in log)
