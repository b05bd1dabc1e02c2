"""Questions put to a fleet: does it hold, how much does it hold, how many does it take, what helps.

A question becomes runs. Searches are generators that ask for one run at a time, so that those for
the three speeds go on side by side, on as many processes as the caller has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from heavylift.records.simulation import FleetRun, FleetVerdict, Limit, PaceEnd, Quantiles
from heavylift.simulate.fleet import FleetSpec, Outcome, Stop
from heavylift.simulate.replica import Hold
from heavylift.simulate.sketch import Sketch
from heavylift.simulate.trace import TraceFigures
from heavylift.slo import Goal
from heavylift.traffic.shape import TrafficShape

T = TypeVar("T")

RATE_STEP: Final = 1.05
"""The highest rate is known to this factor: neighbours nearer than that differ by chance."""

_MOST_TRIES: Final = 24
_REFUSED_MOST: Final = 0.01
"""A fleet that refuses more requests than one in a hundred does not serve the traffic."""

_MOST_RACKS: Final = 4096
_HELD_BACK: Final = 0.05
_GROWING: Final = 1.7
"""A queue that grows from nothing ends at twice its mean; a steady one at its mean."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """Traffic from a file."""

    path: str
    figures: TraceFigures


@dataclass(frozen=True, kw_only=True, slots=True)
class Clients:
    """A closed loop of requests of one size."""

    clients: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run to make, plain enough to be sent to another process."""

    spec: FleetSpec
    traffic: TrafficShape | Recorded | Clients
    rate_per_s: float
    stop: Stop
    seed: int


RunAll = Callable[[Sequence[Job]], Sequence[Outcome]]
Search = Generator[Job, Outcome, T]


def drive(searches: Sequence[Search[T]], run: RunAll) -> list[T]:
    """The results of searches that go on side by side, each asking for one run at a time."""
    found: dict[int, T] = {}
    asked: dict[int, Job] = {}
    for index, search in enumerate(searches):
        _step(search, None, index, asked, found)
    while asked:
        order = sorted(asked)
        outcomes = run([asked.pop(index) for index in order])
        for index, outcome in zip(order, outcomes, strict=True):
            _step(searches[index], outcome, index, asked, found)
    return [found[index] for index in range(len(searches))]


def _step(
    search: Search[T],
    outcome: Outcome | None,
    index: int,
    asked: dict[int, Job],
    found: dict[int, T],
) -> None:
    try:
        asked[index] = next(search) if outcome is None else search.send(outcome)
    except StopIteration as stop:
        found[index] = stop.value


def meets(outcome: Outcome, goals: Sequence[Goal]) -> bool:
    """True when every objective holds; not for a run that was given up, or refused too many."""
    served = outcome.requests
    if outcome.gave_up or not served or outcome.refused > _REFUSED_MOST * served:
        return False
    return all(_statistic(outcome, goal) <= goal.limit_s for goal in goals)


def _statistic(outcome: Outcome, goal: Goal) -> float:
    sketch = {"ttft": outcome.ttft, "tpot": outcome.tpot, "e2e": outcome.e2e}[goal.metric]
    if goal.share is None:
        return sketch.mean
    return sketch.quantile(goal.share)


def highest_rate(job: Job, goals: Sequence[Goal], guess: float) -> Search[float]:
    """Requests per second that still meet the objectives; 0 when not even a thousandth does.

    Doubling and halving about a guess, then halving the gap (geometrically) down to RATE_STEP.
    """
    low, high, rate = 0.0, math.inf, guess
    for _ in range(_MOST_TRIES):
        outcome = yield replace(job, rate_per_s=rate)
        if meets(outcome, goals):
            low = rate
        else:
            high = rate
        if low and high < low * RATE_STEP:
            break
        if low == 0.0:
            rate = high / 2 if high > guess / 1000 else 0.0
            if not rate:
                return 0.0
        else:
            rate = low * 2 if math.isinf(high) else math.sqrt(low * high)
    return low


