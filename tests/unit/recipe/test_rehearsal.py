"""Launches as they are rehearsed: the same words, but for the weights and perhaps the layers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.recipe.rehearsal import layer_field, rehearsed, value_of, with_flag
from heavylift.records.launch import LaunchSpec, RankSpec

WORDS = st.lists(st.sampled_from(["serve", "m", "--a", "--b=1", "--load-format", "auto", "-x"]))


def spec(*argv: str, role: str = "serve") -> LaunchSpec:
    """A launch of one rank."""
    rank = RankSpec(rank=0, host="h", name="serve-0", role=role, argv=argv)
    return LaunchSpec(
        engine="vllm",
        engine_version="0.32.0",
        image_digest=None,
        model="m",
        model_revision=None,
        ranks=(rank,),
        expected_phases=(),
        deadline_s=60,
        plan_digest="",
    )


@given(WORDS, st.sampled_from(["dummy", "x"]))
def test_a_flag_has_one_value_afterwards_whatever_it_had(words: list[str], value: str) -> None:
    """Written as one word, as two or not at all; doing it again changes nothing."""
    once = with_flag(tuple(words), "--load-format", value)
    assert value_of(once, "--load-format") == value
    assert with_flag(once, "--load-format", value) == once
    assert once.count("--load-format") == 1


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", ("--load-format", "dummy")),
        ("sglang", ("--load-format", "dummy")),
        ("tokenspeed", ("--load-format", "dummy")),
        ("atom", ("--load_dummy", "xavier")),
    ],
)
def test_every_engine_that_invents_weights_has_the_flags_of_its_newest_version(
    engine: str, words: tuple[str, str]
) -> None:
    """Its flag table holds them, with that value among its choices where it lists some."""
    catalog = Catalog()
    serving = catalog.serving(engine)
    assert serving.rehearsal is not None
    assert tuple(serving.rehearsal.flags.items()) == (words,)
    flags = catalog.flags(serving.table).flags
    assert serving.rehearsal.overrides in flags
    assert not flags[words[0]].choices or words[1] in flags[words[0]].choices


def test_engines_that_read_one_file_have_no_invented_weights() -> None:
    """llama.cpp, Ollama and TensorRT-LLM: no way is known, and none is made up."""
    catalog = Catalog()
    assert all(
        catalog.serving(engine).rehearsal is None
        for engine in ("llamacpp", "ollama", "tensorrt-llm")
    )


def test_layers_are_cut_where_the_config_states_them() -> None:
    """Nested, with what has an entry per layer; other lists stay."""
    config = {
        "num_hidden_layers": "no number",
        "text_config": {
            "num_hidden_layers": 8,
            "layer_types": list("ffflffflx"[:8]),
            "eos": [1, 2],
        },
    }
    described = "num_hidden_layers|text_config.num_hidden_layers"
    where = layer_field(described, config, has_vision=False, layers=4)
    assert where.field == "text_config.num_hidden_layers"
    assert where.lists == {"layer_types": ("f", "f", "f", "l")}
    facts = Catalog().serving("vllm").rehearsal
    assert facts is not None
    stated = '{"rope_scaling": {"type": "yarn"}, "text_config": {"x": 1}}'
    cut = rehearsed(
        spec("vllm", "serve", "m", "--hf-overrides", stated, "--load-format=auto"),
        facts,
        layers=4,
        where=where,
    )
    argv = cut.ranks[0].argv
    assert argv[:3] == ("vllm", "serve", "m")
    assert json.loads(str(value_of(argv, "--hf-overrides"))) == {
        "rope_scaling": {"type": "yarn"},
        "text_config": {"x": 1, "num_hidden_layers": 4, "layer_types": ["f", "f", "f", "l"]},
    }
    assert value_of(argv, "--load-format") == "dummy"


def test_without_a_config_a_model_with_pictures_is_nested() -> None:
    """By its family's own field; of two the inner one for a model that takes pictures."""
    described = "text_config.num_hidden_layers|num_hidden_layers"
    assert "." in layer_field(described, None, has_vision=True, layers=4).field
    assert "." not in layer_field(described, None, has_vision=False, layers=4).field
    with pytest.raises(HeavyliftError) as caught:
        layer_field(described, {"n_layer": 3}, has_vision=False, layers=4)
    assert caught.value.code == "REC053"


def test_what_stands_beside_engines_is_not_touched() -> None:
    """A router has no weights; overrides that are no JSON are refused."""
    facts = Catalog().serving("vllm").rehearsal
    assert facts is not None
    assert rehearsed(spec("router", role="router"), facts, layers=None, where=None).ranks[
        0
    ].argv == ("router",)
    where = layer_field("layers", {"layers": 9}, has_vision=False, layers=2)
    for bad in ("{", "[1]"):
        with pytest.raises(HeavyliftError) as caught:
            rehearsed(spec("v", "--hf-overrides", bad), facts, layers=2, where=where)
        assert caught.value.code == "REC054"
