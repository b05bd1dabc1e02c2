"""What nobody said is taken from a published recipe, else the engine, else ours; all is listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heavylift.errors import HeavyliftError
from heavylift.records.plan import Capacity, Plan


def taken(plan: Plan) -> dict[str, tuple[Any, str]]:
    """Value and origin of each default."""
    return {entry.name: (entry.value, entry.origin) for entry in plan.defaults}


def test_recipe_settings_of_the_card_come_first(make_plan: Callable[..., Plan]) -> None:
    """K3 on B200 takes 0.90, 8192 and fp8 from the recipe published for that card."""
    found = taken(make_plan("kimi-k3", "16xB200", engine="vllm"))
    assert found["gpu_memory_utilization"] == (0.9, "recipe")
    assert found["max_num_batched_tokens"] == (8192, "recipe")
    assert found["kv_cache_dtype"] == ("fp8", "recipe")


def test_a_card_without_a_recipe_takes_the_models_common_one(
    make_plan: Callable[..., Plan],
) -> None:
    """MI300X has no recipe; the utilisation of all of K3's is 0.95."""
    found = taken(make_plan("kimi-k3", "8xMI300X", engine="vllm"))
    assert found["gpu_memory_utilization"] == (0.95, "recipe")


def test_without_a_recipe_the_engine_decides(make_plan: Callable[..., Plan]) -> None:
    """Llama on vLLM takes that version's defaults by the size of the card."""
    found = taken(make_plan("llama-3.1-8b", "1xH100", engine="vllm"))
    assert found["gpu_memory_utilization"] == (0.92, "engine")
    assert found["max_num_batched_tokens"] == (8192, "engine")
    big = taken(make_plan("llama-3.1-8b", "1xB300", engine="vllm"))
    assert big["max_num_batched_tokens"] == (16384, "engine")


def test_ours_are_16384_tokens_and_one_sequence_with_vision(make_plan: Callable[..., Plan]) -> None:
    """Context, concurrency and vision are our own defaults, and say so."""
    found = taken(make_plan("kimi-k3", "8xB300"))
    assert found["context_tokens"] == (16384, "heavylift")
    assert found["concurrency"] == (1, "heavylift")
    assert found["vision"] == (True, "heavylift")


def test_what_is_stated_is_no_default(make_plan: Callable[..., Plan]) -> None:
    """Stated settings are taken as they are and not listed."""
    plan = make_plan(
        "kimi-k3",
        "8xB300",
        engine="vllm",
        engine_version="0.32.0",
        variant="native",
        context_tokens=4096,
        concurrency=2,
        vision=False,
        max_num_batched_tokens=1024,
        max_num_seqs=8,
        kv_cache_dtype="fp8",
        moe_backend="marlin",
        gpu_memory_utilization=0.5,
    )
    assert plan.defaults == ()


def test_the_version_a_recipe_ran_is_taken(make_plan: Callable[..., Plan]) -> None:
    """K3 on MI355X under vLLM is planned for 0.29.0, which a published run names."""
    found = taken(make_plan("kimi-k3", "8xMI355X", engine="vllm"))
    assert found["engine_version"] == ("0.29.0", "recipe")


def test_the_newest_read_version_is_taken_otherwise(make_plan: Callable[..., Plan]) -> None:
    """Llama on vLLM is planned for the newest version whose source was read."""
    found = taken(make_plan("llama-3.1-8b", "1xH100", engine="vllm"))
    assert found["engine_version"] == ("0.32.0", "engine")


def test_the_usual_version_for_a_vendor_is_a_fact(make_plan: Callable[..., Plan]) -> None:
    """K3 on an AMD card without a recipe takes the version published runs on AMD name."""
    found = taken(make_plan("kimi-k3", "8xMI300X", engine="vllm"))
    assert found["engine_version"] == ("0.29.0", "recipe")


def test_sglang_computes_its_own_fraction(make_plan: Callable[..., Plan]) -> None:
    """SGLang 0.5.23 leaves 512 + 1.5 × chunk + 128 a rank + 2 × 512 + 8 × 74 MiB: for each of 74
    sizes up to the chunk a graph of prefill.
    """
    found = taken(make_plan("llama-3.1-8b", "8xB300", engine="sglang"))
    reserved = 512 + 1.5 * 16384 + 128 * 8 + 1024 + 8 * 74
    assert found["mem_fraction_static"] == (round((275040 - reserved) / 275040, 3), "engine")


