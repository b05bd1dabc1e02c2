"""Rehearsals with the real vLLM on a CPU: models that have a config and no weights at all.

Runs by `make test-vllm` alone, as `test_up_vllm`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.deployments import Field, field_of_deployments
from tests.vllm.test_up_vllm import CONTEXT, LARGEST_BLOCK, plan_of, recipe

from heavylift.operate.rehearse import RehearseWish, rehearse
from heavylift.records.deployment import Phase
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Agreement, Plan
from heavylift.records.rehearsal import Rehearsal
from heavylift.units import GIB

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        "HEAVYLIFT_VLLM_ENV" not in os.environ, reason="HEAVYLIFT_VLLM_ENV: see make test-vllm"
    ),
]

LAYERS = 4


@pytest.fixture
def deployed() -> Iterator[Field]:
    """A field of deployments."""
    with field_of_deployments() as there:
        yield there


def without_weights(tmp_path: Path, name: str, **over: Any) -> Path:
    """A model's folder as made, its weights left out, its config changed."""
    source = Path(os.environ["HEAVYLIFT_VLLM_MODELS"]) / name
    folder = tmp_path / f"{name}-bare"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors*", "*.bin"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **over}))
    return folder


def rehearsed(
    tmp_path: Path, model: Path, layers: int | None, plan: Plan | None = None
) -> Rehearsal:
    """A rehearsal of the recipe of a model's folder, with its config's context."""
    folder = tmp_path / f"recipe-{layers}"
    recipe(folder, str(model))
    if plan is not None:
        (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
    spec = msgspec.json.decode((folder / "launch.json").read_bytes(), type=LaunchSpec)
    spec = replace(spec, model_path=str(model))
    (folder / "launch.json").write_bytes(msgspec.json.encode(spec))
    return rehearse(RehearseWish(folder=folder, layers=layers), lambda _run: None)


@pytest.mark.parametrize("layers", [LAYERS, None])
def test_a_dense_model_without_weights_comes_up(
    deployed: Field, tmp_path: Path, layers: int | None
) -> None:
    """The tokens of the cache follow from the layers that are left, or from all of them."""
    del deployed
    model = without_weights(tmp_path, "smollm2")
    config = json.loads((model / "config.json").read_text())
    found = rehearsed(tmp_path, model, layers)
    assert found.passed, found
    head = config["hidden_size"] // config["num_attention_heads"]
    count = layers or config["num_hidden_layers"]
    each = count * config["num_key_value_heads"] * head * 2 * 2
    assert 0 <= GIB // each - found.figures["kv_tokens"] < LARGEST_BLOCK
    assert {Phase.PROCESS, Phase.WEIGHTS, Phase.MEMORY} <= {each.phase for each in found.phases}


def test_a_hybrid_is_cut_with_its_list_of_layers(deployed: Field, tmp_path: Path) -> None:
    """Eight layers in the config, four left: the list of their kinds has four entries."""
    del deployed
    kinds = json.loads(
        (Path(os.environ["HEAVYLIFT_VLLM_MODELS"]) / "hybrid" / "config.json").read_text()
    )["layer_types"]
    model = without_weights(tmp_path, "hybrid", num_hidden_layers=8, layer_types=[*kinds, *kinds])
    found = rehearsed(tmp_path, model, LAYERS)
    assert found.passed, found
    assert found.layers == LAYERS


def test_latent_attention_and_experts_come_up_at_full_size(deployed: Field, tmp_path: Path) -> None:
    """The kernels of latent attention and of experts, on weights that nobody wrote."""
    del deployed
    found = rehearsed(tmp_path, without_weights(tmp_path, "mla"), None)
    assert found.passed, found
    assert found.figures["kv_tokens"] > 0


@pytest.mark.parametrize("layers", [LAYERS, None])
def test_the_receipt_of_a_rung_is_taken_by_the_plan(
    deployed: Field, tmp_path: Path, layers: int | None
) -> None:
    """What the real vLLM told of its memory stands in the plan of the same start: of all layers
    compared term by term, of four as what the whole takes at least.
    """
    del deployed
    whole = Path(os.environ["HEAVYLIFT_VLLM_MODELS"]) / "smollm2"
    found = rehearsed(tmp_path, without_weights(tmp_path, "smollm2"), layers, plan_of(whole))
    assert found.passed, found
    assert found.receipt is not None
    assert found.receipt_file is not None
    told = {term.term: term for term in found.receipt.terms}
    assert told["pool"].bytes == GIB
    words = ["plan", str(whole), "--on=1xH100", "--engine=vllm", "--engine-version=0.32.0"]
    words += [f"--context={CONTEXT}", "--concurrency=1", "--kv-dtype=bf16", "--json"]
    result = subprocess.run(
        [sys.executable, "-m", "heavylift", *words, "--receipt", found.receipt_file],
        check=False,
        capture_output=True,
        text=True,
    )
    plan = msgspec.json.decode(result.stdout, type=Plan)
    assert plan.receipt == found.receipt.taken_at
    notes = {note.code: note.params for note in plan.notes}
    assert "receipt_of_other" not in notes
    rows = {row.term: row for row in plan.measured}
    if layers is None:
        # On a CPU vLLM tells its pool and the tokens in it, and not what its weights took.
        assert rows["kv_bytes_per_token"].agreement is Agreement.EQUAL
    else:
        assert notes["receipt_of_layers"] == {"layers": LAYERS}
        assert rows == {}
