"""The simulator against queues whose answers are known exactly."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from heavylift.simulate.fleet import FleetSpec, Outcome, PoolSpec, Stop, run
from heavylift.simulate.pace import Pace, Row
from heavylift.simulate.pool import Room
from heavylift.simulate.request import Request
from heavylift.simulate.workload import Closed

STEP_S = 0.01
MEAN_STEPS = 400


class Exponential:
    """Poisson arrivals of answers whose length is exponential, or always the same."""

    def __init__(self, rate_per_s: float, seed: int, *, constant: bool = False) -> None:
        self._rate = rate_per_s
        self._draw = random.Random(seed)
        self._constant = constant

    def arrivals(self) -> Iterator[Request]:
        """Prompts of one token; the first token of the answer comes with the prompt."""
        at_s = 0.0
        while True:
            at_s += self._draw.expovariate(self._rate)
            steps = MEAN_STEPS if self._constant else self._draw.expovariate(1 / MEAN_STEPS)
            yield Request(at_s, 1, 1 + max(1, round(steps)))

    def follow(self, request: Request, finished_s: float) -> Request | None:
        """Nothing follows."""
        del request, finished_s
        return None


def station(servers: int) -> FleetSpec:
    """A replica that is a queue with so many servers: steps take the same time at any batch,
    prompts next to none.
    """
    pace = Pace(prefill_floor_s=0.0, prefill_s_per_token=1e-9, rows=[Row(0.0, 0.0, STEP_S, 0.0)])
    room = Room(tokens=10**9, seats=servers, caches_prefixes=False)
    return FleetSpec(serve=PoolSpec(replicas=1, pace=pace, room=room, budget=1 << 30))


def simulated(servers: int, load: float, *, constant: bool = False, seed: int = 1) -> Outcome:
    """A long run at a load (1 = as much comes as can be served)."""
    rate = load * servers / (MEAN_STEPS * STEP_S)
    source = Exponential(rate, seed, constant=constant)
    return run(station(servers), source, Stop(requests=60_000, warmup=3_000), random.random)


def erlang_c(servers: int, load: float) -> float:
    """The part of requests that wait in M/M/c."""
    offered = load * servers
    last = offered**servers / math.factorial(servers) / (1 - load)
    return last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.7), (4, 0.7), (16, 0.8)])
def test_a_replica_of_fixed_seats_is_an_m_m_c_queue(servers: int, load: float) -> None:
    """Mean stay = service + Erlang C × service / (servers × (1 − load)), within the run's noise."""
    service = MEAN_STEPS * STEP_S
    expected = service + erlang_c(servers, load) * service / (servers * (1 - load))
    assert simulated(servers, load).e2e.mean == pytest.approx(expected, rel=0.05)


def test_stays_in_m_m_1_are_exponential() -> None:
    """The 99th percentile of the stay is ln 100 times its mean."""
    outcome = simulated(1, 0.5)
    assert outcome.e2e.quantile(0.99) == pytest.approx(math.log(100) * outcome.e2e.mean, rel=0.06)


def test_constant_answers_wait_half_as_long() -> None:
    """Mean wait in M/D/1 is half of M/M/1's (Pollaczek and Khinchine)."""
    service, load = MEAN_STEPS * STEP_S, 0.7
    wait = simulated(1, load, constant=True).e2e.mean - service
    assert wait == pytest.approx(load * service / (2 * (1 - load)), rel=0.06)


@pytest.mark.parametrize("servers", [1, 4])
def test_littles_law_holds(servers: int) -> None:
    """The number in the system over time = arrivals × mean stay, measured apart from each other."""
    rate = 0.7 * servers / (MEAN_STEPS * STEP_S)
    outcome = run(station(servers), Exponential(rate, 3), Stop(requests=20_000), random.random)
    assert outcome.in_system_s == pytest.approx(outcome.e2e.total, rel=1e-9)


@pytest.mark.parametrize(("clients", "seats"), [(3, 8), (8, 8), (40, 8)])
def test_a_closed_loop_serves_what_its_seats_give(clients: int, seats: int) -> None:
    """Throughput = min(clients, seats) / time of an answer; the others wait (Little's law)."""
    outcome = run(
        station(seats), Closed(clients, 1, 1 + MEAN_STEPS), Stop(requests=4_000), random.random
    )
    per_s = outcome.requests / outcome.span_s
    answer_s = MEAN_STEPS * STEP_S
    assert per_s == pytest.approx(min(clients, seats) / answer_s, rel=0.03)


def test_beyond_saturation_the_queue_grows_and_the_rate_stays() -> None:
    """Twice of what can be served is served at the rate of the seats."""
    outcome = simulated(4, 2.0)
    assert outcome.requests / outcome.span_s == pytest.approx(4 / (MEAN_STEPS * STEP_S), rel=0.02)
    assert outcome.left_at_last_arrival > 1.7 * outcome.waiting_mean
