"""Forms that llama.cpp's quantiser makes, from its rules alone."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.checkpoint.inventory import from_facts
from heavylift.checkpoint.mixes import mixed, takes_mixes
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.mix_schema import MixBook, MixFacts, MixLayers, MixRule
from heavylift.planning import Planning
from heavylift.records.plan import Kind, PlanRequest

GOLDEN = tomllib.loads((Path(__file__).parents[2] / "golden" / "mixes.toml").read_text("utf-8"))
HEADER_GB = 0.012
ROUNDING_GB = 0.05


@pytest.mark.parametrize(
    ("model", "mix", "size"),
    [(entry["model"], mix, size) for entry in GOLDEN["file"] for mix, size in entry["gb"].items()],
)
def test_a_mix_is_as_large_as_the_file_that_was_made_with_it(
    model: str, mix: str, size: float
) -> None:
    """Within the header and the rounding of the list."""
    knowledge = Planning().knowledge(model).model
    inventory = knowledge.inventories[mix]
    assert -ROUNDING_GB < size - inventory.bytes_total / 1e9 < HEADER_GB + ROUNDING_GB


def test_a_plan_of_a_mix_says_that_its_types_are_derived() -> None:
    """`--engine llamacpp --variant q4_k_m`: by the block types' exact sizes, from a rule."""
    planning = Planning()
    _, rack = planning.rack("1xRTX4090")
    assert rack is not None
    request = PlanRequest(model="qwen3-14b", rack=rack, engine="llamacpp", variant="q4_k_m")
    plan = planning.plan(request, planning.knowledge("qwen3-14b"))
    weights = next(term for term in plan.terms if term.id == "weights")
    assert weights.kind is Kind.DERIVED
    assert weights.source == "llamacpp-quant"
    assert plan.variant == "q4-k-m"
    assert plan.verdict.is_positive


@pytest.mark.parametrize(
    "model",
    [
        "qwen2.5-7b",
        "qwen3-8b",
        "qwen3-235b",
        "gpt-oss-20b",
        "gemma-3-27b",
        "deepseek-v3",
        "kimi-k2-instruct",
        "minimax-m2.5",
        "glm-5.1",
        "llama-3.1-8b",
        "phi-4",
        "mimo-v2-flash",
    ],
)
def test_every_mix_of_a_family_is_counted(model: str) -> None:
    """No form fails on a row that is not whole blocks, and more bits are never fewer bytes."""
    knowledge = Planning().knowledge(model).model
    sizes = {name: knowledge.inventories[name].bytes_total for name in knowledge.mixes}
    assert sizes["q8-0"] < sizes["bf16-gguf"] or model == "gpt-oss-20b"
    order = ["q2-k", "q3-k-m", "q4-k-s", "q4-k-m", "q5-k-m", "q6-k", "q8-0"]
    assert [sizes[name] for name in order] == sorted(sizes[name] for name in order)


def test_a_published_form_is_not_made_again() -> None:
    """K3's list leaves no type open; a model's own form of that name stays its own."""
    catalog = Catalog()
    assert not takes_mixes(catalog.family("kimi-k3"))
    assert not Planning().knowledge("kimi-k3").model.mixes
    facts = catalog.model("qwen3-8b")
    own = replace(facts.variants[0], id="q8-0")
    planning = Planning()
    knowledge = planning.knowledge_of(replace(facts, variants=(*facts.variants, own)))
    assert "q8-0" not in knowledge.model.mixes


def test_an_engine_says_which_forms_it_takes() -> None:
    """llama.cpp does not read the maker's files; the mixes are named instead."""
    planning = Planning()
    _, rack = planning.rack("1xRTX4090")
    assert rack is not None
    request = PlanRequest(model="qwen3-8b", rack=rack, engine="llamacpp", variant="native")
    with pytest.raises(HeavyliftError) as caught:
        planning.plan(request, planning.knowledge("qwen3-8b"))
    assert caught.value.code == "PLAN012"
    assert "q4-k-m" in str(caught.value.params["offered"])


@given(layer=st.integers(0, 199), count=st.integers(1, 200))
def test_more_bits_go_to_both_ends_and_every_third_layer(layer: int, count: int) -> None:
    """llama.cpp's own condition, written out."""
    expected = layer < count // 8 or layer >= 7 * count // 8 or (layer - count // 8) % 3 == 2
    assert MixLayers.MORE_BITS.holds(layer, count) == expected
    assert MixLayers.ALL.holds(min(layer, count - 1), count)


@pytest.mark.parametrize(
    ("rule", "taken"),
    [
        (MixRule(type="Q6_K", tensors=("output.weight",)), True),
        (MixRule(type="Q6_K", tensors=("output.weight",), experts=8), False),
        (MixRule(type="Q6_K", tensors=("output.weight",), layer_count=36), True),
        (MixRule(type="Q6_K", tensors=("output.weight",), layer_count=80), False),
        (MixRule(type="Q6_K", tensors=("output.weight",), tied=True), False),
        (MixRule(type="Q6_K", tensors=("output.weight",), heads_per_kv_head=4), True),
        (MixRule(type="Q6_K", tensors=("output.weight",), heads_per_kv_head=5), False),
        (MixRule(type="Q6_K", tensors=("output.weight",), families=("llama",)), False),
        (MixRule(type="Q6_K", tensors=("token_embd.weight",)), False),
    ],
)
def test_a_rule_holds_where_its_conditions_do(rule: MixRule, taken: bool) -> None:
    """Qwen3-8B: 36 layers, four heads to a KV head, no experts, a head of its own."""
    catalog = Catalog()
    model, family = catalog.model("qwen3-8b"), catalog.family("qwen3")
    usual = catalog.mixes().mixes[0]
    mix = MixFacts(
        id="m",
        title="M",
        type="Q4_K",
        rules=(rule,),
        kind=usual.kind,
        source=usual.source,
        as_of=usual.as_of,
    )
    variant = mixed(model, family, mix, MixBook(engines=("llamacpp",), mixes=(mix,)))
    groups = {group.name: group.dtype for group in from_facts(model, family, variant).groups}
    assert (groups["output.weight"] == "Q6_K") is taken


def test_rows_that_are_not_whole_blocks_fall_back() -> None:
    """896 columns are no whole blocks of 256: Q4_K becomes Q5_0; without a fallback F16."""
    catalog = Catalog()
    model, family = catalog.model("qwen2.5-0.5b"), catalog.family("qwen2")
    book = catalog.mixes()
    mix = next(each for each in book.mixes if each.id == "q4-k-m")
    for fallbacks, dtype in ((book.fallbacks, "Q5_0"), ({}, "F16"), ({"Q4_K": "Q5_K"}, "F16")):
        variant = mixed(model, family, mix, replace(book, fallbacks=fallbacks))
        groups = {g.name: g.dtype for g in from_facts(model, family, variant).groups}
        assert groups["blk.{l}.attn_q.weight"] == dtype