# By `handle_gpu_memory_settings` and `reserve_for_graph_mb` of the 0.5.23 wheel: MiB of the card,
# chunk, ranks, most sequences of a decode graph, MiB for graphs of prefill.
SGLANG = {
    # 50 sizes up to 4,096; no floor.
    ("llama-3.1-8b", "1xRTX4090"): (24564, 4096, 1, 48, 50 * 8),
    ("llama-3.1-8b", "4xRTX4090"): (24564, 4096, 4, 160, 50 * 8),
    ("llama-3.1-8b", "1xL40S"): (46068, 4096, 1, 32, 50 * 8),
    ("llama-3.1-8b", "1xH100"): (81559, 8192, 1, 256, 58 * 8),
    ("llama-3.1-8b", "1xT4"): (15360, 2048, 1, 8, 42 * 8),
    # MLA: 1.5 GiB whatever the sizes.
    ("deepseek-v3", "8xH200"): (143771, 8192, 8, 512, 1536),
    # KDA, and cards that are not CUDA's: none.
    ("kimi-linear-48b", "8xB300"): (275040, 16384, 8, 512, 0),
    ("llama-3.1-8b", "1xMI300X"): (196592, 16384, 1, 512, 0),
}


@pytest.mark.parametrize(("model", "rack"), SGLANG)
def test_sglang_leaves_what_the_card_and_the_attention_ask(
    make_plan: Callable[..., Plan], model: str, rack: str
) -> None:
    """Fewer decode graphs on small cards and few ranks; the floor on cards over 60 GiB only."""
    total, chunk, ranks, batches, prefill = SGLANG[model, rack]
    plan = make_plan(model, rack, engine="sglang", vision=False, engine_version="0.5.23")
    found = taken(plan)
    reserved = 512 + 1.5 * chunk + 128 * ranks + 2 * batches + prefill
    if total > 60 * 1024:
        reserved = max(reserved, 10240)
    assert found["max_num_batched_tokens"][0] == chunk
    expected = (total - reserved) / total
    assert found["mem_fraction_static"][0] == pytest.approx(expected, abs=0.0011)


def test_sglang_captures_no_more_than_it_admits(make_plan: Callable[..., Plan]) -> None:
    """--max-running-requests below the usual number of captured sequences: fewer graphs."""
    plan = make_plan("llama-3.1-8b", "1xRTX4090", engine="sglang", max_num_seqs=8)
    reserved = 512 + 1.5 * 4096 + 128 + 2 * 8 + 8 * 50
    assert taken(plan)["mem_fraction_static"][0] == round((24564 - reserved) / 24564, 3)


def test_sglang_serves_an_8b_model_on_a_24_gb_card(make_plan: Callable[..., Plan]) -> None:
    """As many do: BF16 weights of 15 GiB leave room for a context of 8k."""
    plan = make_plan("llama-3.1-8b", "1xRTX4090", engine="sglang", context_tokens=8192)
    assert plan.capacity_verdict is Capacity.FITS


def test_sglang_takes_less_with_a_vision_tower(make_plan: Callable[..., Plan]) -> None:
    """The same fraction × 0.938125 when K3's tower is loaded."""
    with_tower = make_plan("kimi-k3", "8xMI325X", engine="sglang")
    without = make_plan("kimi-k3", "8xMI325X", engine="sglang", vision=False)
    found = [taken(plan)["mem_fraction_static"][0] for plan in (with_tower, without)]
    assert found[0] == pytest.approx(found[1] * 0.938125)


