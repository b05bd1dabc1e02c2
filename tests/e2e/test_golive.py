"""Go-live reports of deployments that run: llama.cpp, and a scripted engine that passes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.deployments import Field, write_recipe
from tests.e2e.test_rehearse import deployed, heavylift
from tests.unit.golive.test_judge import parse

pytestmark = pytest.mark.e2e

__all__ = ["deployed"]  # a fixture of another module

OBLIGING = """
[server]
models = ["scripted"]
context_tokens = 2048
[reply]
mind = "obliging"
"""


def golive(*words: str) -> tuple[int, dict[str, Any]]:
    """The status, and the points of the report by name."""
    code, out, err = heavylift("golive", *words, "--json")
    assert out, err
    return code, {each["id"]: each for each in json.loads(out)["points"]}


@pytest.fixture
def embedded(deployed_embedded: Field) -> Field:
    """A field of deployments with the embedded engine."""
    return deployed_embedded


def test_the_real_engine_goes_as_far_as_was_proven(embedded: Field) -> None:
    """Brought up, asked, measured: these points are proven by their files; the others are missing,
    each with a command that parses. The command for the weights proves them: their package states
    their digest. A part of the checks is no acceptance.
    """
    embedded.names.append("e")
    code, _, err = heavylift(
        *("up", "smollm2", "--name", "e", "--context", "1024", "--concurrency", "1"),
    )
    assert code == 0, err
    code, _, err = heavylift(
        *("verify", "e", "--profile", "acceptance", "--only", "basics.models"),
        *("--answer-tokens", "16"),
    )
    assert code == 0, err
    code, _, err = heavylift(
        *("bench", "e", "--concurrency", "1", "--requests", "2", "--output-tokens", "8"),
        *("--prompt-tokens", "32", "--warm-up", "0", "--slo", "ttft_p99=100s"),
    )
    assert code == 0, err
    _, points = golive("e")
    assert points["checkpoint"]["standing"] == "missing"
    assert heavylift(*shlex.split(points["checkpoint"]["command"])[1:])[0] == 0
    code, points = golive("e")
    assert code == 1
    proven = {name for name, each in points.items() if each["standing"] == "proven"}
    assert {
        "checkpoint",
        "plan",
        "load",
        "smoke",
        "memory",
        "alive",
        "bench",
        "load_test",
        "doctor",
    } <= proven
    for name in ("bench", "smoke", "load", "doctor"):
        assert Path(points[name]["evidence"]["path"]).is_file(), name
    assert (points["acceptance"]["standing"], points["acceptance"]["reason"]) == (
        "missing",
        "verify_narrowed",
    )
    for name, each in points.items():
        if name not in proven:
            parse(shlex.split(each["command"])[1:])
    code, _ = golive("e", "--require", "bench,load_test,alive")
    assert code == 0


def test_a_proof_ends_with_its_release(deployed: Field, tmp_path: Path) -> None:
    """Accepted as release 1; the next one is another, and both numbers are told. Going back to the
    first, its proofs count again.
    """
    deployed.follow(deployed.up(write_recipe(tmp_path / "one", OBLIGING)))
    code, out, err = heavylift(
        *("verify", "d", "--profile", "acceptance", "--answer-tokens", "64"),
    )
    assert code == 0, out + err
    _, points = golive("d")
    assert points["acceptance"]["standing"] == "proven"
    assert points["acceptance"]["params"]["profile"] == "acceptance"
    second = write_recipe(tmp_path / "two", OBLIGING, version="2")
    deployed.follow(deployed.up(second, replace=True))
    _, points = golive("d")
    assert (points["acceptance"]["standing"], points["acceptance"]["reason"]) == (
        "missing",
        "other_release",
    )
    assert points["acceptance"]["params"] == {"theirs": "1", "ours": "2"}
    assert points["load"]["standing"] == "proven"
    assert heavylift("rollback", "d", "--to", "1")[0] in (0, 1)
    assert golive("d")[1]["acceptance"]["standing"] == "proven"
