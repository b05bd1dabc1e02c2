"""DeepSeek-V4 on vLLM: pages of unlike size packed into blocks, group by group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heavylift.plan.defaults import resolve
from heavylift.plan.packed_groups import PackedGroups, _least_padding
from heavylift.plan.stages import stages
from heavylift.plan.subject import Subject
from heavylift.planning import Planning
from heavylift.records.plan import Layout, Plan, PlanRequest
from heavylift.units import GIB

FLASH = "deepseek-v4-flash"
WORK = {"engine": "vllm", "tensor": 2, "context_tokens": 121_344, "max_num_batched_tokens": 8192}


def subject_of(engine_version: str, kv_dtype: str = "fp8") -> Subject:
    """V4-Flash on two H20, as far as memory asks."""
    planning = Planning()
    _, rack = planning.rack("2xH20")
    assert rack is not None
    knowledge = planning.knowledge(FLASH)
    request = PlanRequest(
        model=FLASH,
        rack=rack,
        engine="vllm",
        engine_version=engine_version,
        kv_cache_dtype=kv_dtype,
        max_num_batched_tokens=8192,
    )
    machine = knowledge.machines["h20"]
    engine = knowledge.engines["vllm"]
    return resolve(request, knowledge.model, engine, machine.gpu, machine.node)


def packed(subject: Subject) -> PackedGroups:
    """Its cache."""
    rule = subject.scope.first(subject.engine.caches)
    assert rule is not None
    return PackedGroups(rule, subject)


def test_a_request_costs_what_a_start_printed(make_plan: Callable[..., Plan]) -> None:
    """On two H20 vLLM 0.26.0 printed 7.71 GiB for 1.24 requests of 121,344 tokens, 6.2 GiB each
    (vllm#51041); the rules of 0.32.0 give 6.7.
    """
    plan = make_plan(FLASH, "2xH20", **WORK)
    assert plan.per_gpu.kv_cache_bytes.low / GIB == pytest.approx(7.71 / 1.24, rel=0.08)


def test_blocks_are_counted_group_by_group() -> None:
    """By hand: a block holds the latents of 21 CSA and 20 HCA layers and 21 index keys; a request
    takes 474 of them, 259 of each of two groups of windows, 4,099 and 2,065 of the compressors.
    """
    subject = subject_of("0.32.0")
    (stage,) = stages(subject, Layout(tensor_parallel_size=2))
    block = 21 * 37_440 + 21 * 8_640 + 20 * 1_728
    parts = {part.id: part.bytes for part in packed(subject).kv_parts(stage, 121_344, 1)}
    assert parts == {
        "latents": 474 * block,
        "windows": 2 * 259 * block,
        "compressors of 4": 4099 * block,
        "compressors of 128": 2065 * block,
    }


def test_room_and_need_invert_one_another() -> None:
    """What a room holds takes no more than the room, and one token or sequence more would."""
    subject = subject_of("0.32.0")
    (stage,) = stages(subject, Layout(tensor_parallel_size=2))
    cache = packed(subject)
    need = sum(part.bytes for part in cache.kv_parts(stage, 121_344, 3))
    block = 1_002_240
    assert cache.sequences_in(stage, need + block, 121_344, reserved=True) == 3
    assert cache.sequences_in(stage, need, 121_344, reserved=True) == 2
    longest = cache.tokens_in(stage, need + block, 3, reserved=True)
    assert 121_344 <= longest < 121_344 + 256
    pool = cache.pool_tokens(stage, need + block)
    assert pool > 3 * 121_344
    assert cache.pool_tokens(stage, 0) == 0
    assert cache.tokens_in(stage, 0, 1, reserved=True) == 0


def test_short_sequences_pay_for_no_more_than_they_have() -> None:
    """A window holds at most the tokens there are."""
    subject = subject_of("0.32.0")
    (stage,) = stages(subject, Layout(tensor_parallel_size=2))
    parts = packed(subject).kv_parts(stage, 64, 1)
    blocks = {part.id: part.bytes // 1_002_240 for part in parts}
    assert blocks == {
        "latents": 1,
        "windows": 4,
        "compressors of 4": 17,
        "compressors of 128": 9,
    }


def test_bf16_has_pages_of_its_own(make_plan: Callable[..., Plan]) -> None:
    """Latents of 1,024 B, aligned to 512: more than FP8 takes."""
    fp8 = make_plan(FLASH, "2xH20", **WORK)
    bf16 = make_plan(FLASH, "2xH20", **WORK, kv_cache_dtype="bf16")
    assert bf16.per_gpu.kv_cache_bytes.low > fp8.per_gpu.kv_cache_bytes.low


def test_a_stage_without_layers_of_a_kind_has_no_group_of_it() -> None:
    """Of 43 stages the first two hold windows alone."""
    subject = subject_of("0.32.0")
    first, *_ = stages(subject, Layout(pipeline_parallel_size=43))
    cache = packed(subject)
    assert [part.id for part in cache.kv_parts(first, 1024, 1)] == ["windows"]
    assert cache.pool_tokens(first, GIB) > 2**60


def test_versions_whose_packing_was_not_read_keep_the_general_rule() -> None:
    """It came with 0.29.0."""
    subject = subject_of("0.28.0")
    rule = subject.scope.first(subject.engine.caches)
    assert rule is not None
    assert rule.layout == "unified_pages"


@pytest.mark.parametrize(
    ("counts", "least", "size"),
    [([43, 21, 20], 21, 22), ([4, 4], 2, 4), ([3], 5, 5), ([6, 4], 2, 2)],
)
def test_groups_are_as_wide_as_pads_least(counts: list[int], least: int, size: int) -> None:
    """43, 21 and 20 layers are padded least by groups of 22; of equals the widest."""
    assert _least_padding(counts, least) == size
