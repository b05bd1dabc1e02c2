"""Quantised layers: what each form stores, and what a config says is stored so."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.checkpoint.config import ConfigFile
from heavylift.checkpoint.quantisation import SCHEMES, matches, scheme_of, stored
from heavylift.checkpoint.quantisation_config import (
    canonical,
    kv_dtype_by_config,
    quantised_by_config,
)
from heavylift.errors import HeavyliftError
from heavylift.facts.expressions import ExpressionError
from heavylift.facts.schema import QuantisedFacts, TensorPattern

LAYERS = {"all": (0, 1, 2, 3)}


def pattern(name: str, role: str = "attention", *, linear: bool = True) -> TensorPattern:
    """A linear layer of four decoder layers."""
    return TensorPattern(
        name=name,
        dtype="BF16",
        shape=("n", "n"),
        role=role,
        shard="tensor",
        layers="all" if "{l}" in name else None,
        linear=linear,
    )


PATTERNS = (
    pattern("lm_head.weight", "lm_head"),
    pattern("model.layers.{l}.self_attn.q_proj.weight"),
    pattern("model.layers.{l}.mlp.gate.weight", "router", linear=False),
    pattern("model.layers.{l}.mlp.experts.{e}.up_proj.weight", "experts"),
)


def rules(
    document: Mapping[str, Any], **places: Any
) -> dict[str, tuple[str, int, tuple[int, ...]]]:
    """Tensor name to scheme, group and layers, by a quantization_config."""
    tree = {"quantization_config": document, **places}
    config = ConfigFile(path="config.json", document=tree, read_on=date(2026, 11, 30))
    found = quantised_by_config(config.find, config.path, PATTERNS, LAYERS, {})
    return {name: (r.scheme, r.group, r.layers) for r in found for name in r.tensors}


QUERY = "model.layers.{l}.self_attn.q_proj.weight"
EXPERT = "model.layers.{l}.mlp.experts.{e}.up_proj.weight"


@pytest.mark.parametrize(
    ("scheme", "group", "expected"),
    [
        ("fp8-block", 128, 256 * 512 + 2 * 4 * 4),
        ("nvfp4", 16, 256 * 256 + 256 * 32 + 8),
        ("mxfp4-packed", 32, 256 * 256 + 256 * 16),
        ("int4-packed", 32, 256 * 256 + 256 * 16 * 2),
        ("int4-awq", 128, 256 * 256 + 4 * 128 + 4 * 256 * 2),
        ("int4-gptq", 128, 256 * 256 + 4 * 128 + 4 * 256 * 2 + 512 * 4),
        ("int8-channel", 1, 256 * 512 + 256 * 4),
        ("fp8", 1, 256 * 512 + 8),
        ("int4-bitsandbytes", 64, 256 * 256 + 2048 + 8 * 4 + 16 * 4 + 256 * 4),
    ],
)
def test_a_form_takes_its_packed_weights_and_their_scales(
    scheme: str, group: int, expected: int
) -> None:
    """A matrix of 256 outputs and 512 inputs in each form, by hand."""
    assert sum(piece.bytes for piece in stored(scheme, (256, 512), 0, group)) == expected


@given(
    scheme=st.sampled_from(sorted(SCHEMES)),
    rows=st.integers(1, 8).map(lambda n: n * 256),
    columns=st.integers(1, 8).map(lambda n: n * 256),
    axis=st.sampled_from((0, 1)),
    stack=st.sampled_from(((), (3,))),
)
def test_no_form_changes_how_many_weights_there_are(
    scheme: str, rows: int, columns: int, axis: int, stack: tuple[int, ...]
) -> None:
    """The pieces' parameters add up to the matrix; an axis lies within its piece's shape."""
    shape = (*stack, rows, columns)
    pieces = stored(scheme, shape, axis + len(stack), 128)
    total = rows * columns * (stack[0] if stack else 1)
    assert sum(piece.params for piece in pieces) == total
    for piece in pieces:
        assert piece.axis is None or len(stack) <= piece.axis < len(piece.shape)


def test_a_matrix_that_does_not_fill_a_form_is_no_guess() -> None:
    """Half a byte of weights does not exist."""
    with pytest.raises(ExpressionError):
        stored("nvfp4", (3, 3), 0, 16)


def test_the_first_rule_that_takes_a_tensor_counts() -> None:
    """A star stands for any part of a name; a rule may hold for some layers only."""
    some = QuantisedFacts(scheme="fp8", tensors=("*.mlp.*",), layers=(1,))
    rest = QuantisedFacts(scheme="nvfp4", tensors=("*",))
    assert scheme_of((some, rest), "model.layers.{l}.mlp.up", 1) is some
    assert scheme_of((some, rest), "model.layers.{l}.mlp.up", 2) is rest
    assert scheme_of((some,), "lm_head.weight", None) is None
    assert not matches("*.mlp", "a.mlp.up")


def test_the_wrapper_of_a_vision_model_is_no_part_of_a_name() -> None:
    """The two spellings and the plain one are one name."""
    for name in ("language_model.model.layers.0.x", "model.language_model.layers.0.x"):
        assert canonical(name) == "model.layers.0.x"


def test_linear_means_every_linear_layer_but_the_head_and_the_ignored() -> None:
    """compressed-tensors, as Kimi K2.5 has it: experts alone are left; a router is none."""
    document = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 32},
            }
        },
        "ignore": ["lm_head", "re:.*self_attn.*"],
    }
    assert rules(document) == {EXPERT: ("int4-packed", 32, ())}


def test_patterns_with_a_star_name_layers_and_all_below_them() -> None:
    """ModelOpt ignores attention of one layer: the others are quantised, and that is said."""
    document = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["language_model.model.layers.2.self_attn*", "lm_head"],
    }
    assert rules(document) == {QUERY: ("nvfp4", 16, (0, 1, 3)), EXPERT: ("nvfp4", 16, ())}


def test_a_list_of_layers_gives_each_its_own_form() -> None:
    """A mixed ModelOpt checkpoint names the head and the experts of a layer as one module."""
    layers = {f"model.layers.{layer}.self_attn.q_proj": {"quant_algo": "FP8"} for layer in range(4)}
    layers |= {"lm_head": {"quant_algo": "W4A16_NVFP4"}}
    layers |= {"model.layers.1.mlp.experts": {"quant_algo": "W4A16_NVFP4"}}
    document = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
    }
    assert rules(document) == {
        QUERY: ("fp8", 1, ()),
        "lm_head.weight": ("nvfp4-weight-only", 16, ()),
        EXPERT: ("nvfp4-weight-only", 16, (1,)),
    }


def test_a_word_that_is_left_alone_is_a_whole_part_of_a_name() -> None:
    """`gate` leaves no `gate_proj` alone; FP8 blocks keep their edge."""
    document = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["q", "experts"],
    }
    assert rules(document) == {QUERY: ("fp8-block", 128, ())}
    whole = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    assert rules(whole)[QUERY] == ("fp8", 1, ())


def test_experts_may_have_a_form_beside_the_quantisation() -> None:
    """DeepSeek-V4 states FP4 experts in a field of its own."""
    document = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    found = rules(document, expert_dtype="fp4")
    assert found[EXPERT] == ("mxfp4-e8m0", 32, ())
    assert found[QUERY] == ("fp8-block", 128, ())


@pytest.mark.parametrize(
    ("document", "scheme"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4-awq"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4-gptq"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8-gptq"),
        (
            {
                "quant_method": "auto-round",
                "bits": 4,
                "group_size": 128,
                "packing_format": "auto_round:auto_awq",
            },
            "int4-awq",
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4-bitsandbytes"),
    ],
)
def test_packers_of_whole_numbers_are_told_apart(document: dict[str, Any], scheme: str) -> None:
    """AWQ, GPTQ, AutoRound by its packing, bitsandbytes."""
    assert rules(document)[QUERY][0] == scheme


@pytest.mark.parametrize(
    ("weights", "form"),
    [
        ({"type": "float", "num_bits": 4, "group_size": 16}, ("nvfp4-packed", 16)),
        ({"type": "float", "num_bits": 4, "group_size": 32}, ("mxfp4-packed", 32)),
        ({"type": "float", "num_bits": 8, "strategy": "tensor"}, ("fp8", 1)),
        ({"type": "float", "num_bits": 8, "strategy": "channel"}, ("fp8-channel", 1)),
        (
            {"type": "float", "num_bits": 8, "strategy": "block", "block_structure": [64, 64]},
            ("fp8-block", 64),
        ),
        ({"type": "float", "num_bits": 8, "strategy": "group", "group_size": 32}, ("mxfp8", 1)),
        ({"type": "int", "num_bits": 8, "strategy": "channel"}, ("int8-channel", 1)),
        ({"type": "int", "num_bits": 4, "strategy": "channel"}, ("int4-packed", 2**30)),
    ],
)
def test_compressed_tensors_names_its_forms(weights: dict[str, Any], form: tuple[str, int]) -> None:
    """Type, bits and strategy of the weights tell the forms apart."""
    document = {
        "quant_method": "compressed-tensors",
        "config_groups": {"all": {"targets": ["Linear"], "weights": weights}},
    }
    assert rules(document)[QUERY][:2] == form


def test_modelopt_may_name_bits_instead_of_a_form() -> None:
    """Groups of 8 and of 4 bits, each for modules of its own."""
    document = {
        "quant_method": "modelopt",
        "config_groups": {
            "a": {"targets": ["model.layers.0.self_attn.q_proj"], "weights": {"num_bits": 8}},
            "b": {"targets": ["experts"], "weights": {"num_bits": 4}},
        },
    }
    assert rules(document) == {QUERY: ("fp8", 1, (0,)), EXPERT: ("nvfp4", 16, ())}


def test_packers_may_leave_modules_alone() -> None:
    """GPTQ by a pattern, AutoRound by 16 bits for a module."""
    plain = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    assert QUERY not in rules({**plain, "dynamic": {"-:.*self_attn.*": {}}})
    extra = {"extra_config": {"model.layers.3.self_attn.q_proj": {"bits": 16}}}
    rounded = {"quant_method": "auto-round", "bits": 4, "group_size": 128, **extra}
    assert rules(rounded)[QUERY] == ("int4-gptq", 128, (0, 1, 2))


def test_what_the_family_lists_itself_is_not_quantised_again() -> None:
    """gpt-oss names its packed tensors; a config without quantisation has none."""
    assert rules({"quant_method": "mxfp4"}) == {}


@pytest.mark.parametrize(
    "document",
    [
        {"quant_method": "nobody-knows"},
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        {"quant_method": "gptq", "bits": 3, "group_size": 128},
        {"quant_method": "gptq", "bits": [4], "group_size": 128},
        {"quant_method": "awq", "bits": 4, "group_size": "many"},
        {"quant_method": "fp8", "weight_block_size": [128, 64]},
        {"quant_method": "fp8", "modules_to_not_convert": "all"},
        {"quant_method": "fp8", "modules_to_not_convert": [3]},
        {"quant_method": "fp8", "modules_to_not_convert": ["re:(a+)+b"]},
        {"quant_method": "fp8", "modules_to_not_convert": ["re:("]},
        {"quant_method": "fp8", "modules_to_not_convert": ["*" * 50]},
        {"quant_method": "fp8", "modules_to_not_convert": ["x" * 5000]},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["Linear"]}}},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"weights": {"type": "int", "num_bits": 3}}},
        },
        {"quant_method": "modelopt", "quant_algo": "NEWEST"},
        {"quant_method": "modelopt", "quant_algo": ["FP8"]},
        {"quant_method": "modelopt", "config_groups": {"a": {"weights": {"num_bits": [4]}}}},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"weights": {"type": ["int"], "num_bits": {}}}},
        },
        {"quant_method": "fp8", "modules_to_not_convert": ["re:.*a"] * 152_000},
        {"quant_method": "fp8", "modules_to_not_convert": ["re:.*a.*b.*c"]},
        {
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": 128,
            "extra_config": {"a": {"bits": 8}},
        },
        {"quant_method": "modelopt", "quantized_layers": {"a": 1}},
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:x": {"bits": 8}}},
        [],
        "fp8",
    ],
)
def test_a_form_that_is_not_known_is_named(document: Any) -> None:
    """No bytes are made up, and no pattern of a stranger is run that could take for ever."""
    with pytest.raises(HeavyliftError) as caught:
        rules(document)
    assert caught.value.code == "PLAN060"


@pytest.mark.parametrize(
    ("document", "dtype"),
    [
        ({"kv_cache_scheme": {"type": "float", "num_bits": 8}}, "fp8"),
        ({"kv_cache_scheme": {"type": "int", "num_bits": 8}}, None),
        ({"kv_cache_scheme": None}, None),
        ({"kv_cache_quant_algo": "FP8"}, "fp8"),
        ("text", None),
    ],
)
def test_scales_for_kv_are_noticed(document: Any, dtype: str | None) -> None:
    """A checkpoint that brings FP8 scales for its KV is served in FP8 unless told otherwise."""
    config = ConfigFile(
        path="x", document={"quantization_config": document}, read_on=date(2026, 11, 30)
    )
    assert kv_dtype_by_config(config.find) == dtype