def racks_needed(
    job: Job, goals: Sequence[Goal], guess: int, sized: Callable[[FleetSpec, int], FleetSpec]
) -> Search[int | None]:
    """The fewest racks that meet the objectives at the job's rate; None beyond what is tried."""
    low, high = 0, None
    count, stride = max(1, min(guess, _MOST_RACKS)), max(1, guess // 16)
    while True:
        outcome = yield replace(job, spec=sized(job.spec, count))
        if meets(outcome, goals):
            high = count
        else:
            low = count
        if high is None:
            if low >= _MOST_RACKS:
                return None
            count, stride = min(_MOST_RACKS, low + stride), stride * 2
        elif high - low <= 1:
            return high
        elif low == 0:
            count, stride = max(1, high - stride), stride * 2
        else:
            count = (low + high) // 2


def one_run(job: Job) -> Search[Outcome]:
    """A run as it is."""
    return (yield job)


def run_record(outcome: Outcome, pace: PaceEnd, spec: FleetSpec, goals: Sequence[Goal]) -> FleetRun:
    """What a run gave, as a record."""
    figures = outcome.serve
    replicas = spec.serve.replicas
    window = outcome.last_arrival_s - outcome.first_s
    span = max(outcome.span_s, 1e-12)
    busy = figures.busy_s
    prompts = outcome.prefill or figures
    return FleetRun(
        pace=pace,
        factor=spec.serve.pace.factor,
        requests=outcome.requests,
        ttft_s=_quantiles(outcome.ttft),
        tpot_s=_quantiles(outcome.tpot),
        e2e_s=_quantiles(outcome.e2e),
        met=meets(outcome, goals),
        within_ratio=outcome.within / outcome.e2e.count if outcome.e2e.count else 0.0,
        requests_per_s=outcome.requests / span,
        output_tokens_per_s=outcome.output_tokens_per_s,
        queue_grows=window > 0
        and outcome.left_at_last_arrival > _GROWING * outcome.waiting_mean + replicas,
        busy_ratio=min(1.0, busy / (replicas * span)),
        prefill_ratio=figures.prefill_s / busy if busy else 0.0,
        decode_batch=figures.batch_s / busy if busy else 0.0,
        hit_ratio=prompts.cached_tokens / prompts.prompt_tokens if prompts.prompt_tokens else 0.0,
        preemptions=figures.preemptions,
        refused=outcome.refused,
        broken=outcome.broken,
        failures=outcome.failures,
        binding=binding(outcome, goals),
    )


def _quantiles(sketch: Sketch) -> Quantiles:
    return Quantiles(
        mean=sketch.mean,
        p50=sketch.quantile(0.5),
        p90=sketch.quantile(0.9),
        p95=sketch.quantile(0.95),
        p99=sketch.quantile(0.99),
        max=sketch.largest,
    )


def binding(outcome: Outcome, goals: Sequence[Goal]) -> Limit:
    """What keeps the fleet from more: the objective nearest to its limit, and what it waits for."""
    figures = outcome.serve
    busy = figures.busy_s
    if not busy:
        return Limit.NOTHING
    held = figures.held_back_s
    if outcome.broken and outcome.failures and _worst_is_outage(outcome):
        return Limit.OUTAGES
    tightest = max(goals, key=lambda goal: _statistic(outcome, goal) / goal.limit_s, default=None)
    waiting = {Limit.SEATS: held[Hold.SEATS] / busy, Limit.KV_POOL: held[Hold.POOL] / busy}
    largest = max(waiting, key=lambda limit: waiting[limit])
    on_first = tightest is None or tightest.metric != "tpot"
    if on_first and waiting[largest] > _HELD_BACK:
        return largest
    if tightest is not None and tightest.metric == "ttft":
        return Limit.PREFILL
    prompts = figures.prefill_s / busy
    if prompts > 1 / 2 or (outcome.prefill is not None and on_first):
        return Limit.PREFILL
    return Limit.DECODE


def _worst_is_outage(outcome: Outcome) -> bool:
    """True when more than one request in a hundred had to begin again."""
    return outcome.broken > 0.01 * outcome.requests


def verdict(runs: Mapping[PaceEnd, FleetRun], goals: Sequence[Goal]) -> FleetVerdict:
    """Over the three speeds."""
    if not goals:
        return FleetVerdict.NOT_ASKED
    met = [run.met for run in runs.values()]
    if all(met):
        return FleetVerdict.MEETS
    return FleetVerdict.DEPENDS if any(met) else FleetVerdict.MISSES
