"""Copies known by their names: which model, which form, and how far the name can be trusted."""

from __future__ import annotations

import pytest

from heavylift.checkpoint.gguf_model import GgufDimensions
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.planning import Planning
from heavylift.records.plan import Kind, PlanRequest

CATALOG = Catalog()


@pytest.mark.parametrize(
    ("name", "model", "form"),
    [
        ("QuantTrio/GLM-5-AWQ", "glm-5", "awq"),
        ("cyankiwi/Kimi-Linear-48B-A3B-Instruct-AWQ-4bit", "kimi-linear-48b", "awq"),
        ("Qwen3.5-0.8B.Q8_0.gguf", "qwen3.5-0.8b", "gguf-q8-0"),
        ("google/gemma-4-31B-it-qat-w4a16-ct", "gemma-4-31b", "int4"),
        ("RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b", "fp8-dynamic"),
        ("Qwen3.6-27B AutoRound int4", "qwen3.6-27b", "gptq-4bit"),
        ("somebody/Qwen3.6-27B-Instruct", "qwen3.6-27b", None),
        ("unsloth/Qwen3.6-27B-GGUF:Q4_K_M", "qwen3.6-27b", "gguf-q4-k-m"),
        ("bartowski/Qwen_Qwen3.6-27B-GGUF", "qwen3.6-27b", None),
        ("qwen2.5:14b-instruct-q4_K_M", "qwen2.5-14b", "gguf-q4-k-m"),
        ("hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4", "llama-3.1-405b", "awq"),
        ("Qwen/Qwen2.5-32B-Instruct-GPTQ-Int8", "qwen2.5-32b", "gptq-8bit"),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", "llama-3.1-70b", "w8a8"),
        ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "deepseek-r1", "nvfp4"),
        ("Inferact/Qwen3.8-2.4T-A95B-NVFP4", "qwen3.8-2.4t", "nvfp4"),
        ("Sehyo Qwen3.5-122B-A10B NVFP4", "qwen3.5-122b", "nvfp4"),
    ],
)
def test_every_word_of_a_name_is_accounted_for(name: str, model: str, form: str | None) -> None:
    """The base model, the form, and words that say nothing."""
    found = CATALOG.copy_of(name)
    assert found is not None
    assert (found.model, None if found.form is None else found.form.id) == (model, form)


@pytest.mark.parametrize(
    "name",
    [
        "GLM-5-Reap-AWQ",
        "lukealonso/Kimi-K3-QSRT-K2",
        "Qwen3.6-27B-UD-Q4_K_XL.gguf",
        "awq",
        "x/AWQ",
        "",
    ],
)
def test_a_word_that_nobody_knows_makes_it_another_model(name: str) -> None:
    """What `Reap` does to GLM-5 the name does not say."""
    assert CATALOG.copy_of(name) is None


def test_a_place_of_a_variant_is_that_variant() -> None:
    """The facts name the hub's place: nothing is assumed."""
    knowledge = Planning().knowledge("nvidia/Qwen3.6-27B-NVFP4")
    assert [variant.id for variant in knowledge.model.model.variants] == ["nvfp4"]
    assert knowledge.model.model.variants[0].bytes_more is None


def test_a_copy_s_weights_are_assumed_between_bounds() -> None:
    """Another maker's NVFP4 of Qwen3.8-27B took 12.02 GiB on each of two cards; ours of the name
    are 10.24 at least, and as much more as its attention and head can be.
    """
    planning = Planning()
    name = "Inferact/Qwen3.8-27B-NVFP4"
    _, rack = planning.rack("2xRTX 5090")
    assert rack is not None
    request = PlanRequest(model=name, rack=rack, engine="vllm", layout_constraints={"tensor": 2})
    plan = planning.plan(request, planning.knowledge(name), with_fixes=False)
    weights = plan.per_gpu.weights_bytes
    assert plan.terms[0].kind is Kind.ASSUMED
    assert weights.high is not None
    assert weights.low / 2**30 < 12.02 < weights.high / 2**30


@pytest.mark.parametrize("name", ["RedHatAI/Kimi-K3-FP8-BLOCK", "openai/gpt-oss-20b-awq"])
def test_experts_already_packed_take_no_other_form(name: str) -> None:
    """Facts hold those models' experts in 4 bits: what a copy makes of them is not known."""
    with pytest.raises(HeavyliftError) as raised:
        Planning().knowledge(name)
    assert raised.value.code == "PLAN059"


def test_a_file_of_one_type_has_no_bounds() -> None:
    """All of Q8_0: 34 bytes for 32 weights, tables too; norms stay plain."""
    known = Planning().knowledge("qwen3-8b-q8_0").model
    variant = known.model.variants[0]
    inventory = known.inventories[variant.id]
    assert variant.bytes_more is None
    assert abs(inventory.bytes_total / (inventory.params_total * 34 / 32) - 1) < 0.001


METADATA = {
    "general.architecture": "qwen3",
    "general.name": "Somebody's Qwen3 8B",
    "qwen3.block_count": 36,
    "qwen3.embedding_length": 4096,
    "qwen3.attention.head_count": 32,
    "qwen3.context_length": 40960,
}


def models() -> list[object]:
    """Every known model."""
    return [CATALOG.model(name) for name in CATALOG.ids("models")]


def test_a_gguf_is_the_model_of_its_dimensions() -> None:
    """By layers, width and heads, whatever it is called."""
    found = GgufDimensions.of(METADATA).find(models(), "/x/file.gguf")  # type: ignore[arg-type]
    assert found is not None
    assert found.id == "qwen3-8b"


@pytest.mark.parametrize(
    "change",
    [
        {"qwen3.block_count": 35},
        {"qwen3.expert_count": 8},
        {"qwen3.embedding_length": "4096"},
        {"general.architecture": 7},
    ],
)
def test_other_dimensions_are_no_known_model(change: dict[str, object]) -> None:
    """One layer less, experts, a width that is no number, no architecture."""
    stated = GgufDimensions.of(METADATA | change)
    assert stated.find(models(), "/x/file.gguf") is None  # type: ignore[arg-type]
