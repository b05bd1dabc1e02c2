"""The library: what other programs call, and that it says what the command line says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import heavylift
from heavylift import api
from heavylift.errors import HeavyliftError
from heavylift.records.plan import PlanVerdict

SHORT = api.Workload(engine="atom", context_tokens=1_048_576, vision=False)


def test_a_plan_is_the_record_that_the_command_writes(tmp_path: Path) -> None:
    """`api.plan` and `plan --json` are one."""
    run = [sys.executable, "-m", "heavylift", "plan", "kimi-k3", "--on", "8xMI355X", "--json"]
    run += ["--engine", "atom", "--context", "1M", "--text-only"]
    done = subprocess.run(
        run, capture_output=True, check=False, env={"HEAVYLIFT_HOME": str(tmp_path)}
    )
    plan = api.plan("kimi-k3", "8xMI355X", SHORT)
    assert msgspec.json.decode(msgspec.json.encode(plan)) == msgspec.json.decode(done.stdout)


def test_the_package_itself_can_be_asked() -> None:
    """`heavylift.plan(…)` works before and after the package of that name was imported."""
    code = (
        "import heavylift\n"
        "first = heavylift.plan('kimi-k3', '8xH200')\n"
        "from heavylift.plan.memory import __name__ as inside\n"
        "again = heavylift.plan('kimi-k3', on='8xH200')\n"
        "assert first == again and inside == 'heavylift.plan.memory'\n"
        "print(first.verdict, heavylift.compare('kimi-k3', ['8xH200']).rows[0].plan.verdict)\n"
        "print(heavylift.lint('vllm serve x').form, callable(heavylift.diagnose))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split()[:2] == ["does_not_fit", "does_not_fit"], done.stderr
    assert done.stdout.split()[-1] == "True"


def test_importing_it_loads_nothing_of_it() -> None:
    """`import heavylift` costs the interpreter's own start and no more."""
    code = "import sys, heavylift; print(*(m for m in sys.modules if m.startswith('heavylift')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["heavylift"]


def test_a_card_alone_is_planned_on_the_smallest_count_that_holds() -> None:
    """A rack without a count is searched."""
    plan = api.plan("llama-3.1-8b", "H100", api.Workload(context_tokens=8192))
    assert (plan.rack.gpu_count, plan.verdict) == (1, PlanVerdict.FITS)


def test_what_cannot_be_planned_is_a_failure_of_its_rack() -> None:
    """One bad rack spoils no other's row."""
    found = api.compare("kimi-k3", ["8xMI355X", "8xNOSUCH"], SHORT)
    assert [row.plan.rack.label for row in found.rows] == ["8xMI355X"]
    assert [failure.code for failure in found.failures] == ["FACT011"]


def test_errors_carry_a_code() -> None:
    """An unknown model is an error that a program can tell from others."""
    with pytest.raises(HeavyliftError) as caught:
        api.plan("no-such-model", "8xH200")
    assert caught.value.code == "FACT010"


def test_a_command_is_linted_and_mended() -> None:
    """Findings with rules, and the text to run instead."""
    report = api.lint("vllm serve moonshotai/Kimi-K3 --tensor-parallel-size 8", on="8xMI355X")
    assert "no_trust_remote_code" in {finding.rule for finding in report.findings}
    assert "--trust-remote-code" in report.mended


def test_a_log_is_diagnosed(tmp_path: Path) -> None:
    """The cause, with the line it rests on."""
    log = tmp_path / "engine.log"
    log.write_text("OSError: [Errno 98] Address already in use\n")
    assert api.diagnose(log).recognised


def test_unknown_names_of_the_package_are_attribute_errors() -> None:
    """The package does not pretend to have what it has not."""
    with pytest.raises(AttributeError):
        _ = heavylift.no_such_thing
