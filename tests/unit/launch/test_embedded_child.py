"""The embedded engine's process, as far as it needs no engine."""

from __future__ import annotations

import sys

import pytest

from heavylift.launch.embedded_child import announce


def test_the_address_has_a_line_of_its_own_inside_another_writer_s_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Seen on a busy machine: llama.cpp had written the time of its next line and not the text."""
    sys.stdout.write("0.00.463.013 ")
    announce("http://127.0.0.1:43435")
    sys.stdout.write("I srv    load_model: loaded\n")
    assert "READY http://127.0.0.1:43435" in capsys.readouterr().out.splitlines()
