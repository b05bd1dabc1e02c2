"""Every vLLM command that recipes emit, read by vLLM's own argument parser.

Needs an environment with vLLM (`make test-vllm-args` makes one of the CPU build); its Python is
named in HEAVYLIFT_VLLM_PYTHON. The package is never imported here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heavylift.recipe.job import Start
from heavylift.reciping import RecipeWish, Reciping
from heavylift.records.launch import resolve
from heavylift.records.plan import PlanRequest, Rack
from heavylift.records.recipe import Recipe

HERE = Path(__file__).parent
PYTHON = os.environ.get("HEAVYLIFT_VLLM_PYTHON", "")
VERSION = "0.32.0"
SIZES = ("tensor", "pipeline", "data", "expert", "decode_context")

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="no environment with vLLM is named"),
]


def _recipe(reciping: Reciping, model: str, rack: str, given: dict[str, object]) -> Recipe:
    given = {**given, "engine_version": VERSION}
    layout = {name: given.pop(name) for name in SIZES if name in given}
    start, split = given.pop("start", {}), given.pop("split", None)
    replicas = given.pop("replicas", 1)

    def ask(each: Rack) -> PlanRequest:
        return PlanRequest(model=model, rack=each, layout_constraints=layout, **given)  # type: ignore[arg-type]

    return reciping.recipe(
        RecipeWish(
            model=model,
            rack=rack,
            ask=ask,
            engine="vllm",
            start=Start(**start),  # type: ignore[arg-type]
            split=split,  # type: ignore[arg-type]
            replicas=replicas,  # type: ignore[arg-type]
        )
    )


def _commands() -> dict[str, list[str]]:
    path = HERE.parent / "unit/recipe/kept.py"
    spec = importlib.util.spec_from_file_location("kept_for_vllm", path)
    assert spec is not None
    assert spec.loader is not None
    kept = importlib.util.module_from_spec(spec)
    sys.modules["kept_for_vllm"] = kept
    spec.loader.exec_module(kept)
    reciping, found = Reciping(), {}
    for model, rack, engine, given in kept.WRITTEN:
        if engine != "vllm":
            continue
        launch = _recipe(reciping, model, rack, dict(given)).launch
        assert launch is not None
        hosts = {rank.name: f"10.0.0.{n + 1}" for n, rank in enumerate(launch.ranks)}
        for rank in launch.ranks:
            if rank.argv[0] == "vllm":
                name = f"{rack} {given} {rank.name}"
                found[name] = list(resolve(rank, hosts).argv[1:])
    return found


def test_vllm_takes_every_command_that_is_emitted_for_it() -> None:
    """Flags, values and pairs of them, as vllm serve of that version checks them."""
    commands = _commands()
    wrong = ["serve", "a/model", "--no-such-flag-anywhere"]
    result = subprocess.run(
        [PYTHON, str(HERE / "vllm_arguments_child.py")],
        input=json.dumps([*commands.values(), wrong]),
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "VLLM_TARGET_DEVICE": "cpu"},
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    *answers, control = json.loads(result.stdout.splitlines()[-1])
    assert control is not None
    refused = {
        name: answer for name, answer in zip(commands, answers, strict=True) if answer is not None
    }
    assert not refused
    assert len(answers) > 25
