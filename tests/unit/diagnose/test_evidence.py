"""Where logs come from."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from heavylift.diagnose.evidence import latest, open_log
from heavylift.errors import HeavyliftError


def test_the_journal_of_a_unit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit's name is one argument of journalctl, whatever is in it."""
    program = tmp_path / "journalctl"
    program.write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with open_log("journal:my unit") as stream:
        assert stream.read().splitlines()[-2:] == [b"--unit", b"my unit"]
    with open_log("journal:") as stream:
        assert stream.read().splitlines()[-1] == b"--dmesg"


def test_a_machine_without_a_journal_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every machine has systemd."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(HeavyliftError, match="DIA004"), open_log("journal:x"):
        pass


def test_the_log_written_last_is_taken(tmp_path: Path) -> None:
    """By its time, in any folder beneath."""
    for name, time in (("a/old.log", 1), ("b/new.log", 2)):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("", "utf-8")
        os.utime(path, (time, time))
    assert latest(tmp_path) == str(tmp_path / "b" / "new.log")