def test_the_low_floor_of_sglang_holds_on_big_cards(make_plan: Callable[..., Plan]) -> None:
    """A small chunk leaves the floor of 10,240 MiB."""
    plan = make_plan("llama-3.1-8b", "1xB300", engine="sglang", max_num_batched_tokens=1024)
    fraction = taken(plan)["mem_fraction_static"][0]
    assert fraction == round((275040 - 10240) / 275040, 3)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"context_tokens": 2**20 + 1}, "PLAN010"),
        ({"variant": "q9"}, "PLAN011"),
        ({"variant": "ud-q8-k-xl", "engine": "vllm"}, "PLAN012"),
        ({"kv_cache_dtype": "fp2"}, "PLAN013"),
        ({"moe_backend": "aiter", "engine": "vllm"}, "PLAN014"),
        ({"output_tokens": 16384}, "PLAN015"),
    ],
)
def test_what_cannot_be_is_refused_with_its_code(
    make_plan: Callable[..., Plan], given: dict[str, Any], code: str
) -> None:
    """A setting that the model or engine does not have is an error with the alternatives."""
    with pytest.raises(HeavyliftError) as caught:
        make_plan("kimi-k3", "8xB300", **{"engine": "vllm", **given})
    assert caught.value.code == code


def test_a_model_no_engine_takes_is_refused(make_plan: Callable[..., Plan]) -> None:
    """Llama in safetensors is nothing for llama.cpp; its usual mix is taken, and said."""
    with pytest.raises(HeavyliftError) as caught:
        make_plan("llama-3.1-8b", "1xH100", engine="llamacpp", variant="native")
    assert caught.value.code == "PLAN012"
    plan = make_plan("llama-3.1-8b", "1xH100", engine="llamacpp")
    assert plan.variant == "q4-k-m"
    assert "variant" in {each.name for each in plan.defaults}


def test_a_mixture_nobody_listed_lies_between_its_types(make_plan: Callable[..., Plan]) -> None:
    """Q4_K_M of a hybrid: no less than Q4_K throughout, no more than Q6_K, without the tower."""
    plan = make_plan("qwen3.6-27b", "1xH100", engine="llamacpp")
    weights = plan.per_gpu.weights_bytes
    assert plan.variant == "q4-k-m"
    assert weights.high is not None
    assert weights.low < 0.75 * weights.high
    assert not plan.vision


@pytest.mark.parametrize(
    ("stated", "taken"),
    [
        ("0.30.1rc1.dev7+g123", "0.30.0"),
        ("0.27.1+ (recipe)", "0.27.1"),
        ("v0.31.9", "0.31.0"),
        ("0.9.2", "0.10.0"),
        ("nightly 2025-11-06", "0.32.0"),
    ],
)
def test_a_version_between_two_takes_the_rules_of_the_older(
    make_plan: Callable[..., Plan], stated: str, taken: str
) -> None:
    """A build between releases is the older one; before all that was read, the first of them."""
    plan = make_plan("llama-3.1-8b", "1xH100", engine="vllm", engine_version=stated)
    assert plan.engine_version == stated
    assert {note.params.get("taken") for note in plan.notes} >= {taken}


def test_a_variant_may_be_named_with_underscores(make_plan: Callable[..., Plan]) -> None:
    """UD-Q2_K_XL is ud-q2-k-xl; its published size is shared out by layers."""
    plan = make_plan("kimi-k3", "8xB300", engine="llamacpp", variant="UD-Q2_K_XL")
    assert plan.variant == "ud-q2-k-xl"
    assert plan.checkpoint_bytes == 861_277_858_912
    assert plan.checkpoint_tensors is None
    shares = [stage.weights_bytes for stage in plan.stages]
    assert sum(shares) == pytest.approx(861_277_858_912, abs=8)


def test_an_unknown_backend_of_a_card_pads_nothing_and_says_nothing(
    make_plan: Callable[..., Plan],
) -> None:
    """SGLang's default backend on gfx942 is not known: none is named."""
    plan = make_plan("kimi-k3", "8xMI325X", engine="sglang")
    assert plan.moe_backend is None


def test_auto_is_the_default_backend(make_plan: Callable[..., Plan]) -> None:
    """`--moe-backend auto` takes what the version would."""
    plan = make_plan("kimi-k3", "8xB300", engine="vllm", moe_backend="auto")
    assert plan.moe_backend == "flashinfer_trtllm"


def test_a_usual_limit_below_what_is_asked_is_raised(make_plan: Callable[..., Plan]) -> None:
    """The recipe for H200 admits 5 sequences; a plan for 100 is not made with that."""
    plan = make_plan("kimi-k3", "16xH200", engine="vllm", concurrency=100)
    assert plan.max_num_seqs == 100
    assert taken(plan)["max_num_seqs"] == (100, "heavylift")


