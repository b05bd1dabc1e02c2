"""Rehearsals with the real vLLM on a CPU: models that have a config and no weights at all.

Runs by `make test-vllm` alone, as `test_up_vllm`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.deployments import Field, field_of_deployments
from tests.vllm.test_up_vllm import LARGEST_BLOCK, recipe

from heavylift.operate.rehearse import RehearseWish, rehearse
from heavylift.records.deployment import Phase
from heavylift.records.launch import LaunchSpec
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


def rehearsed(tmp_path: Path, model: Path, layers: int | None) -> Rehearsal:
    """A rehearsal of the recipe of a model's folder, with its config's context."""
    folder = tmp_path / f"recipe-{layers}"
    recipe(folder, str(model))
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
