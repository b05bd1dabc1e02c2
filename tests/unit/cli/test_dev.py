"""`heavylift dev`: what the commands print."""

from __future__ import annotations

import json
import tomllib
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


def test_the_facts_of_the_next_model_are_written_from_its_config(tmp_path: Path) -> None:
    """What comes out is a facts file of a known family; an unknown type is refused by name."""
    config = {
        "model_type": "qwen2",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 256,
        "max_position_embeddings": 512,
    }
    given = ["--title", "Next", "--repo", "maker/next", "--source", "here", "--as-of", "2026-11-30"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = CliRunner().invoke(command, ["model-facts", str(tmp_path), *given])
    assert result.exit_code == 0
    read = tomllib.loads(result.stdout)
    assert (read["family"], read["names"]) == ("qwen2", ["maker/next"])
    assert read["dims"]["head_dim"]["value"] == 16
    assert read["layers"]["all"]["value"] == "0-1"
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "novel"}))
    refused = CliRunner().invoke(command, ["model-facts", str(tmp_path), *given])
    assert isinstance(refused.exception, HeavyliftError)
    assert refused.exception.code == "PLAN051"
