"""The whole answer to a question about a fleet, as a record: runs, searches, gains, cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from heavylift.errors import Scalar
from heavylift.plan.money import MILLION
from heavylift.records.plan import Note
from heavylift.records.simulation import (
    FleetCost,
    FleetLayout,
    FleetRun,
    Gain,
    Limit,
    PaceEnd,
    Simulation,
    Traffic,
)
from heavylift.records.speed import Band, SpeedWorkload
from heavylift.simulate.build import PACES, Fleet, spared
from heavylift.simulate.fleet import FleetSpec, Outcome, Stop
from heavylift.simulate.study import (
    Clients,
    Job,
    Recorded,
    RunAll,
    drive,
    highest_rate,
    one_run,
    racks_needed,
    run_record,
    verdict,
)
from heavylift.slo import Goal
from heavylift.traffic.shape import TrafficShape

MORE_HITS: Final = 0.1
"""The part of what a prefix cache misses now that the question about a higher hit rate spares."""

_ROUNDS: Final = 6
"""A run lasts this many times a request's stay: what it begins with is over by then."""

_WARMUP: Final = 0.25
_FAILURES_SEEN: Final = 10
_MOST_REQUESTS: Final = 500_000
"""A run is no longer than this for the sake of failures or of settling; stated counts are."""

_MOST_SEARCHED: Final = 100_000
"""The same for each of the dozens of runs of a search: with failures far apart it would take an
hour. The runs that are shown are the long ones."""

