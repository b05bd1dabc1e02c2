"""`heavylift batch`: files, templates and endpoints that are not what they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from heavylift.cli.batch import command
from heavylift.cli.errors import sentence
from heavylift.errors import HeavyliftError

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A row of columns."""
    path = tmp_path / "fruit.jsonl"
    path.write_text(json.dumps({"fruit": "fig"}) + "\n")
    return path


def invoke(*arguments: Any) -> Result:
    """The command's result; our errors are in `exception`."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(command, words, standalone_mode=False)


def told(result: Result) -> str:
    """The sentence of the error that ended a command."""
    assert isinstance(result.exception, HeavyliftError)
    return sentence(result.exception)


@pytest.mark.parametrize(
    ("option", "content", "says"),
    [
        ("--template", b"\xff\x00", "is not UTF-8 text"),
        ("--schema", b"\xff\x00", "is not UTF-8 text"),
        ("--schema", b"[]", "a JSON Schema must be an object"),
        ("--schema", b"{", "is no JSON Schema: Input data was truncated"),
        ("--schema", b'{"type": 3}', "is no JSON Schema: 3 is not valid"),
    ],
)
def test_a_file_that_is_not_what_its_option_needs_is_named(
    source: Path, tmp_path: Path, option: str, content: bytes, says: str
) -> None:
    """With what is wrong with it, before anything is sent."""
    given = tmp_path / "given.dat"
    given.write_bytes(content)
    sentence = told(invoke("run", source, "--endpoint", NOBODY, option, given))
    assert str(given) in sentence
    assert says in sentence
