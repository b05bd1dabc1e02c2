"""`bench`, `verify` and `quality` typed wrongly: said at once, in a sentence, nothing sent."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from heavylift.cli.errors import sentence
from heavylift.cli.main import cli
from heavylift.errors import HeavyliftError

NOBODY = "http://127.0.0.1:9"


def complaint(*arguments: object) -> str:
    """What the command says; its status is that of bad usage."""
    error = CliRunner().invoke(cli, [*map(str, arguments)], standalone_mode=False).exception
    if isinstance(error, click.UsageError):
        return error.format_message()
    assert isinstance(error, HeavyliftError)
    return sentence(error)


def test_a_source_of_answers_that_is_neither_file_nor_url() -> None:
    """USE069; a URL without its scheme is completed."""
    assert "neither a file that exists nor a URL" in complaint("quality", "nofile", "nofile")
    assert "http://localhost:9" in complaint("quality", "localhost:9", "localhost:9")


@pytest.mark.parametrize("name", ["model-Q4_K_M.gguf", "model.safetensors"])
def test_a_file_of_weights_that_is_not_there(name: str) -> None:
    """It is not taken for a model's name, of which there are many."""
    assert f"there is no file or folder {name}" in complaint("plan", name, "--on", "8xB300")


@pytest.mark.parametrize("option", ["--only", "--skip"])
def test_an_unknown_check_is_refused_with_those_near_it(option: str) -> None:
    """Nothing checked would be taken for nothing wrong."""
    said = complaint("verify", NOBODY, option, "basic")
    assert "no such check or group: basic" in said
    assert "'basics'" in said
    assert "tools" in complaint("verify", NOBODY, option, "zzzz")


def test_a_bad_plan_is_refused_without_a_log(tmp_path: Path) -> None:
    """PLAN041 before anything is sent."""
    plan = tmp_path / "bin.dat"
    plan.write_bytes(b"\xff\x00")
    assert "is no plan" in complaint("verify", NOBODY, "--plan", plan)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-c", "1", "--rate", "2"), "give one of them"),
        (("--find", "max-concurrency", "--slo", "e2e_p99=1s", "--rate", "2"), "give one of them"),
        (("--shared-tokens", "9", "--prompt-tokens", "8"), "--shared-tokens 9 is more than"),
        (("--rate", "nan"), "no finite number"),
        (("--timeout", "inf"), "no finite number"),
        (("--max-error-rate", "nan"), "no finite number"),
    ],
)
def test_loads_that_contradict_themselves(options: tuple[str, ...], words: str) -> None:
    """Refused rather than half obeyed."""
    assert words in complaint("bench", NOBODY, *options)


def test_runs_without_requests_are_not_compared(tmp_path: Path) -> None:
    """An empty table would look like no difference."""
    empty = tmp_path / "empty"
    empty.touch()
    assert "holds no request" in complaint("bench", "compare", empty, empty)
    assert "holds no request" in complaint("bench", NOBODY, "--trace", empty)
    assert "0 characters, at least" in complaint("bench", NOBODY, "--text", empty)


@pytest.mark.parametrize(
    ("command", "option"),
    [("verify", "--junit"), ("verify", "--html"), ("bench", "--html"), ("bench", "--samples")],
)
def test_a_file_that_cannot_be_written_is_found_before_the_run(
    command: str, option: str, tmp_path: Path
) -> None:
    """Not after minutes of work."""
    path = tmp_path / "missing" / "x"
    said = complaint(command, NOBODY, option, path)
    assert str(path) in said
    assert "cannot be written" in said


def test_rows_that_say_too_little(tmp_path: Path) -> None:
    """The line and what it needs."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"ok": true}\n')
    assert "line 1, is no graded answer: it needs an id" in complaint("quality", rows, rows)
    assert "does not say how long the prompt is" in complaint("bench", NOBODY, "--trace", rows)
    rows.write_text("\n{\n")
    assert "line 2, cannot be read" in complaint("quality", rows, rows)
    assert "line 2, cannot be read" in complaint("quality", NOBODY, NOBODY, "--questions", rows)


@pytest.mark.parametrize(
    "options",
    [
        ("batch", "run", "x", "--wait", "nan"),
        ("decide", "--rent", "inf"),
        ("decide", "--buy", "nan"),
    ],
)
def test_other_commands_refuse_what_is_no_number(options: tuple[str, ...]) -> None:
    """`nan` compares with nothing and would pass any range."""
    assert "no finite number" in complaint(*options)