_GUESSED_USE: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a fleet.

    `rate_per_s` None = at the highest rate the objectives allow. `sizes` are mean tokens of prompt
    and answer. `requests` is the least number of a run. `usd_per_rack_hour` None = no price known.
    `searches` False = only the runs themselves; `gains` False = not what would help.
    """

    fleet: Fleet
    traffic: TrafficShape | Recorded | Clients
    name: str
    sizes: SpeedWorkload
    goals: tuple[Goal, ...]
    slo: str
    seed: int
    requests: int
    rate_per_s: float | None = None
    usd_per_gpu_hour: Band | None = None
    price_source: str = ""
    searches: bool = True
    gains: bool = True
    start_s: float | None = None
    notes: tuple[Note, ...] = ()

    @cached_property
    def specs(self) -> dict[PaceEnd, FleetSpec]:
        """The fleet at its three paces."""
        return {pace: self.fleet.spec(pace) for pace in PACES}

    @cached_property
    def _settled(self) -> tuple[float, float]:
        """Requests per second of one rack, full, and seconds a request stays, by the forecast."""
        unit = self.fleet.serve
        seats = max(1, unit.forecaster.seats(self.sizes) * unit.replicas)
        if unit.seats is not None:
            seats = min(seats, unit.seats * unit.replicas)
        service = unit.forecaster.service(replace(self.sizes, concurrency=min(seats, 4096)))
        stay = service.prompt_s + self.sizes.output_tokens * service.settled_tpot_s
        return service.settled_requests_per_s, stay

    @property
    def guess_per_s(self) -> float:
        """A rate to begin a search with."""
        return self._settled[0] * self.fleet.racks * _GUESSED_USE

    def stop(self, rate_per_s: float, *, gives_up: bool) -> Stop:
        """Long enough for the fleet to have settled, and for conversations to be at every turn."""
        traffic = self.traffic
        stay = self._settled[1]
        if isinstance(traffic, Clients):
            return Stop(requests=self.requests, goals=self.goals)
        rounds = _ROUNDS
        if isinstance(traffic, TrafficShape):
            stay = traffic.turns_mean * (stay + traffic.pause_s)
            rounds = _ROUNDS if traffic.turns_mean == 1 else _ROUNDS // 2
        span = rounds * stay
        failures = self.fleet.failures
        if failures is not None:
            replicas = self.fleet.racks * self.fleet.serve.replicas
            span = max(span, _FAILURES_SEEN * failures.mean_up_s / replicas)
        most = _MOST_SEARCHED if gives_up else _MOST_REQUESTS
        settled = min(most, math.ceil(span * rate_per_s))
        requests = max(self.requests, settled)
        return Stop(
            requests=requests,
            warmup=int(_WARMUP * requests),
            goals=self.goals,
            gives_up=gives_up,
        )

    def job(self, spec: FleetSpec, rate_per_s: float, *, gives_up: bool) -> Job:
        """One run."""
        return Job(
            spec=spec,
            traffic=self.traffic,
            rate_per_s=rate_per_s,
            stop=self.stop(rate_per_s, gives_up=gives_up),
            seed=self.seed,
        )


def answer(question: Question, run: RunAll) -> Simulation:
    """Runs, searches, and what they say together."""
    specs, goals = question.specs, question.goals
    searching = question.searches and bool(goals) and not isinstance(question.traffic, Clients)
    highest: dict[PaceEnd, float] = {}
    if searching:
        guess = question.rate_per_s or question.guess_per_s
        jobs = {pace: question.job(specs[pace], guess, gives_up=True) for pace in PACES}
        found = drive([highest_rate(jobs[pace], goals, guess) for pace in PACES], run)
        highest = dict(zip(PACES, found, strict=True))
    rate = question.rate_per_s
    if rate is None:
        rate = highest.get(PaceEnd.MIDDLE) or question.guess_per_s
    runs, outcomes = _runs(question, rate, run)
    if isinstance(question.traffic, Clients):
        # A closed loop has the rate that comes of it.
        rate = runs[PaceEnd.MIDDLE].requests_per_s
    asked = searching and question.gains
    needed = _needed(question, rate, highest, run) if asked else None
    gains = _gains(question, highest, run) if asked else ()
    return _record(question, rate, runs, outcomes, highest, needed, gains)


def _runs(
    question: Question, rate: float, run: RunAll
) -> tuple[dict[PaceEnd, FleetRun], dict[PaceEnd, Outcome]]:
    specs = question.specs
    jobs = [question.job(specs[pace], rate, gives_up=False) for pace in PACES]
    outcomes = dict(zip(PACES, drive([one_run(job) for job in jobs], run), strict=True))
    goals = question.goals
    return {
        pace: run_record(outcome, pace, specs[pace], goals) for pace, outcome in outcomes.items()
    }, outcomes


def _needed(
    question: Question, rate: float, highest: dict[PaceEnd, float], run: RunAll
) -> tuple[int | None, int | None]:
    """Racks that serve the rate, at the fast end and at the slow end."""
    paces = [pace for pace in (PaceEnd.FAST, PaceEnd.SLOW) if highest[pace]]
    searches = []
    for pace in paces:
        guess = math.ceil(question.fleet.racks * rate / highest[pace])
        job = question.job(question.specs[pace], rate, gives_up=True)
        searches.append(racks_needed(job, question.goals, guess, question.fleet.sized))
    # Where a rack serves nothing within the objectives, no number of them does.
    found = dict(zip(paces, drive(searches, run), strict=True))
    return found.get(PaceEnd.FAST), found.get(PaceEnd.SLOW)


def _gains(question: Question, highest: dict[PaceEnd, float], run: RunAll) -> tuple[Gain, ...]:
    """One more rack, and a part of the missed prompt tokens found in caches."""
    most, spec = highest[PaceEnd.MIDDLE], question.specs[PaceEnd.MIDDLE]
    if not most:
        return ()
    changes = {
        "one_more_rack": question.fleet.sized(spec, question.fleet.racks + 1),
        "more_hits": spared(spec, MORE_HITS),
    }
    searches = [
        highest_rate(question.job(changed, most, gives_up=True), question.goals, most)
        for changed in changes.values()
    ]
    found = drive(searches, run)
    # A rack that is sent nothing, a cache that is not asked: neither makes a fleet serve less. What
    # falls below is chance.
    return tuple(
        Gain(change=name, rate_per_s=max(rate, most), ratio=max(1.0, rate / most))
        for name, rate in zip(changes, found, strict=True)
    )


def _record(  # noqa: PLR0917 - the parts of one answer
    question: Question,
    rate: float,
    runs: dict[PaceEnd, FleetRun],
    outcomes: dict[PaceEnd, Outcome],
    highest: dict[PaceEnd, float],
    needed: tuple[int | None, int | None] | None,
    gains: tuple[Gain, ...],
) -> Simulation:
    fleet, plan = question.fleet, question.fleet.serve.plan
    middle, room = outcomes[PaceEnd.MIDDLE], question.specs[PaceEnd.MIDDLE].serve.room
    counted = max(1, middle.requests)
    said = verdict(runs, question.goals)
    return Simulation(
        model=plan.model,
        title=plan.title,
        variant_title=plan.variant_title,
        engine=plan.engine,
        engine_title=plan.engine_title,
        engine_version=plan.engine_version,
        fleet=_layout(fleet),
        traffic=Traffic(
            name=question.name,
            recorded=isinstance(question.traffic, Recorded),
            rate_per_s=rate,
            input_tokens=middle.input_tokens / counted,
            output_tokens=middle.output_tokens / counted,
        ),
        router=fleet.router.value,
        slo=question.slo,
        seed=question.seed,
        basis=fleet.basis,
        runs=tuple(runs[pace] for pace in PACES),
        verdict=said,
        tokens_held=room.tokens,
        state_tokens=room.state_tokens,
        seats=room.seats,
        start_s=question.start_s,
        highest_rate_per_s=Band(low=highest[PaceEnd.SLOW], high=highest[PaceEnd.FAST])
        if highest
        else None,
        racks_needed=needed,
        gains=gains,
        cost=_cost(question, runs, highest),
        notes=(*question.notes, *_notes(question, runs)),
    )


def _layout(fleet: Fleet) -> FleetLayout:
    split = fleet.prefill
    return FleetLayout(
        rack=fleet.serve.plan.rack,
        layout=fleet.serve.plan.layout,
        racks=fleet.racks,
        prefill_rack=None if split is None else split.plan.rack,
        prefill_layout=None if split is None else split.plan.layout,
        prefill_racks=fleet.prefill_racks if split is not None else 0,
    )


def _cost(
    question: Question,
    runs: dict[PaceEnd, FleetRun],
    highest: dict[PaceEnd, float],
) -> FleetCost | None:
    """At the highest rate within the objectives, else at the rate that was served.

    Formula: USD per hour / (requests per second × tokens of a mean answer × 3600)
    """
    price = question.usd_per_gpu_hour
    if price is None:
        return None
    gpus = question.fleet.gpu_count
    per_hour = Band(low=price.low * gpus, high=price.high * gpus)
    middle = runs[PaceEnd.MIDDLE]
    if not middle.requests_per_s:
        return None
    answer_tokens = middle.output_tokens_per_s / middle.requests_per_s
    slow = highest[PaceEnd.SLOW] if highest else runs[PaceEnd.SLOW].requests_per_s
    fast = highest[PaceEnd.FAST] if highest else runs[PaceEnd.FAST].requests_per_s
    if not fast or not slow:
        return None
    return FleetCost(
        usd_per_hour=per_hour,
        usd_per_million_output=Band(
            low=per_hour.low / (fast * answer_tokens * 3600) * MILLION,
            high=per_hour.high / (slow * answer_tokens * 3600) * MILLION,
        ),
        source=question.price_source,
    )


def _notes(question: Question, runs: dict[PaceEnd, FleetRun]) -> Sequence[Note]:
    found = []
    serve = question.fleet.serve
    if not serve.budget_is_known:
        found.append(Note(code="step_tokens_assumed", params={"tokens": serve.budget}))
    taken = serve.forecaster.admitted
    nobody_asked = taken is not None and serve.plan.request.max_num_seqs is None
    if taken and nobody_asked and any(run.binding is Limit.SEATS for run in runs.values()):
        params: dict[str, Scalar] = {"seats": taken[0], "source": taken[1]}
        found.append(Note(code="seats_taken", params=params))
    if question.specs[PaceEnd.MIDDLE].serve.room.state_tokens and serve.caches_prefixes:
        state = question.specs[PaceEnd.MIDDLE].serve.room.state_tokens
        found.append(Note(code="state_of_prefixes", params={"tokens": state}))
    if any(run.refused for run in runs.values()):
        most = max(run.refused for run in runs.values())
        found.append(Note(code="refused", params={"requests": most}))
    if any(run.queue_grows for run in runs.values()):
        found.append(Note(code="queue_grows"))
    return found
