"""Attention on data parallel ranks, experts and what is not attention over all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heavylift.checkpoint.inventory import Inventory
from heavylift.errors import HeavyliftError
from heavylift.planning import Planning
from heavylift.records.plan import Plan, PlanRequest

V3 = "deepseek-v3"


def weights(plan: Plan, name: str) -> int:
    """Bytes of one tensor group on a rank."""
    term = next(each for each in plan.terms if each.id == "weights")
    return sum(part.bytes for part in term.parts if name in part.id)


def test_sglang_splits_the_head_over_all_ranks_and_holds_attention_whole(
    make_plan: Callable[..., Plan],
) -> None:
    """`--tp 8 --dp 8 --enable-dp-attention`: lm_head, dense layers and shared experts in eight,
    attention and the table of words whole on every rank.
    """
    plan = make_plan(V3, "8xH200", engine="sglang", tensor=1, data=8)
    alike = make_plan(V3, "8xH200", engine="sglang", tensor=8)
    for split in ("lm_head", "mlp.gate_proj.weight", "shared_experts.up_proj.weight"):
        assert weights(plan, split) == weights(alike, split) > 0, split
    # The table's rows divide by eight; each rank of attention holds all of them.
    for whole in ("embed_tokens", "self_attn.q_b_proj.weight", "self_attn.o_proj.weight"):
        assert weights(plan, whole) == 8 * weights(alike, whole) > 0, whole


def test_vllm_holds_the_head_whole_on_every_data_parallel_rank(
    make_plan: Callable[..., Plan],
) -> None:
    """Each of vLLM's data parallel ranks is an engine of its own around the experts."""
    plan = make_plan(V3, "8xH200", engine="vllm", tensor=1, data=8, expert=0)
    alike = make_plan(V3, "8xH200", engine="vllm", tensor=8)
    for whole in ("lm_head", "shared_experts.up_proj.weight", "self_attn.o_proj.weight"):
        assert weights(plan, whole) == 8 * weights(alike, whole) > 0, whole
    assert weights(plan, "experts.{e}.up_proj.weight") == pytest.approx(
        weights(alike, "experts.{e}.up_proj.weight"), rel=0.001
    )


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm", "tokenspeed"])
@pytest.mark.parametrize("expert", [2, 4, 8])
def test_experts_spread_over_a_part_of_the_ranks_are_split_over_the_rest(
    make_plan: Callable[..., Plan], engine: str, expert: int
) -> None:
    """`--tp 8 --ep-size 2`: half the experts on a rank, each in four (moe_tp = tp / ep): no more
    bytes than with either alone. Source: derive_parallel_widths of SGLang 0.5.23,
    MoeLayerMapping of TokenSpeed 0.1.1, Mapping of TensorRT-LLM.
    """
    part = make_plan("qwen3-235b", "8xH200", engine=engine, tensor=8, expert=expert)
    split = make_plan("qwen3-235b", "8xH200", engine=engine, tensor=8, expert=1)
    name = "experts.{e}.up_proj.weight"
    assert weights(part, name) == weights(split, name) > 0


def test_vllm_spreads_experts_over_all_ranks_or_none(make_plan: Callable[..., Plan]) -> None:
    """It has no size between: --enable-expert-parallel takes the tensor ranks of every replica."""
    with pytest.raises(HeavyliftError) as caught:
        make_plan("qwen3-235b", "8xH200", engine="vllm", tensor=8, expert=2)
    assert caught.value.code == "PLAN030"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_rank_keeps_the_tokens_of_its_own_sequences(
    make_plan: Callable[..., Plan], engine: str
) -> None:
    """Latents are whole on every tensor rank: eight data parallel ranks hold eight times as many
    sequences in all, and of 64 each keeps eight.
    """
    shared = make_plan(V3, "8xH200", engine=engine, tensor=8, concurrency=64)
    apart = make_plan(V3, "8xH200", engine=engine, tensor=1, data=8, expert=0, concurrency=64)
    assert 8 * apart.per_gpu.kv_cache_bytes.low == shared.per_gpu.kv_cache_bytes.low


