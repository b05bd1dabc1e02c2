"""`heavylift lint` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from heavylift.cli.lint import MOST_BYTES, command
from heavylift.errors import Exit, HeavyliftError

BROKEN = "VLLM_ENGINE_READY_TIMEOUT=60 vllm serve moonshotai/Kimi-K3 --tensor-parallel-size 8"
SOUND = (
    "vllm serve acme/chat --max-model-len 8192 --tool-call-parser hermes --enable-auto-tool-choice"
)


def run(text: str, *options: str) -> tuple[Any, str]:
    """Exit status and output of a run on standard input."""
    result = CliRunner().invoke(command, [*options], input=text, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout


def test_json_contract() -> None:
    """JSON has findings with code, rule, severity, subject, message, fix and source, and the
    mended text; the status is 1 when something is wrong.
    """
    status, output = run(BROKEN, "-", "--json")
    document = json.loads(output)
    assert status == Exit.NEGATIVE
    finding = next(each for each in document["findings"] if each["rule"] == "unknown_env")
    assert finding["code"] == ("unknown_env:VLLM_ENGINE_READY_TIMEOUT->VLLM_ENGINE_READY_TIMEOUT_S")
    assert finding["severity"] == "warn"
    assert finding["subject"] == "VLLM_ENGINE_READY_TIMEOUT"
    assert finding["source"].startswith("vLLM 0.32.0")
    assert finding["message"]
    assert "VLLM_ENGINE_READY_TIMEOUT_S" in finding["fix"]
    assert "VLLM_ENGINE_READY_TIMEOUT_S=60" in document["mended"]


def test_a_sound_command_exits_with_0() -> None:
    """Remarks alone are no negative verdict."""
    status, output = run(SOUND)
    assert status == Exit.OK
    assert output.startswith("shell · vLLM · acme/chat")


def test_text_is_no_wider_than_the_terminal() -> None:
    """Findings wrap at 80 columns; each begins with a glyph and a word."""
    _, output = run(BROKEN, "--on", "8x H200", "--engine-version", "0.32.0")
    findings = output.partition("Mended command:")[0].splitlines()
    assert max(map(len, findings)) <= 80
    assert any(line.startswith("x fail    weights_do_not_fit") for line in findings)


def test_the_model_may_be_said_beside() -> None:
    """A path that names no model is judged as the model that is named."""
    status, output = run("vllm serve /data/x --tensor-parallel-size 8", "--model", "kimi-k3")
    assert status == Exit.NEGATIVE
    assert "no_trust_remote_code" in output


def test_nothing_known() -> None:
    """A text without a command is unknown, not clean."""
    status, output = run("hello")
    assert status == Exit.INPUT
    assert "? unknown no_command" in output


def test_a_file(tmp_path: Path) -> None:
    """A file is read like standard input."""
    path = tmp_path / "run.sh"
    path.write_text(SOUND)
    assert run("", str(path))[0] == Exit.OK


def test_a_file_that_is_no_command(tmp_path: Path) -> None:
    """A file of megabytes is refused before it is read."""
    path = tmp_path / "big"
    path.write_bytes(b"x" * (MOST_BYTES + 1))
    with pytest.raises(HeavyliftError) as caught:
        run("", str(path))
    assert caught.value.code == "LINT002"


def test_a_rack_nobody_knows_is_named() -> None:
    """The command is judged all the same; a loose name and a machine's memory are known."""
    told = {
        rack: CliRunner().invoke(command, ["--on", rack], input=BROKEN, standalone_mode=False)
        for rack in ("any box", "2x8 H200", "M3 Ultra 512 GB")
    }
    assert "'any box'" in told["any box"].stderr
    assert "unknown_env" in told["any box"].stdout
    assert told["2x8 H200"].stderr == told["M3 Ultra 512 GB"].stderr == ""
