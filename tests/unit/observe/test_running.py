"""A running service against its plan: the term that drifted, the GPU that is unlike the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from heavylift.observe import running
from heavylift.observe.drift import pool_of
from heavylift.plan.observed import in_use, reserves
from heavylift.records.finding import Finding
from heavylift.records.plan import Plan
from heavylift.records.ranges import Interval
from heavylift.records.receipt import MeasuredTerm
from heavylift.records.watch import EngineNow, GpuNow, HostNow, Sight
from heavylift.units import GIB

ENGINE = EngineNow(sight=Sight.SEEN)
HOST = HostNow(name="rack-7", memory_total_bytes=2048 * GIB, swap_used_bytes=0)


@pytest.fixture(scope="module")
def plan(make_plan: Callable[..., Plan]) -> Plan:
    """K3 on eight MI355X by ATOM, which reserves its share; what lies outside is known."""
    plan = make_plan("kimi-k3", "8xMI355X", engine="atom", tensor=8)
    outside = Interval(low=0, high=4 * GIB)
    return replace(plan, per_gpu=replace(plan.per_gpu, outside_pool_bytes=outside))


def gpu(number: int, gib: float, **more: float | None) -> GpuNow:
    """A GPU of 288 GiB that holds so much."""
    known = GpuNow(
        gpu=number,
        host="rack-7",
        memory_used_bytes=round(gib * GIB),
        memory_total_bytes=288 * GIB,
        use_ratio=0.9,
    )
    return replace(known, **more)  # type: ignore[arg-type]


def found(
    gpus: Sequence[GpuNow], plan: Plan | None = None, looks: int = 1, **more: object
) -> tuple[Finding, ...]:
    """Findings about GPUs that were seen so for so many looks."""
    held = [running.with_plan(each, plan) for each in gpus]
    given: dict[str, object] = {"observed": (), "engine": ENGINE, "host": HOST}
    return running.findings(plan, [held] * looks, **(given | more))  # type: ignore[arg-type]


def codes(findings: Sequence[Finding]) -> list[str]:
    """What was found."""
    return [each.code for each in findings]


def eight(gib: float) -> list[GpuNow]:
    """Eight alike."""
    return [gpu(number, gib) for number in range(8)]


def test_an_engine_that_reserves_may_hold_its_whole_budget(plan: Plan) -> None:
    """Need alone, or need and headroom: both are as planned."""
    assert reserves(plan)
    planned = in_use(plan)
    assert planned.low == plan.per_gpu.certain_total_bytes
    assert (planned.high or 0) >= plan.per_gpu.budget_bytes
    for held in (planned.low, plan.per_gpu.budget_bytes, planned.high or 0):
        assert found(eight(held / GIB), plan) == ()


def test_what_grows_above_the_budget_lies_outside_of_the_pool(plan: Plan) -> None:
    """The pool is taken once. Eight GPUs above are one finding, with the worst and their number."""
    most = (in_use(plan).high or 0) / GIB
    gpus = [*eight(most + 1)[:7], gpu(7, most + 3)]
    (above,) = found(gpus, plan)
    assert above.code == "observe.above_plan"
    assert (above.params["term"], above.params["count"]) == ("outside_pool", 8)
    assert above.subject == "rack-7 gpu 7"


def test_below_counts_only_where_all_are(plan: Plan) -> None:
    """The plan is of the fullest rank: one that is as planned is enough."""
    low = in_use(plan).low / GIB
    (below,) = found(eight(low - 20), plan)
    assert (below.code, below.params["term"]) == ("observe.below_plan", "pool")
    assert found([*eight(low - 1)[:7], gpu(7, low + 1)], plan) == ()


def test_without_a_bound_only_the_card_is_one(plan: Plan) -> None:
    """What nobody knows to lie outside of the pool cannot be too much."""
    outside = Interval(low=0, high=None)
    unknown = replace(plan, per_gpu=replace(plan.per_gpu, outside_pool_bytes=outside))
    assert in_use(unknown).high == plan.per_gpu.visible_bytes


def test_an_engine_that_reserves_nothing_holds_what_is_planned(
    make_plan: Callable[..., Plan],
) -> None:
    """Of llama.cpp what is above the plan is above it in all; a bound it has not binds nothing."""
    lean = make_plan("kimi-k3", "8xMI355X", engine="llamacpp", context_tokens=4096)
    assert not reserves(lean)
    assert in_use(lean).high in (None, lean.per_gpu.high_total_bytes)
    bounded = replace(lean, per_gpu=replace(lean.per_gpu, high_total_bytes=230 * GIB))
    (above,) = found(eight(250), bounded)
    assert (above.code, above.params["term"]) == ("observe.above_plan", "total")


def test_other_gpus_than_planned_are_named(plan: Plan) -> None:
    """Seven hold memory where eight were planned: one idles."""
    held = plan.per_gpu.budget_bytes / GIB
    (differs,) = found([*eight(held)[:7], gpu(7, 0.3)], plan)
    assert differs.code == "observe.gpus_differ"
    assert (differs.params["in_use"], differs.params["planned"]) == (7, 8)


def test_memory_that_differs_between_gpus_is_flagged_without_a_plan() -> None:
    """More than a tenth; less is what layouts leave."""
    assert codes(found([gpu(0, 200), gpu(1, 185)])) == []
    (uneven,) = found([gpu(0, 200), gpu(1, 170), gpu(2, 190)])
    assert uneven.code == "observe.memory_imbalance"
    assert (uneven.params["fullest"], uneven.params["least"]) == ("rack-7 gpu 0", "rack-7 gpu 1")


def test_a_gpu_that_idles_beside_its_like_is_flagged_after_some_looks() -> None:
    """A single look may catch it between two steps."""
    gpus = [gpu(0, 200), gpu(1, 200, use_ratio=0.1)]
    assert codes(found(gpus, looks=running.FEWEST - 1)) == []
    (idle,) = found(gpus, looks=running.FEWEST)
    assert (idle.code, idle.params["idlest"]) == ("observe.use_imbalance", "rack-7 gpu 1")
    unknown = [gpu(0, 200), gpu(1, 200, use_ratio=None)]
    assert codes(found(unknown, looks=running.FEWEST)) == []


def test_host_memory_used_by_a_card_is_a_spill_unless_it_lives_there() -> None:
    """A card with memory of its own; an integrated one has more of the host's than its own."""
    spilt = gpu(0, 280, gtt_used_bytes=40 * GIB, gtt_total_bytes=100 * GIB)
    (spill,) = found([spilt])
    assert (spill.code, spill.params["gtt_bytes"]) == ("observe.spill", 40 * GIB)
    assert codes(found([replace(spilt, gtt_used_bytes=2 * GIB)])) == []
    integrated = replace(spilt, memory_total_bytes=GIB, gtt_used_bytes=64 * GIB)
    assert "observe.spill" not in codes(found([integrated]))


