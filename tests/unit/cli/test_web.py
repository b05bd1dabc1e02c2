"""`heavylift web` as a process: where it listens, how it ends, what it refuses at the start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

WEB = [sys.executable, "-m", "heavylift", "--lang", "en", "web"]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_the_pages_are_served_until_they_are_told_to_end(
    tmp_path: Path, ending: signal.Signals
) -> None:
    """The address on standard error, on loopback; a signal ends it in order with status 0."""
    environment = {**os.environ, "HEAVYLIFT_HOME": str(tmp_path)}
    command = [*WEB, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/", process.stderr.readline())
        assert found is not None
        with urllib.request.urlopen(found[0], timeout=30) as answer:  # noqa: S310 - loopback
            assert "Heavylift" in answer.read().decode()
        process.send_signal(ending)
        assert process.wait(30) == 0
        assert "ssh -L" in process.stderr.read()


def test_a_report_that_is_none_is_bad_input(tmp_path: Path) -> None:
    """Status 3 and the file's name, before anything is served."""
    path = tmp_path / "report.json"
    path.write_text("{}")
    done = subprocess.run(
        [*WEB, "--measured", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "WEB003" in done.stderr
    assert "report.json" in done.stderr
