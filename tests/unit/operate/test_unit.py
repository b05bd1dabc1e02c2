"""The systemd unit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from heavylift.operate.unit import unit_name, unit_text


def test_the_unit_starts_the_supervisor_and_not_the_engine() -> None:
    """It restarts the supervisor, gives the engine its grace, and leaves a given-up one alone."""
    text = unit_text("chat", grace_s=15, home="/srv/my home", folder=Path("/srv"))
    lines = text.splitlines()
    assert any(line.startswith("ExecStart=") and line.endswith(" supervise chat") for line in lines)
    assert "RestartPreventExitStatus=0 1" in lines
    assert "TimeoutStopSec=45" in lines
    assert 'Environment="HEAVYLIFT_HOME=/srv/my home"' in lines
    assert unit_name("chat") == "heavylift-chat.service"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """By its own checker, where there is one."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here")
    unit = tmp_path / unit_name("chat")
    unit.write_text(unit_text("chat", grace_s=15, home="/srv/100% mine", folder=tmp_path))
    result = subprocess.run(
        [program, "verify", "--user", str(unit)], check=False, capture_output=True, text=True
    )
    complaints = [line for line in result.stderr.splitlines() if unit.name in line]
    assert complaints == []
