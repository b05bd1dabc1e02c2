"""Architectures without a model in the catalogue: their tensors against an independent count."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from heavylift.checkpoint.config import ConfigFile, model_from_config
from heavylift.checkpoint.inventory import from_facts
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import FamilyFacts, ModelFacts

CATALOG = Catalog()
GOLDEN = Path(__file__).parents[2] / "golden" / "architectures.toml"
ARCHITECTURES = [
    pytest.param(entry, id=entry["config"]["model_type"])
    for entry in tomllib.loads(GOLDEN.read_text("utf-8"))["architecture"]
]


def read(document: dict[str, Any]) -> tuple[ModelFacts, FamilyFacts]:
    """The model of a config."""
    config = ConfigFile(path="config.json", document=document, read_on=date(2026, 11, 30))
    family = CATALOG.family_for_hf_type(config.model_type())
    assert family is not None
    model = model_from_config(config, family, identifier="x", formats=("safetensors",))
    return model, family


def config_of(model_type: str) -> dict[str, Any]:
    """The golden config of a type."""
    configs = [param.values[0] for param in ARCHITECTURES]
    return next(
        dict(entry["config"])  # type: ignore[index]
        for entry in configs
        if entry["config"]["model_type"] == model_type  # type: ignore[index]
    )


@pytest.mark.parametrize("entry", ARCHITECTURES)
def test_parameters_are_those_of_an_independent_count(entry: dict[str, Any]) -> None:
    """Buffers that one of the two counts are below a part in a hundred thousand."""
    model, family = read(entry["config"])
    inventory = from_facts(model, family, model.variants[0])
    assert inventory.params_total == pytest.approx(entry["parameters"], rel=1e-5)


def test_letters_and_words_say_which_layers_are_which() -> None:
    """Nemotron's pattern is a text, others have a list; what is neither is refused elsewhere."""
    model = CATALOG.model("nemotron-3-nano")
    sets = [model.layer_set(name) for name in ("mamba", "attention", "moe", "dense")]
    assert [len(layers) for layers in sets] == [23, 6, 23, 0]
    assert sorted(layer for layers in sets for layer in layers) == list(range(52))


def test_every_so_manyth_layer_is_full() -> None:
    """Qwen3-Next states an interval of 4, Gemma 3 leaves out its 6."""
    model, _ = read(config_of("qwen3_next"))
    assert model.layer_set("full")[:3] == (3, 7, 11)
    model, _ = read(config_of("gemma3_text"))
    assert model.layer_set("full") == (5, 11, 17, 23)
    assert len(model.layer_set("sliding")) == 22


def test_chunks_are_windows_and_the_layers_without_positions_see_all() -> None:
    """Llama 4: three of four layers attend within 8,192 tokens."""
    model, family = read(config_of("llama4_text"))
    assert len(model.layer_set("chunked")) == 36
    assert model.layer_set("full")[0] == 3
    assert {cache.window for cache in family.caches} == {0, "chunk"}


def test_an_encoder_has_weights_and_no_caches() -> None:
    """BERT is recognised: nothing of it grows."""
    _, family = read(config_of("bert"))
    assert not family.caches
    assert not family.states


def test_nested_and_flat_configs_are_one_model() -> None:
    """Fields of `text_config` count before those beside it."""
    flat = config_of("mistral")
    nested = {"model_type": "mistral", "text_config": {**flat}, "hidden_size": 7}
    assert read(flat)[0].dim_values == read(nested)[0].dim_values


@pytest.mark.parametrize(
    ("model_type", "changed", "code"),
    [
        ("qwen3_next", {"full_attention_interval": 0}, "PLAN053"),
        ("lfm2", {"layer_types": None}, "PLAN052"),
        ("lfm2", {"layer_types": ["conv"]}, "PLAN053"),
        ("lfm2", {"layer_types": 32}, "PLAN053"),
    ],
)
def test_layers_that_are_not_stated_are_named(
    model_type: str, changed: dict[str, Any], code: str
) -> None:
    """A missing list, one that is too short, and what is no list are told by their field."""
    with pytest.raises(HeavyliftError) as caught:
        read({**config_of(model_type), **changed})
    assert caught.value.code == code


def test_more_prediction_layers_than_any_model_has_are_refused() -> None:
    """A count without end would be a list without end."""
    document = {
        "model_type": "qwen3_5",
        "num_hidden_layers": 4,
        "layer_types": ["full_attention"] * 4,
        "mtp_num_hidden_layers": 10**6,
    }
    sizes = (
        "hidden_size vocab_size intermediate_size num_attention_heads num_key_value_heads head_dim"
        " linear_num_key_heads linear_num_value_heads linear_key_head_dim linear_value_head_dim"
        " linear_conv_kernel_dim max_position_embeddings"
    )
    with pytest.raises(HeavyliftError) as caught:
        read({**document, **dict.fromkeys(sizes.split(), 64)})
    assert (caught.value.code, caught.value.params["value"]) == ("PLAN053", "1000000")
