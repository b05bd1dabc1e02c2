"""Fleets: scheduling, preemption, routers, split pools, failures."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from heavylift.simulate.fleet import Failures, FleetSpec, Outcome, PoolSpec, Router, Stop, run
from heavylift.simulate.pace import Pace, Row
from heavylift.simulate.pool import Room
from heavylift.simulate.request import Request
from heavylift.simulate.workload import Closed, Conversations
from heavylift.traffic.shape import TrafficShape

PACE = Pace(prefill_floor_s=0.05, prefill_s_per_token=1e-4, rows=[Row(0.01, 1e-8, 0.0, 0.005)])
ROOM = Room(tokens=100_000)
TALK = TrafficShape(
    first_tokens=1500,
    first_spread=0.5,
    output_tokens=60,
    output_spread=0.5,
    turn_tokens=200,
    turn_spread=0.5,
    turns_mean=6,
    pause_s=5.0,
)


class Listed:
    """Requests that are written down."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = list(requests)

    def arrivals(self) -> Iterator[Request]:
        """Them."""
        return iter(self._requests)

    def follow(self, request: Request, finished_s: float) -> Request | None:
        """Nothing follows."""
        del request, finished_s
        return None


def fleet(
    replicas: int = 1, *, room: Room = ROOM, pace: Pace = PACE, budget: int = 8192
) -> FleetSpec:
    """Equal replicas."""
    return FleetSpec(serve=PoolSpec(replicas=replicas, pace=pace, room=room, budget=budget))


def talks(spec: FleetSpec, rate: float, *, seed: int = 1, requests: int = 2000) -> Outcome:
    """Conversations at a rate."""
    source = Conversations(TALK, rate, random.Random(seed).random)
    return run(spec, source, Stop(requests=requests), random.Random(seed + 1).random)


def test_one_request_takes_its_prompt_and_its_steps() -> None:
    """First token after the prefill, each further token a step: by hand."""
    outcome = run(fleet(), Listed([Request(2.0, 1000, 11)]), Stop(requests=1), random.random)
    assert outcome.ttft.mean == pytest.approx(0.05 + 0.1)
    steps = sum(0.015 + 1e-8 * (1001 + done) for done in range(10))
    assert outcome.e2e.mean == pytest.approx(0.15 + steps)
    assert outcome.tpot.mean == pytest.approx(steps / 10)
    assert outcome.output_tokens == 11


def test_a_long_prompt_goes_in_chunks_beside_the_batch() -> None:
    """A prompt of five steps' tokens delays the one that decodes by its chunks."""
    early, late = Request(0.0, 100, 200), Request(0.5, 5000, 2)
    outcome = run(fleet(budget=1001), Listed([early, late]), Stop(requests=2), random.random)
    alone = run(fleet(), Listed([Request(0.0, 100, 200)]), Stop(requests=1), random.random)
    chunks = 5 * 0.05 + 5000 * 1e-4
    assert outcome.e2e.largest - alone.e2e.mean == pytest.approx(chunks, abs=0.02)


def test_more_than_the_memory_holds_is_preempted_and_still_finished() -> None:
    """Sequences that outgrow the pool are taken up again; every token is made."""
    spec = fleet(room=Room(tokens=5000, caches_prefixes=False))
    requests = [Request(0.0, 400, 900) for _ in range(12)]
    outcome = run(spec, Listed(requests), Stop(requests=12), random.random)
    assert outcome.requests == 12
    assert outcome.output_tokens == 12 * 900
    assert outcome.serve.preemptions > 0
    assert outcome.serve.held_back_s[2] > 0


def test_seats_bound_the_batch() -> None:
    """With two seats, no more than two decode, whatever waits."""
    spec = fleet(room=replace(ROOM, seats=2))
    outcome = run(spec, Closed(10, 100, 100), Stop(requests=60), random.random)
    assert outcome.serve.batch_s / outcome.serve.busy_s <= 2
    assert outcome.serve.held_back_s[1] > 0.8 * outcome.serve.busy_s


