"""The gate of an engine upgrade: on the embedded engine, and by every outcome of its parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
import yaml
from tests.examples.conftest import EXAMPLES, REAL, Service, program

GATE: Final = EXAMPLES / "upgrade-gate"
GATES: Final = ("verify", "quality", "bench reference", "bench candidate", "bench compare")
SMALL: Final = {
    "VERIFY_ARGS": f"--only basics.models --only basics.whole --model {REAL} --answer-tokens 16",
    "BENCH_ARGS": f"--model {REAL} --concurrency 2 --requests 4 --prompt-tokens 32"
    " --output-tokens 8 --ignore-eos --warm-up 0",
}
"""What a model of 135 million parameters does in seconds."""

slower: Any = program("upgrade-gate/slower.py")
Outcomes = dict[str, str]


def gate(reference: str, candidate: str, folder: Path, **environment: str) -> tuple[int, Outcomes]:
    """Exit status and outcome of every gate."""
    reports, summary = folder / "reports", folder / "step-summary.md"
    done = subprocess.run(
        [str(GATE / "gate.sh"), reference, candidate],
        env={
            **os.environ,
            "REPORTS": str(reports),
            "GITHUB_STEP_SUMMARY": str(summary),
            **environment,
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == summary.read_text()
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    return done.returncode, dict(rows)


@pytest.mark.e2e
def test_a_real_engine_beside_itself(
    service: Service, tmp_path: Path, heavylift_command: Path
) -> None:
    """Every gate is asked and leaves its report, and the status is the worst outcome. Which it is,
    a loaded machine and a tiny model decide.
    """
    questions = tmp_path / "questions.jsonl"
    capitals = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Egypt": "Cairo"}
    questions.write_text(
        "".join(
            json.dumps(
                {
                    "id": country,
                    "group": "facts",
                    "language": "en",
                    "text": f"What is the capital of {country}?",
                    "expected": [capital],
                    "max_tokens": 8,
                }
            )
            + "\n"
            for country, capital in capitals.items()
        )
    )
    quality = f"--questions {questions} --no-noise-floor --no-divergence --margin 0.5"
    models = f"--reference-model {REAL} --candidate-model {REAL}"
    status, outcomes = gate(
        service.engine_url,
        service.engine_url,
        tmp_path,
        HEAVYLIFT=str(heavylift_command),
        HEAVYLIFT_API_KEY=service.engine_key,
        QUALITY_ARGS=f"{quality} {models}",
        **SMALL,
    )
    measured = {outcomes["bench reference"], outcomes["bench candidate"]} == {"pass"}
    assert set(outcomes) == set(GATES if measured else GATES[:-1])
    expected = {"FAIL": 1, "not decided": 8, "pass": 0}
    assert status == next(code for word, code in expected.items() if word in outcomes.values())
    reports = tmp_path / "reports"
    for name in ("verify", "quality", "bench-reference", "bench-candidate"):
        assert json.loads((reports / f"{name}.json").read_text())
    assert ET.parse(reports / "verify.xml").getroot().tag == "testsuite"  # noqa: S314
    assert outcomes["quality"] in ("pass", "not decided")


@pytest.mark.e2e
def test_an_engine_that_answers_nonsense_does_not_pass(
    service: Service, tmp_path: Path, heavylift_command: Path
) -> None:
    """A scripted engine in place of the upgraded one answers other words than were asked for."""
    status, outcomes = gate(
        service.engine_url,
        service.scripted_url,
        tmp_path,
        HEAVYLIFT=str(heavylift_command),
        HEAVYLIFT_API_KEY=service.engine_key,
        VERIFY_ARGS="--only basics.chat",
        QUALITY_ARGS="--group facts --per-group 2 --max-tokens 8 --no-divergence",
        BENCH_ARGS="--requests 2 --prompt-tokens 32 --output-tokens 4 --warm-up 0",
    )
    assert status in (1, 5)
    assert outcomes["verify"] == "FAIL"


@pytest.fixture
def pretend(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """`pretend(verify=1, compare=1, low=0.2)`: a `heavylift` that ends with these statuses."""

    def make(low: float = 0.0, **statuses: int) -> dict[str, str]:
        path = tmp_path / "heavylift"
        cases = "\n".join(f"  {name}) exit {status} ;;" for name, status in statuses.items())
        change = {"metric": "ttft_p50", "a": 1.0, "low": low, "is_worse": True}
        path.write_text(
            f"#!/bin/sh\necho '{json.dumps({'changes': [change]})}'\n"
            f'name=$1; if [ "$2" = compare ]; then name=compare; fi\n'
            f"case $name in\n{cases}\nesac\n"
        )
        path.chmod(0o755)
        return {"HEAVYLIFT": str(path)}

    return make


@pytest.mark.parametrize(
    ("statuses", "expected", "changed"),
    [
        ({}, 0, {}),
        ({"verify": 1}, 1, {"verify": "FAIL"}),
        ({"quality": 8}, 8, {"quality": "not decided"}),
        ({"quality": 8, "verify": 1}, 1, {"quality": "not decided", "verify": "FAIL"}),
        ({"quality": 5, "verify": 1}, 5, {"quality": "ERROR (5)", "verify": "FAIL"}),
        ({"verify": 130}, 5, {"verify": "ERROR (130)"}),
        ({"compare": 1, "low": 0.04}, 0, {}),
        ({"compare": 1, "low": 0.2}, 1, {"bench compare": "FAIL"}),
    ],
)
def test_the_worst_outcome_decides_and_nothing_is_left_out(
    statuses: dict[str, Any],
    expected: int,
    changed: Outcomes,
    pretend: Callable[..., dict[str, str]],
    tmp_path: Path,
) -> None:
    """A failed tool before a no, a no before a perhaps; a slowdown of less than 5 % is none."""
    status, outcomes = gate("http://old", "http://new", tmp_path, **pretend(**statuses))
    assert status == expected
    assert outcomes == dict.fromkeys(GATES, "pass") | changed


def test_an_invalid_measurement_is_not_compared(
    pretend: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    """What says of itself that it measured nothing decides nothing but a no."""
    status, outcomes = gate("http://old", "http://new", tmp_path, **pretend(bench=1))
    assert status == 1
    assert "bench compare" not in outcomes


def test_the_workflow_is_one_and_passes_inputs_as_variables() -> None:
    """GitHub's schema takes it, and no input stands in the text of a script."""
    path = GATE / "upgrade.yml"
    command = ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    here = Path(sys.executable).parent
    command[0] = str(here / command[0])
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    steps = yaml.safe_load(path.read_text())["jobs"]["gate"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert any("gate.sh" in script for script in scripts)
    assert all("${{" not in script for script in scripts)


@pytest.mark.parametrize("script", sorted(EXAMPLES.rglob("*.sh")), ids=lambda path: path.name)
def test_the_scripts_are_clean(script: Path) -> None:
    """Shellcheck finds nothing."""
    here = Path(sys.executable).parent
    shellcheck = here / "shellcheck"
    if not shellcheck.exists():
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([shellcheck, script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
