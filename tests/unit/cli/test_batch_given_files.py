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


@pytest.mark.parametrize("option", ["--prompt", "--system"])
def test_a_column_in_single_braces_is_refused(source: Path, option: str) -> None:
    """Where nothing stands in double ones: the braces would be sent with every row."""
    prompt = [] if option == "--prompt" else ["--prompt", "{{ fruit }}"]
    asked = ["run", source, "--endpoint", NOBODY, "--model", "m", "--dry-run", *prompt]
    assert "write {{ fruit }}" in told(invoke(*asked, option, "Name { fruit}."))
    assert invoke(*asked, option, 'Answer as {"a": 1} or {set}.').exception is None


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\x01", b"\xff\xfe\n\xfd", b"\xe9" * 50])
def test_an_input_that_is_no_text_is_told_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    """Not with a defect for each of its lines."""
    path = tmp_path / "bin.dat"
    path.write_bytes(content)
    refused = invoke("run", path, "--endpoint", NOBODY, "--model", "m", "--dry-run")
    assert told(refused) == f"{path} is not UTF-8 text"
    assert refused.stderr == ""


def test_a_long_first_line_of_text_is_text(tmp_path: Path) -> None:
    """Wherever the first piece that is read ends."""
    path = tmp_path / "long.jsonl"
    path.write_bytes(json.dumps({"prompt": "a€" * 9000}, ensure_ascii=False).encode())
    asked = ["run", path, "--endpoint", NOBODY, "--model", "m", "--dry-run"]
    assert invoke(*asked).exception is None


def test_endpoints_are_checked_by_every_command_that_takes_them(
    source: Path, tmp_path: Path
) -> None:
    """At once."""
    out = tmp_path / "out"
    asked = ["--model", "m", "--prompt", "x", "--wait", "0.1", "--quiet", "--out", out]
    invoke("run", source, "--endpoint", NOBODY, *asked)
    for command_line in (
        ["run", source, "--dry-run"],
        ["serve", tmp_path / "sv"],
        ["resume", out],
        ["retry-failed", out],
    ):
        result = invoke(*command_line, "--endpoint", "foo")
        assert isinstance(result.exception, HeavyliftError)
        assert result.exception.code == "USE021"


def test_a_place_that_cannot_be_written_is_named(source: Path, tmp_path: Path) -> None:
    """By export and by serve; a file in place of a folder stops whoever runs the test."""
    out, file = tmp_path / "out", tmp_path / "file"
    asked = ["--model", "m", "--prompt", "x", "--wait", "0.1", "--quiet", "--out", out]
    invoke("run", source, "--endpoint", NOBODY, *asked)
    file.write_text("")
    for kind in ("csv", "jsonl"):
        assert "nodir" in told(invoke("export", out, tmp_path / "nodir" / f"x.{kind}"))
    served = invoke("serve", file / "y", "--endpoint", NOBODY, "--port", "0")
    assert str(file / "y") in told(served)
