"""How errors are written: nothing in a name reaches the terminal as a command to it."""

from __future__ import annotations

import json
from collections.abc import Callable

import click
import pytest

from heavylift.cli.errors import run as run_command
from heavylift.cli.errors import show
from heavylift.cli.output import json_option, sink
from heavylift.errors import HeavyliftError
from heavylift.facts.defects import Defect, FactsError

from .conftest import Ran

_NAME = "gpus/\x1b[2J\x1b]0;owned\x07[bold red]x\r\n\u202e.toml"
_SHOWN = "gpus/\\x1b[2J\\x1b]0;owned\\x07[bold red]x\\r\\n\\u202e.toml"


def test_a_strangers_name_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a defect its path and its detail: escapes are written out, and markup is only letters."""
    show(FactsError([Defect(_NAME, "file_unreadable", _NAME), Defect("b", "file_unreadable", "c")]))
    written = capsys.readouterr().err
    assert f"  {_SHOWN}: " in written
    assert written.count(_SHOWN) >= 2
    assert all(line.isprintable() for line in written.splitlines())


def test_a_hint_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    """A command to type may hold a name too."""
    show(HeavyliftError("STA004", {"detail": _NAME}, hint_command=f"heavylift x {_NAME}"))
    written = capsys.readouterr().err
    assert written.count(_SHOWN) == 2
    assert all(line.isprintable() for line in written.splitlines())


def test_a_program_gets_an_error_as_one_object(run: Callable[..., Ran]) -> None:
    """On standard output, wherever `--json` stands; the text and the status stay."""
    asked = ("plan", "no-such-model", "--on", "8xB300")
    plain, ran = run(*asked), run(asked[0], "--json", *asked[1:])
    told = json.loads(ran.out)["error"]
    assert set(told) == {"code", "params", "message", "hint_command", "docs_command", "exit_status"}
    assert f"docs: {told['docs_command']}" in ran.err
    assert plain.err == ran.err
    assert f"error[{told['code']}]: {told['message']}" in ran.err
    assert plain.out == ""
    assert plain.status == ran.status == told["exit_status"]


@pytest.mark.parametrize(
    "asked", [("plan", "--json"), ("plan", "--no-such", "--json"), ("pln", "--json")]
)
def test_a_usage_error_is_an_object_too(run: Callable[..., Ran], asked: tuple[str, ...]) -> None:
    """With the code of what the command line itself got wrong."""
    ran = run(*asked)
    told = json.loads(ran.out)["error"]
    assert (told["code"], told["exit_status"], ran.status) == ("USE000", 2, 2)
    assert told["message"] in ran.err


def test_what_follows_the_options_asks_for_nothing(run: Callable[..., Ran]) -> None:
    """After `--` a word is a word."""
    assert run("plan", "--no-such", "--", "--json").out == ""


def test_a_result_is_not_followed_by_a_second_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A command that fails after it wrote its own JSON leaves that alone on standard output."""

    @click.command()
    @json_option
    def late(as_json: bool) -> None:
        sink(as_json).record("batch", {"done": 3})
        raise HeavyliftError("STA004", {"detail": "x"})

    with pytest.raises(SystemExit):
        run_command(late, ["--json"])
    written = capsys.readouterr()
    assert json.loads(written.out) == {"done": 3}
    assert "error[STA004]" in written.err


def test_the_advice_about_a_mistake_of_ours_can_be_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It names the command, with the flag where it is taken."""

    @click.command()
    def broken() -> None:
        raise ZeroDivisionError

    @click.group()
    @click.option("--debug", is_flag=True)
    def group(debug: bool) -> None:
        assert not debug

    group.add_command(broken, "broken")
    with pytest.raises(SystemExit) as left:
        run_command(group, ["broken"])
    assert "heavylift --debug broken" in capsys.readouterr().err
    assert left.value.code == 70


@pytest.mark.parametrize("before", [(), ("keys",), ("keys", "create")])
def test_help_has_a_short_flag(run: Callable[..., Ran], before: tuple[str, ...]) -> None:
    """On the tool, a group and a command."""
    ran = run(*before, "-h")
    assert ran.status == 0
    assert ran.out.startswith("Usage: heavylift")


def test_an_unknown_command_gets_the_near_ones(run: Callable[..., Ran]) -> None:
    """At the top as inside a group."""
    assert "did you mean 'verify'" in run("verfiy").err
    assert "Did you mean 'create'" in run("keys", "creat").err
