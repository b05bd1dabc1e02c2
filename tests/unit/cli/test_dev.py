"""`heavylift dev`: what the commands print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from heavylift.cli.dev import command
from heavylift.devserver.library import load, names
from heavylift.errors import HeavyliftError


def test_scenarios_are_listed_with_what_they_do() -> None:
    """One line per scenario within 80 columns, and what to type next."""
    result = CliRunner().invoke(command, ["scenarios"])
    assert result.exit_code == 0
    *lines, last = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(names())
    assert max(map(len, lines)) <= 80
    assert last == "next: heavylift dev engine healthy --port 8000"


def test_scenarios_are_listed_as_json() -> None:
    """The same list for programs, with the faults in each."""
    result = CliRunner().invoke(command, ["scenarios", "--json"])
    listed = {entry["name"]: entry["faults"] for entry in json.loads(result.stdout)}
    assert list(listed) == list(names())
    assert listed["hangs"] == ["hang"]
    assert listed["healthy"] == []


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_is_a_port(port: str) -> None:
    """Anything else is a usage error."""
    result = CliRunner().invoke(command, ["engine", "healthy", "--port", port])
    assert result.exit_code == 2


def test_what_is_there_and_no_scenario_is_said(tmp_path: Path) -> None:
    """A folder and a file that is not text are not called missing."""
    data = tmp_path / "bin.dat"
    data.write_bytes(b"\xff\xfe\x00")
    for path, code in ((tmp_path, "DEV006"), (data, "DEV007"), (tmp_path / "none", "DEV003")):
        with pytest.raises(HeavyliftError) as caught:
            load(str(path))
        assert caught.value.code == code