@pytest.mark.parametrize(
    ("model", "role"),
    [
        ("deepseek-v4-flash", "shared_experts"),
        ("nemotron-3-nano", "shared_expert"),
        ("deepseek-v3", "shared_experts"),
        ("deepseek-v3.2", "mlp.down_proj"),
    ],
)
def test_sequence_parallel_experts_are_held_whole(
    make_plan: Callable[..., Plan], model: str, role: str
) -> None:
    """With experts spread over tensor and data ranks: what the token shards meet is whole."""
    split = make_plan(model, "8xH200", engine="vllm", tensor=2, pipeline=4)
    whole = make_plan(model, "8xH200", engine="vllm", tensor=2, data=4, expert=0)
    one = make_plan(model, "8xH200", engine="vllm", tensor=1, data=8, expert=0)
    assert weights(whole, role) == weights(one, role) > weights(split, role)


@pytest.mark.parametrize(
    ("strategy", "units"),
    [
        (None, 5),
        ("extra_buffer", 5),
        ("extra-buffer-lazy", 4),
        ("extra_buffer_no_overlap", 4),
        ("no_buffer", 3),
        ("no_radix", 1),
    ],
)
def test_sglang_sets_states_aside_by_its_strategy(strategy: str | None, units: int) -> None:
    """Five, four, three or one state to a request; one more is padding."""
    planning = Planning()
    _, rack = planning.rack("8xB300")
    assert rack is not None
    request = PlanRequest(
        model="kimi-k3", rack=rack, engine="sglang", concurrency=4, state_strategy=strategy
    )
    plan = planning.plan(request, planning.knowledge("kimi-k3"))
    low, high = plan.per_gpu.recurrent_state_bytes.low, plan.per_gpu.recurrent_state_bytes.high
    assert high is not None
    each = low // 4
    assert high == (4 * units + 1) * each


def test_a_strategy_that_is_not_there_is_refused(make_plan: Callable[..., Plan]) -> None:
    """The names that are there are listed; other engines have none."""
    for engine in ("sglang", "vllm"):
        with pytest.raises(HeavyliftError) as caught:
            make_plan("kimi-k3", "8xB300", engine=engine, state_strategy="lots")
        assert caught.value.code == "PLAN018"


@pytest.mark.parametrize(
    ("model", "on", "tensor", "ways"),
    [
        ("kimi-k3", "16xB300", 2, 2),
        ("kimi-k3", "16xB300", 4, 4),
        ("kimi-k3", "16xB300", 8, 1),
        ("kimi-k3", "16xB300", 16, 1),
        ("kimi-k2.5", "8xB300", 8, 8),
        ("qwen3.5-122b", "8xH200", 8, 8),
        ("qwen3.6-27b", "8xH200", 2, 2),
    ],
)
def test_a_vision_tower_is_split_where_its_heads_divide(
    make_plan: Callable[..., Plan], model: str, on: str, tensor: int, ways: int
) -> None:
    """K3's tower has 12 heads: in two or four it is split, in eight or sixteen it is whole."""
    rest = {"16xB300": 16, "8xB300": 8, "8xH200": 8}[on] // tensor
    plan = make_plan(model, on, engine="vllm", tensor=tensor, pipeline=rest, data=1, expert=1)
    name = "qkv.weight"
    tower = [group for group in _native(model).groups if group.is_vision and name in group.name]
    (group,) = tower
    (term,) = (each for each in plan.terms if each.id == "weights")
    (part,) = (each for each in term.parts if each.id == group.name)
    assert part.bytes * ways == group.bytes_total


def _native(model: str) -> Inventory:
    knowledge = Planning().knowledge(model).model
    return knowledge.inventories[knowledge.model.variants[0].id]