def test_a_stated_limit_below_what_is_asked_is_a_contradiction(
    make_plan: Callable[..., Plan],
) -> None:
    """Ten at once where eight may be admitted is refused with both numbers."""
    with pytest.raises(HeavyliftError) as caught:
        make_plan("kimi-k3", "8xB300", engine="vllm", concurrency=10, max_num_seqs=8)
    assert (caught.value.code, caught.value.params["seqs"]) == ("PLAN016", 8)


def test_a_variant_brings_its_engine(make_plan: Callable[..., Plan]) -> None:
    """A GGUF named without an engine is planned for the one that reads it."""
    assert make_plan("kimi-k3", "8xB300", variant="UD-Q2_K_XL").engine == "llamacpp"


def test_a_major_number_alone_is_no_version(make_plan: Callable[..., Plan]) -> None:
    """`0` names no release; `0.32` its latest."""
    assert make_plan("kimi-k3", "8xB300", engine="vllm", engine_version="0").verdict == "unknown"
    assert (
        make_plan("kimi-k3", "8xB300", engine="vllm", engine_version="0.32").engine_version
        == "0.32.0"
    )


def test_a_published_size_beyond_the_memory_does_not_fit(make_plan: Callable[..., Plan]) -> None:
    """466 GB of GGUF on one 80 GB card is no question of certainty."""
    plan = make_plan("kimi-k3", "1xH100", engine="llamacpp", variant="ud-q1-0")
    assert plan.verdict == "does_not_fit"


@pytest.mark.parametrize(
    ("version", "fraction"), [("0.10.0", 0.9), ("0.19.1", 0.9), ("0.20.0", 0.92), ("0.32.0", 0.92)]
)
def test_the_memory_fraction_is_that_of_the_release(
    make_plan: Callable[..., Plan], version: str, fraction: float
) -> None:
    """VLLM takes 0.92 of a card since 0.20.0, 0.9 before."""
    plan = make_plan("llama-3.1-8b", "1xH100", engine="vllm", engine_version=version)
    assert taken(plan)["gpu_memory_utilization"] == (fraction, "engine")


def test_an_a100_takes_smaller_batches_however_large_it_is(make_plan: Callable[..., Plan]) -> None:
    """VLLM counts it among the small cards by its name."""
    found = taken(make_plan("llama-3.1-8b", "1xA100-80", engine="vllm"))
    assert found["max_num_batched_tokens"] == (2048, "engine")
    assert found["max_num_seqs"] == (256, "engine")


@pytest.mark.parametrize(
    ("layout", "fraction"),
    [({"tensor": 8}, 0.886), ({"tensor": 1, "data": 8}, 0.758)],
    ids=["tensor", "data parallel attention"],
)
def test_sglangs_fraction_is_worked_out_for_the_layout(
    make_plan: Callable[..., Plan], layout: dict[str, int], fraction: float
) -> None:
    """Ranks of attention set more aside: 3 MiB and 4.5 MiB for each batch and rank."""
    found = taken(make_plan("deepseek-v3", "8xH200", engine="sglang", **layout))
    assert found["mem_fraction_static"] == (fraction, "engine")


def test_pipelined_stages_of_sglang_capture_no_prefill(make_plan: Callable[..., Plan]) -> None:
    """Nothing is set aside for graphs that are not captured."""
    stages = make_plan("qwen3-32b", "4xH100", engine="sglang", tensor=2, pipeline=2)
    ranks = make_plan("qwen3-32b", "4xH100", engine="sglang", tensor=2, data=2)
    fraction = "mem_fraction_static"
    assert taken(stages)[fraction][0] > taken(ranks)[fraction][0]


@pytest.mark.parametrize("version", ["0.1.dev1+g4d2a68d64.d20260816", "0.1.dev19262+gb6bbf29dd"])
def test_a_build_without_tags_is_of_no_release(
    make_plan: Callable[..., Plan], version: str
) -> None:
    """Its number is what setuptools-scm gives any commit: the newest rules hold."""
    plan = make_plan("llama-3.1-8b", "1xH100", engine="vllm", engine_version=version)
    assert taken(plan)["gpu_memory_utilization"] == (0.92, "engine")