def test_what_no_pool_holds_is_refused() -> None:
    """A request longer than the pool is refused, and the next one is served."""
    requests = [Request(0.0, 200_000, 10), Request(0.0, 100, 10)]
    outcome = run(fleet(), Listed(requests), Stop(requests=2), random.random)
    assert (outcome.refused, outcome.requests) == (1, 1)


def test_what_is_longer_than_the_models_context_is_refused() -> None:
    """At the door; what fits is served."""
    requests = [Request(0.0, 900, 200), Request(0.0, 900, 100)]
    spec = replace(fleet(), longest_tokens=1000)
    outcome = run(spec, Listed(requests), Stop(requests=2), random.random)
    assert (outcome.refused, outcome.requests) == (1, 1)


@pytest.mark.parametrize("router", list(Router))
def test_every_router_serves_everything(router: Router) -> None:
    """Nothing is lost, and the same seed gives the same answer."""
    spec = replace(fleet(4), router=router)
    first, second = talks(spec, 6.0), talks(spec, 6.0)
    assert first.requests == 2000
    assert first.e2e.total == second.e2e.total
    assert first.e2e.total != talks(spec, 6.0, seed=9).e2e.total


def test_affinity_finds_more_in_caches_than_turns() -> None:
    """Sent to where its conversation is kept, a turn finds it; sent in turn, mostly not."""
    near = talks(replace(fleet(8), router=Router.AFFINITY), 8.0).serve
    turn = talks(replace(fleet(8), router=Router.ROUND_ROBIN), 8.0).serve
    near_ratio = near.cached_tokens / near.prompt_tokens
    assert near_ratio > 0.6
    assert near_ratio > 2 * turn.cached_tokens / turn.prompt_tokens


def test_the_least_loaded_wait_less_than_the_random() -> None:
    """Two choices lie between chance and the least loaded."""
    waits = {
        router: talks(replace(fleet(8), router=router), 14.0).ttft.quantile(0.95)
        for router in (Router.LEAST, Router.TWO_CHOICES, Router.RANDOM)
    }
    assert waits[Router.LEAST] < waits[Router.TWO_CHOICES] < waits[Router.RANDOM]


def test_split_pools_decode_without_prompts_between() -> None:
    """Decode replicas spend nothing on prompts; a handover delays the second token."""
    whole = fleet(2)
    split = replace(whole, prefill=whole.serve, handover_s=0.2, handover_s_per_token=1e-5)
    apart, together = talks(split, 4.0), talks(whole, 4.0)
    assert apart.serve.prefill_s == 0
    assert apart.requests == 2000
    assert apart.ttft.mean < together.ttft.mean
    request = Request(0.0, 1000, 11)
    one = run(split, Listed([request]), Stop(requests=1), random.random)
    alone = run(whole, Listed([Request(0.0, 1000, 11)]), Stop(requests=1), random.random)
    assert one.ttft.mean == alone.ttft.mean
    assert one.e2e.mean - alone.e2e.mean == pytest.approx(0.21)


def test_failures_lose_time_and_no_requests() -> None:
    """What a failed replica held begins again elsewhere; all are answered, some late."""
    steady = fleet(4)
    failing = replace(steady, failures=Failures(mean_up_s=60.0, start_s=30.0))
    before, after = talks(steady, 4.0), talks(failing, 4.0)
    assert after.failures > 5
    assert after.broken > 0
    assert after.requests == 2000
    assert after.ttft.quantile(0.99) > before.ttft.quantile(0.99)


def test_with_all_replicas_down_requests_wait_for_the_first_to_start() -> None:
    """A lone replica that fails makes everybody wait its start, and then serves them."""
    failing = replace(fleet(1), failures=Failures(mean_up_s=20.0, start_s=100.0))
    outcome = run(failing, Closed(4, 100, 50), Stop(requests=300), random.Random(2).random)
    assert outcome.requests == 300
    assert outcome.ttft.largest > 100


def test_memory_stays_flat() -> None:
    """Ten times the requests take no more buckets of latencies and no more kept conversations."""
    spec = replace(fleet(2), router=Router.AFFINITY)
    short, long = talks(spec, 3.0, requests=1000), talks(spec, 3.0, requests=10_000)
    assert long.e2e.count == 10 * short.e2e.count
    assert len(long.e2e.buckets) < 2 * len(short.e2e.buckets)
