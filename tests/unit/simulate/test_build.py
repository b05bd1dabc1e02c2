"""Fleets built from plans: replicas, what a pool holds, what a handover takes."""

from __future__ import annotations

from typing import Any

import pytest

from heavylift.plan.prefill_decode import handover
from heavylift.plan.speed import forecaster
from heavylift.planning import Planning
from heavylift.records.plan import PlanRequest
from heavylift.records.simulation import PaceEnd
from heavylift.records.speed import SpeedWorkload
from heavylift.simulate.build import PACES, Fleet, Unit

CONTEXT = 8192
DCP = {"tensor": 8, "decode_context": 4}
WORK = SpeedWorkload(concurrency=1, input_tokens=1200, output_tokens=200)


@pytest.fixture(scope="module")
def unit(planning: Planning) -> Any:
    """`unit(racks as typed, …)`: Kimi K3 in SGLang there, with settings of the request."""

    def made(rack: str, **asked: Any) -> Unit:
        _, found = planning.rack(rack)
        assert found is not None
        knowledge = planning.knowledge("kimi-k3")
        request = PlanRequest(
            model="kimi-k3", rack=found, engine="sglang", context_tokens=CONTEXT, **asked
        )
        plan = planning.plan(request, knowledge, with_fixes=False)
        return Unit(forecaster(plan, knowledge, planning.catalog.speed()), WORK)

    return made


def test_a_handover_takes_its_bytes_over_the_link(unit: Any) -> None:
    """State once and KV per token, at 50 GB/s; without a link in between it takes no time."""
    serve = unit("8xB300")
    moved = handover(serve.forecaster, 0)
    spec = Fleet(serve=serve, racks=1, prefill=serve, prefill_racks=1, link_gb_per_s=50.0).spec(
        PaceEnd.MIDDLE
    )
    assert moved.wire_state_bytes > 0
    assert spec.handover_s == pytest.approx(moved.wire_state_bytes / 50e9)
    assert spec.handover_s_per_token == pytest.approx(moved.wire_kv_bytes_per_token / 50e9)
    at_once = Fleet(serve=serve, racks=1).spec(PaceEnd.MIDDLE)
    assert (at_once.handover_s, at_once.handover_s_per_token) == (0.0, 0.0)


def test_a_block_of_tokens_is_spread_over_the_ranks_that_share_a_context(unit: Any) -> None:
    """With decode context parallelism of four a sequence takes four pages at a time."""
    alone, shared = unit("8xB300"), unit("8xB300", layout_constraints=DCP)
    assert shared.plan.layout.decode_context_parallel_size == 4
    assert shared.plan.page_tokens is not None
    assert alone.state_and_block_tokens[1] == alone.plan.page_tokens
    assert shared.state_and_block_tokens[1] == 4 * shared.plan.page_tokens


def test_the_slow_end_holds_the_least_and_the_fast_end_the_most(unit: Any) -> None:
    """Between them the middle; a pool that an engine reported is taken at every pace."""
    serve = unit("8xB300")
    slow, middle, fast = (serve.room(pace).tokens for pace in PACES)
    assert 0 < slow <= middle <= fast
    told = Unit(serve.forecaster, WORK, kv_tokens=12345)
    assert {told.room(pace).tokens for pace in PACES} == {12345}
    assert told.room(PaceEnd.SLOW).state_tokens == 0


def test_racks_for_prompts_grow_with_those_that_serve(unit: Any) -> None:
    """One for two racks of decode is two for four, and never none."""
    serve = unit("8xB300")
    fleet = Fleet(serve=serve, racks=2, prefill=serve, prefill_racks=1)
    spec = fleet.spec(PaceEnd.MIDDLE)
    for racks, prompts in ((4, 2), (1, 1)):
        sized = fleet.sized(spec, racks)
        assert sized.prefill is not None
        assert sized.serve.replicas == racks * serve.replicas
        assert sized.prefill.replicas == prompts * serve.replicas
    assert fleet.gpu_count == 24