def test_swap_and_preemptions_are_flagged() -> None:
    """Two percent of the memory swapped out; requests thrown out of the cache, with the term."""
    swapping = replace(HOST, swap_used_bytes=100 * GIB)
    assert codes(found([], host=swapping)) == ["observe.swap"]
    busy = replace(ENGINE, preemptions_in_window=3.0, window_s=60.0)
    (preempted,) = found([], engine=busy)
    assert (preempted.subject, preempted.params["count"]) == ("kv_cache", 3)


def term(name: str, bytes_: int, device: str = "tp0") -> MeasuredTerm:
    """A term as a log tells it."""
    return MeasuredTerm(term=name, device=device, bytes=bytes_, resolution_bytes=1, line="")


def test_terms_stand_beside_the_plan_and_the_pool_beside_need_and_headroom(plan: Plan) -> None:
    """What the GPU holds beside the log's terms lies outside of the pool."""
    per_gpu = plan.per_gpu
    pool = pool_of(plan).high or 0
    weights = per_gpu.weights_bytes.low
    measured = [term("weights", weights), term("pool", pool), term("weights", weights - GIB, "tp1")]
    gpus = [replace(gpu(0, 0), memory_used_bytes=weights + pool + 5 * GIB)]
    terms = {each.term: each for each in running.terms(plan, measured, gpus)}
    assert terms["weights"].observed_bytes == weights
    assert (terms["weights"].is_inside, terms["pool"].is_inside) == (True, True)
    assert (terms["outside_pool"].observed_bytes, terms["outside_pool"].basis) == (5 * GIB, "gpu")
    assert terms["workspace"].is_inside is None
    grown = running.terms(plan, [term("pool", pool + 20 * GIB)], [])
    drifted = found([], plan, observed=grown)
    assert [(each.code, each.subject) for each in drifted] == [("observe.term", "pool")]


def test_terms_without_a_plan_are_told_and_not_judged() -> None:
    """Observed, and nothing to hold them against."""
    terms = running.terms(None, [term("weights", GIB), term("pool", GIB)], [gpu(0, 3)])
    assert [(each.term, each.observed_bytes) for each in terms] == [
        ("weights", GIB),
        ("pool", GIB),
        ("outside_pool", GIB),
    ]
    assert {each.is_inside for each in terms} == {None}


def test_used_memory_of_an_engine_that_reserves_is_explained(
    plan: Plan, make_plan: Callable[..., Plan]
) -> None:
    """The pool, not the need; where nothing is reserved there is nothing to explain."""
    (note,) = running.notes(plan, eight(200), ENGINE)
    assert note.code == "observe.pool"
    assert note.params["need_bytes"] == plan.per_gpu.known_total_bytes
    lean = make_plan(
        "smollm2-135m-instruct", "this-machine", engine="embedded", context_tokens=4096
    )
    assert not reserves(lean)
    assert running.notes(lean, [], ENGINE) == ()
    assert running.terms(lean, [], [])[1].term == "kv_cache"
    assert [each.code for each in running.notes(None, eight(1), ENGINE)] == ["observe.no_plan"]


def test_the_furthest_from_the_plan_comes_first(plan: Plan) -> None:
    """Then by host and number."""
    most = (in_use(plan).high or 0) / GIB
    gpus = [running.with_plan(each, plan) for each in (gpu(1, 230), gpu(0, 230), gpu(5, most + 1))]
    assert [each.gpu for each in running.by_drift(gpus)] == [5, 0, 1]
    assert running.with_plan(gpu(0, 1), None).drift_bytes is None
    unknown = running.with_plan(gpu(0, 1, memory_used_bytes=None), plan)
    assert unknown.drift_bytes is None
