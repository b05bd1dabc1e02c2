"""How errors are written: nothing in a name reaches the terminal as a command to it."""

from __future__ import annotations

import pytest

from heavylift.cli.errors import show
from heavylift.errors import HeavyliftError
from heavylift.facts.defects import Defect, FactsError

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
