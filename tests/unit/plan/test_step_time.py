"""A step's time, part by part, against figures computed by hand from the checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from heavylift.errors import HeavyliftError
from heavylift.plan.planner import Knowledge
from heavylift.plan.speed import crosses_nodes, forecaster, subject_of
from heavylift.plan.step_time import (
    Constants,
    Hardware,
    Load,
    StageLoad,
    StepTime,
    fullest_rank_ratio,
    load_of,
    pairs,
    touched_ratio,
)
from heavylift.planning import Planning
from heavylift.records.plan import Layout, Plan
from heavylift.records.speed import SpeedPart

# One rank, two stages of ten layers; round numbers that divide.
LOAD = Load(
    layout=Layout(tensor_parallel_size=2, pipeline_parallel_size=2),
    stages=(
        StageLoad(
            layers=10,
            dense_bytes=1e9,
            expert_bytes=8e9,
            kv_bytes_per_token=1e4,
            state_bytes_per_sequence=1e6,
        ),
    )
    * 2,
    hidden_size=1000,
    active_params=1e9,
    experts=8,
    experts_per_token=2,
    microbatches=2,
)
HARDWARE = Hardware(memory_bytes_per_s=1e12, link_bytes_per_s=1e11, flops_per_s=1e14)
CONSTANTS = Constants(memory_efficiency=0.5, compute_efficiency=0.5, prefill_floor_s_per_layer=1e-3)
TIMES = StepTime(LOAD, HARDWARE, CONSTANTS, 100e-6)


def test_k3_touches_the_experts_that_even_routing_says() -> None:
    """16, 120, 393, 613, 807, 887 of 896 experts at batches of 1 to 256 (design, speed)."""
    touched = [round(896 * touched_ratio(896, 16, batch)) for batch in (1, 8, 32, 64, 128, 256)]
    assert touched == [16, 120, 393, 613, 807, 887]


def test_a_rank_that_holds_all_experts_reads_what_is_touched() -> None:
    """With one rank there is no busiest one."""
    assert fullest_rank_ratio(896, 1, 0.25) == 0.25


def test_the_busiest_of_two_ranks_with_one_expert_each_is_the_chance_of_either() -> None:
    """E[max] of two coins of probability p is 1 - (1 - p)²."""
    assert fullest_rank_ratio(2, 2, 0.3) == pytest.approx(1 - 0.7**2)


def test_spreading_experts_makes_the_busiest_rank_read_more() -> None:
    """At one token of K3 over 16 ranks the busiest reads about three of its 56 experts."""
    busiest = 56 * fullest_rank_ratio(896, 16, touched_ratio(896, 16, 1))
    assert 2.5 < busiest < 3.5
    assert fullest_rank_ratio(896, 16, 1.0) == 1.0


def test_a_step_adds_up_from_bytes_over_bandwidth_and_layers() -> None:
    """By hand, for 4 sequences in 2 microbatches at 1,000 tokens of context."""
    parts = TIMES.step_parts(4, 1000)
    touched = 1 - (1 - 2 / 8) ** 2
    expected = {
        SpeedPart.DENSE_WEIGHTS: 2e9 / 1e12 / 0.5,
        SpeedPart.EXPERT_WEIGHTS: touched * 16e9 / 1e12 / 0.5,
        SpeedPart.KV_CACHE: 2e4 * 1000 * 2 / 1e12 / 0.5,
        SpeedPart.RECURRENT_STATE: 2 * 2e6 * 2 / 1e12 / 0.5,
        SpeedPart.COMPUTE: 0.0,
        SpeedPart.COLLECTIVES: 20 * 2 * 2 * 0.5 * (2 * 1000 * 2) / 1e11,
        SpeedPart.FIXED: 20 * 100e-6,
    }
    assert parts == pytest.approx(expected)
    assert TIMES.step_s(4, 1000) == pytest.approx(sum(expected.values()))


def test_the_floor_has_no_efficiency_and_no_fixed_cost() -> None:
    """Bytes at full bandwidth: nothing is faster."""
    touched = 1 - (1 - 2 / 8) ** 2
    by_hand = (2e9 + touched * 16e9 + 2e4 * 1000 * 2 + 2 * 2e6 * 2) / 1e12
    assert TIMES.floor_s(4, 1000) == pytest.approx(by_hand)
    assert TIMES.floor_s(4, 1000) < TIMES.step_s(4, 1000)


def test_compute_shows_only_where_it_takes_longer_than_memory() -> None:
    """10,000 sequences are bound by operations; the part is what memory does not hide."""
    parts = TIMES.step_parts(10_000, 0)
    memory = sum(
        parts[part]
        for part in (
            SpeedPart.DENSE_WEIGHTS,
            SpeedPart.EXPERT_WEIGHTS,
            SpeedPart.KV_CACHE,
            SpeedPart.RECURRENT_STATE,
        )
    )
    compute = 2 * 1e9 * 5000 / (1e14 * 0.5 * 2)
    assert compute > memory
    assert parts[SpeedPart.COMPUTE] == pytest.approx(compute - memory)


def test_a_prompt_takes_a_floor_and_its_operations() -> None:
    """Formula: layers × floor + 2 × parameters × tokens / (peak × efficiency × tp) + messages."""
    messages = 20 * 2 * 2 * 0.5 * (500 * 1000 * 2) / 1e11
    by_hand = 20e-3 + 2 * 1e9 * 500 / (1e14 * 0.5 * 2) + messages
    assert TIMES.prefill_s(500) == pytest.approx(by_hand)
    assert TIMES.prefill_s(0) == 0.0


def test_a_dense_model_has_no_distinct_experts() -> None:
    """None, not zero: there are none to count."""
    dense = Load(
        layout=Layout(),
        stages=(
            StageLoad(
                layers=1,
                dense_bytes=1e9,
                expert_bytes=0,
                kv_bytes_per_token=0,
                state_bytes_per_sequence=0,
            ),
        ),
        hidden_size=1,
        active_params=1,
        experts=None,
        experts_per_token=0,
        microbatches=1,
    )
    times = StepTime(dense, HARDWARE, CONSTANTS, 0.0)
    assert times.distinct_experts(8) is None
    assert times.step_parts(8, 0)[SpeedPart.EXPERT_WEIGHTS] == 0


def test_k3_reads_its_inventory(
    make_plan: Callable[..., Plan], knowledge_of: Callable[[str], Knowledge]
) -> None:
    """All routed experts of one rank of eight are an eighth of 1,446.5 GB; a step of K3 at one
    sequence takes 3.5 ms of weights on 8 B300 (design, speed).
    """
    plan = make_plan("kimi-k3", "8xB300", engine="sglang", tensor=8)
    load = load_of(subject_of(plan, knowledge_of("kimi-k3")), plan.layout)
    (stage,) = load.stages
    assert stage.expert_bytes == pytest.approx(1446.456e9 / 8, rel=1e-4)
    assert stage.layers == load.layers == 93
    assert stage.kv_bytes_per_token == 27_648
    touched = touched_ratio(896, 16, 1) * stage.expert_bytes
    assert (stage.dense_bytes + touched) / 7.75e12 == pytest.approx(3.5e-3, rel=0.03)


def test_pipeline_stages_share_the_model(
    make_plan: Callable[..., Plan], knowledge_of: Callable[[str], Knowledge]
) -> None:
    """Two stages of eight ranks read what one of eight reads, and hold two microbatches."""
    whole = make_plan("kimi-k3", "8xB300", engine="vllm", tensor=8, expert=1)
    halves = make_plan("kimi-k3", "2x8xB300", engine="vllm", tensor=8, pipeline=2, expert=1)
    knowledge = knowledge_of("kimi-k3")
    one = load_of(subject_of(whole, knowledge), whole.layout)
    two = load_of(subject_of(halves, knowledge), halves.layout)
    assert two.microbatches == 2
    assert sum(s.expert_bytes for s in two.stages) == one.stages[0].expert_bytes


def test_a_variant_of_published_size_only_has_no_speed(
    make_plan: Callable[..., Plan], knowledge_of: Callable[[str], Knowledge]
) -> None:
    """What a step reads is not known by group: PLAN070."""
    plan = make_plan("kimi-k3", "8xB300", engine="llamacpp", variant="ud-iq1-s")
    subject = subject_of(plan, knowledge_of("kimi-k3"))
    with pytest.raises(HeavyliftError) as caught:
        load_of(subject, plan.layout)
    assert caught.value.code == "PLAN070"


@pytest.mark.parametrize(
    ("rack", "tensor", "crosses"),
    [("2x8xH200", 16, True), ("2x8xH200", 8, False), ("16xGB200", 16, False)],
)
def test_tensor_parallelism_crosses_where_the_fast_links_end(
    make_plan: Callable[..., Plan],
    knowledge_of: Callable[[str], Knowledge],
    rack: str,
    tensor: int,
    crosses: bool,
) -> None:
    """Machines of eight end at eight; 72 trays of one link domain do not end at four."""
    plan = make_plan("kimi-k3", rack, engine="vllm", tensor=tensor)
    assert crosses_nodes(subject_of(plan, knowledge_of("kimi-k3")), plan.layout) is crosses


def test_the_host_has_no_known_bandwidth(
    planning: Planning, make_plan: Callable[..., Plan], knowledge_of: Callable[[str], Knowledge]
) -> None:
    """No speed is forecast for a machine whose memory bandwidth nobody stated: PLAN071."""
    plan = make_plan("smollm2-135m-instruct", "this-machine")
    found = forecaster(plan, knowledge_of("smollm2-135m-instruct"), planning.catalog.speed())
    with pytest.raises(HeavyliftError) as caught:
        found.times(0.0)
    assert caught.value.code == "PLAN071"


def test_more_of_anything_is_never_faster() -> None:
    """Batch, context and drafted tokens: a step never gets shorter."""
    for few, many in itertools.pairwise((1, 2, 5, 50)):
        assert TIMES.step_s(few, 100) <= TIMES.step_s(many, 100)
        assert TIMES.step_s(4, few) <= TIMES.step_s(4, many)
        assert TIMES.step_s(4, 100, few) <= TIMES.step_s(4, 100, many)


def test_without_a_known_peak_compute_is_not_guessed() -> None:
    """No operations per second stated: memory alone is counted, and a prompt takes its floor."""
    blind = StepTime(
        LOAD,
        Hardware(memory_bytes_per_s=1e12, link_bytes_per_s=None, flops_per_s=None),
        CONSTANTS,
        0.0,
    )
    assert blind.step_parts(10_000, 0)[SpeedPart.COMPUTE] == 0
    assert blind.prefill_s(500) == pytest.approx(20e-3)


@pytest.mark.parametrize("window", [0, 5])
def test_pairs_of_a_prompt_in_chunks_are_those_of_the_whole(window: int) -> None:
    """However it is cut; without a window half of the square, with one a line in the end."""
    whole = pairs(12, 0, window)
    assert whole == pytest.approx(pairs(3, 0, window) + pairs(4, 3, window) + pairs(5, 7, window))
    assert whole == (72 if not window else 12.5 + 7 * 5)


def test_k3s_attention_outweighs_its_weights_at_its_longest_prompt(
    planning: Planning, make_plan: Callable[..., Plan], knowledge_of: Callable[..., Knowledge]
) -> None:
    """24 layers × 96 heads × (128 + 64 + 128) channels × 2 × n²/2: 8.1e17 operations at 2^20
    tokens beside 2 × 104.19e9 × 2^20 = 2.2e17; at 8,192 tokens less than 3 % of them.
    """
    plan = make_plan("kimi-k3", "8xB300", engine="vllm")
    found = forecaster(plan, knowledge_of("kimi-k3"), planning.catalog.speed())
    (part,) = found.load.attention
    assert part.channels == 24 * 96 * 320
    times = found.times(1e-4)
    assert times.attention_s(2**20, 0) / times.compute_s(2**20) == pytest.approx(3.71, rel=0.01)
    assert times.attention_s(8192, 0) / times.compute_s(8192) < 0.03
