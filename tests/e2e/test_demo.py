"""The demonstration, whole: the command a newcomer types."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

DEMO = (sys.executable, "-m", "heavylift", "demo")


def engines(home: Path) -> list[int]:
    """Process ids of embedded engines that run out of a home."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"embedded_child.py" in line and str(home).encode() in line:
            found.append(int(entry.name))
    return found


def test_the_demo_plans_serves_checks_and_measures(engine_home: Path) -> None:
    """Every check passes, every planned term equals the log, and no engine is left."""
    environment = os.environ | {"HEAVYLIFT_HOME": str(engine_home)}
    ran = subprocess.run(
        (*DEMO, "--json"), capture_output=True, text=True, env=environment, timeout=180, check=False
    )
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(ran.stdout)
    assert shown["sound"]
    assert {finding["severity"] for finding in shown["findings"]} == {"ok"}
    agreements = {term["term"]: term["agreement"] for term in shown["tiny_terms"]}
    for name in (
        "weights",
        "kv_cache",
        "recurrent_state.kda_recurrent",
        "recurrent_state.kda_conv",
    ):
        assert agreements[name] == "equal", name
    measured = {term["id"]: term["kind"] for term in shown["measured_plan"]["terms"]}
    assert measured["workspace.compute_buffer"] == "measured"
    assert engines(engine_home) == []


def test_ctrl_c_leaves_nothing_running(engine_home: Path) -> None:
    """Interrupted while an engine runs, the demo ends with 130 and takes the engine with it."""
    environment = os.environ | {"HEAVYLIFT_HOME": str(engine_home)}
    process = subprocess.Popen(
        DEMO, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    end = time.monotonic() + 60
    while not engines(engine_home) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    assert engines(engine_home), "no engine was started"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    while engines(engine_home) and time.monotonic() < end:
        time.sleep(0.05)
    assert engines(engine_home) == []
