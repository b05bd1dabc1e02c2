"""A model's facts from a config.json, by its family's own field names."""

from __future__ import annotations

from copy import deepcopy
from datetime import date
from typing import Any

import pytest

from heavylift.checkpoint.config import ConfigFile, model_from_config, same_architecture
from heavylift.devserver.sparse_checkpoint import config as config_of
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import ModelFacts

CATALOG = Catalog()
K3 = CATALOG.family("kimi-k3")
LLAMA = CATALOG.family("llama")
LLAMA_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}


def read(document: dict[str, Any]) -> ConfigFile:
    """A decoded config."""
    return ConfigFile(path="config.json", document=document, read_on=date(2026, 11, 30))


def llama(document: dict[str, Any]) -> ModelFacts:
    """The model a Llama config describes."""
    return model_from_config(read(document), LLAMA, identifier="x", formats=("safetensors",))


def test_a_config_gives_the_same_network_as_the_catalogue() -> None:
    """Llama-3.1-8B's own fields make the catalogue's dimensions; head_dim follows from them."""
    model = llama(LLAMA_CONFIG)
    assert model.dim("head_dim") == 128
    assert model.dim("tied_embeddings") == 0
    assert same_architecture(model, CATALOG.model("llama-3.1-8b"))
    assert not same_architecture(model, CATALOG.model("llama-3.1-70b"))


def test_layer_numbers_that_count_from_one_are_brought_to_zero() -> None:
    """K3's lists count from 1; the facts count from 0 and are the catalogue's."""
    known = CATALOG.model("kimi-k3")
    document = config_of(known, K3)
    assert document["text_config"]["linear_attn_config"]["full_attn_layers"][0] == 4
    model = model_from_config(read(document), K3, identifier="k3", formats=("safetensors",))
    assert model.layer_set("mla")[0] == 3
    assert same_architecture(model, known)


@pytest.mark.parametrize("field", ["num_hidden_layers", "vocab_size", "max_position_embeddings"])
def test_a_missing_field_is_named(field: str) -> None:
    """Nothing is guessed for a field that the family needs and has no expression for."""
    document = {key: value for key, value in LLAMA_CONFIG.items() if key != field}
    with pytest.raises(HeavyliftError) as caught:
        llama(document)
    assert (caught.value.code, caught.value.params["field"]) == ("PLAN052", field)


@pytest.mark.parametrize("value", ["32", 32.5, -1, 0, True, 10**30, 20_000, [32], None, {"a": 1}])
def test_a_field_of_the_wrong_kind_is_named(value: object) -> None:
    """Text, fractions, zero, flags, absurd sizes and tables are no dimension; null is missing."""
    with pytest.raises(HeavyliftError) as caught:
        llama({**LLAMA_CONFIG, "num_hidden_layers": value})
    assert caught.value.code == ("PLAN052" if value is None else "PLAN053")


def test_a_default_that_does_not_come_out_whole_is_a_missing_field() -> None:
    """Hidden size 4097 over 32 heads gives no head_dim."""
    with pytest.raises(HeavyliftError) as caught:
        llama({**LLAMA_CONFIG, "hidden_size": 4097})
    assert (caught.value.code, caught.value.params["field"]) == ("PLAN052", "head_dim")


@pytest.mark.parametrize(
    ("layers", "code"),
    [
        (None, "PLAN052"),
        ("1,x", "PLAN053"),
        ([1, 2, 2], "PLAN053"),
        ([0], "PLAN053"),
        ([94], "PLAN053"),
        ([1.0], "PLAN053"),
    ],
)
def test_a_layer_list_must_be_layer_numbers(layers: object, code: str) -> None:
    """Missing, words, repeated, before the first, beyond the last, fractions: each is refused."""
    document = deepcopy(config_of(CATALOG.model("kimi-k3"), K3))
    document["text_config"]["linear_attn_config"]["kda_layers"] = layers
    with pytest.raises(HeavyliftError) as caught:
        model_from_config(read(document), K3, identifier="k3", formats=("safetensors",))
    assert caught.value.code == code


def test_a_layer_count_beyond_reason_is_refused() -> None:
    """A tower of ten million layers is damage, not a model."""
    document = deepcopy(config_of(CATALOG.model("kimi-k3"), K3))
    document["vision_config"]["vt_num_hidden_layers"] = 10_000_000
    with pytest.raises(HeavyliftError) as caught:
        model_from_config(read(document), K3, identifier="k3", formats=("safetensors",))
    assert caught.value.code == "PLAN053"


def test_a_config_without_a_type_says_nothing_of_its_tensors() -> None:
    """No model_type, or an empty one, is PLAN057."""
    for document in ({}, {"model_type": ""}, {"model_type": 3}):
        with pytest.raises(HeavyliftError) as caught:
            read(document).model_type()
        assert caught.value.code == "PLAN057"


def test_dotted_fields_reach_into_tables_and_lists() -> None:
    """A number in a path is a place in a list; what is not there is None."""
    config = read({"a": {"b": [7, 8]}})
    assert config.find("a.b.1") == 8
    assert config.find("a.b.2") is None
    assert config.find("a.b.c") is None
    assert config.find("a.x.y") is None


@pytest.mark.parametrize("value", ["yes", 2, None])
def test_a_flag_is_yes_or_no(value: object) -> None:
    """Tied embeddings are true or false; a null falls back to the family's default, no."""
    document = {**LLAMA_CONFIG, "tie_word_embeddings": value}
    if value is None:
        assert llama(document).dim("tied_embeddings") == 0
        return
    with pytest.raises(HeavyliftError) as caught:
        llama(document)
    assert caught.value.code == "PLAN053"


def test_a_flag_asked_for_and_missing_is_named() -> None:
    """A flag that a family has no default for must be stated."""
    with pytest.raises(HeavyliftError) as caught:
        read({}).flag("tie_word_embeddings")
    assert caught.value.code == "PLAN052"
