"""Racks of unlike cards, judged rank by rank."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heavylift.errors import HeavyliftError
from heavylift.plan.rack import rack_parts
from heavylift.plan.speed import subject_of
from heavylift.planning import Planning
from heavylift.records.plan import Plan, PlanVerdict, RackPart, Status

VLLM = {"engine": "vllm"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("4xA100-80+4xA100-40", ("4xA100-80", "4xA100-40")),
        ("1 x RTX 3090 + 1 x RTX 4090", ("1 x RTX 3090", "1 x RTX 4090")),
        ("2xAI Max+", ("2xAI Max+",)),
        ("AI Max+ 395 x 2", ("AI Max+ 395 x 2",)),
    ],
)
def test_a_plus_joins_racks_only_before_a_count(text: str, parts: tuple[str, ...]) -> None:
    """Names of cards have pluses of their own."""
    assert rack_parts(text) == parts


def test_the_card_with_the_least_memory_stands_for_the_rack() -> None:
    """The parts keep their order, which is that of the ranks."""
    gpu, rack = Planning().rack("4xA100-80+4xA100-40")
    assert rack is not None
    assert (gpu.id, rack.gpu, rack.gpu_count, rack.nodes) == ("a100-40", "a100-40", 8, 1)
    assert [(part.gpu, part.count) for part in rack.parts] == [("a100-80", 4), ("a100-40", 4)]
    assert isinstance(rack.parts[0], RackPart)


def test_parts_of_one_kind_are_an_ordinary_rack() -> None:
    """`2xH200+2xH200` is four H200."""
    _, rack = Planning().rack("2xH200+2xH200")
    assert rack is not None
    assert (rack.parts, rack.label) == ((), "4xH200")


def test_more_than_a_machine_are_machines_of_each_kind() -> None:
    """Eight and eight are two machines; eight and four are no rack that is joined."""
    _, rack = Planning().rack("8xB300+8xB200")
    assert rack is not None
    assert (rack.nodes, rack.gpus_per_node) == (2, 8)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1xRTX4090+1xMI300X", "PLAN008"),
        ("8xB300+4xB200", "PLAN017"),
        ("2x8xH200+8xH100", "PLAN001"),
        ("16xH200+8xH100", "PLAN003"),
        ("1xRTX4090+1xRTX9999", "FACT011"),
    ],
)
def test_what_cannot_be_joined_is_said(text: str, code: str) -> None:
    """Other makers, several machines, more than a machine holds, unknown cards."""
    with pytest.raises(HeavyliftError) as caught:
        Planning().rack(text)
    assert caught.value.code == code


def test_equal_shares_are_limited_by_the_smallest_card(make_plan: Callable[..., Plan]) -> None:
    """Tensor parallel over unlike cards is the plan of as many of the smaller."""
    mixed = make_plan("qwen3-32b", "4xA100-80+4xA100-40", **VLLM, tensor=8)
    small = make_plan("qwen3-32b", "8xA100-40", **VLLM, tensor=8)
    assert mixed.per_gpu == small.per_gpu
    assert mixed.budgets == small.budgets
    assert mixed.capacity == small.capacity
    assert "mixed_rack" in [note.code for note in mixed.notes]


def test_the_order_of_the_cards_decides_which_stage_they_hold(
    make_plan: Callable[..., Plan],
) -> None:
    """Two stages of four: the stage on 40 GB cards is the one that is short, wherever it is."""
    layout = {"tensor": 4, "pipeline": 2}
    later = make_plan("llama-3.1-70b", "4xA100-80+4xA100-40", **VLLM, **layout)
    first = make_plan("llama-3.1-70b", "4xA100-40+4xA100-80", **VLLM, **layout)
    assert (later.worst_stage, first.worst_stage) == (1, 0)
    assert later.per_gpu.visible_bytes == first.per_gpu.visible_bytes == 40 * 2**30


def test_a_larger_card_does_not_lend_its_room(make_plan: Callable[..., Plan]) -> None:
    """P25: 16 GB and 24 GB for a need beyond both: need, have and shortage of the smaller one."""
    plan = make_plan("qwen3-32b", "1xRTX5080+1xRTX4090", **VLLM)
    assert plan.verdict is PlanVerdict.DOES_NOT_FIT
    binding = next(limit for limit in plan.limits if limit.binds)
    assert binding.short_bytes == binding.need_bytes - binding.have_bytes > 0
    assert plan.per_gpu.visible_bytes == 16303 * 2**20


def test_two_unlike_cards_in_one_box_are_both_counted(make_plan: Callable[..., Plan]) -> None:
    """P05: 5090 and 5080, neither pooled nor left out: each holds half, the smaller decides."""
    plan = make_plan("qwen2.5-7b", "1xRTX5090+1xRTX5080", **VLLM)
    assert plan.verdict.is_positive
    assert plan.layout.world_size == 2
    assert plan.per_gpu.visible_bytes == 16303 * 2**20


def test_llamacpp_deals_layers_by_the_memory_of_each(make_plan: Callable[..., Plan]) -> None:
    """Stages go as the memory does, and each is judged by its own card."""
    plan = make_plan("kimi-k3", "4xB300+4xB200", engine="llamacpp")
    layers = [stage.last_layer - stage.first_layer + 1 for stage in plan.stages]
    assert sum(layers) == 93
    assert sum(layers[:4]) > sum(layers[4:])
    share = 268.59 / (268.59 + 178.35)
    assert sum(layers[:4]) / 93 == pytest.approx(share, abs=0.02)
    assert "mixed_layers" in [note.code for note in plan.notes]


def test_a_published_run_of_one_kind_says_nothing_of_unlike_cards(
    make_plan: Callable[..., Plan],
) -> None:
    """K3 is verified on eight B300; on four and four nobody ran it."""
    plan = make_plan("kimi-k3", "4xB300+4xB200", engine="vllm")
    assert plan.support.status is Status.UNVERIFIED


def test_no_speed_is_given_for_unlike_cards(make_plan: Callable[..., Plan]) -> None:
    """Ranks that wait for one another were measured by nobody: an error, not a guess."""
    planning = Planning()
    plan = make_plan("qwen3-32b", "4xA100-80+4xA100-40", **VLLM)
    with pytest.raises(HeavyliftError) as caught:
        subject_of(plan, planning.knowledge("qwen3-32b"))
    assert caught.value.code == "PLAN009"
