"""Searches: the highest rate, the fewest racks, and what binds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from heavylift.records.simulation import Limit
from heavylift.simulate.fleet import FleetSpec, Outcome, PoolSpec, Stop, run
from heavylift.simulate.pace import Pace, Row
from heavylift.simulate.pool import Room
from heavylift.simulate.study import (
    RATE_STEP,
    Job,
    binding,
    drive,
    highest_rate,
    meets,
    one_run,
    racks_needed,
)
from heavylift.simulate.workload import Conversations
from heavylift.slo import parse_goals
from heavylift.traffic.shape import TrafficShape

STEP_S = 0.01
SHAPE = TrafficShape(first_tokens=1, first_spread=0, output_tokens=401, output_spread=0)
GOALS = parse_goals("e2e_mean=8s")


def run_all(jobs: Sequence[Job]) -> list[Outcome]:
    """Runs here, in turn."""
    outcomes = []
    for job in jobs:
        assert isinstance(job.traffic, TrafficShape)
        source = Conversations(job.traffic, job.rate_per_s, random.Random(job.seed).random)
        outcomes.append(run(job.spec, source, job.stop, random.Random(0).random))
    return outcomes


def job(replicas: int = 1, *, rate: float = 0.1, room: Room | None = None) -> Job:
    """A queue with one server per replica: answers take four seconds."""
    pace = Pace(prefill_floor_s=0.0, prefill_s_per_token=1e-9, rows=[Row(0.0, 0.0, STEP_S, 0.0)])
    held = room or Room(tokens=10**9, seats=1, caches_prefixes=False)
    serve = PoolSpec(replicas=replicas, pace=pace, room=held, budget=1 << 20)
    stop = Stop(requests=6_000, warmup=500, goals=GOALS, gives_up=True)
    return Job(spec=FleetSpec(serve=serve), traffic=SHAPE, rate_per_s=rate, stop=stop, seed=1)


def sized(spec: FleetSpec, racks: int) -> FleetSpec:
    """A replica per rack."""
    return replace(spec, serve=replace(spec.serve, replicas=racks))


@pytest.mark.parametrize("guess", [0.001, 0.1, 7.0])
def test_the_highest_rate_is_the_one_of_the_closed_form(guess: float) -> None:
    """M/D/1 stays twice its service at a load of 2/3, from whichever guess the search begins."""
    (found,) = drive([highest_rate(job(), GOALS, guess)], run_all)
    assert found == pytest.approx(2 / 3 / 4.0, rel=3 * (RATE_STEP - 1))


def test_an_objective_that_one_request_alone_breaks_has_no_rate() -> None:
    """Zero, not a small number."""
    goals = parse_goals("e2e_mean=1s")
    assert drive([highest_rate(job(), goals, 0.1)], run_all) == [0.0]


@pytest.mark.parametrize("guess", [1, 6, 40])
def test_the_fewest_racks_meet_the_objectives_and_one_less_does_not(guess: int) -> None:
    """From whichever guess the search begins."""
    asked = job(rate=1.5)
    (count,) = drive([racks_needed(asked, GOALS, guess, sized)], run_all)
    assert count is not None
    enough, short = run_all(
        [replace(asked, spec=sized(asked.spec, racks)) for racks in (count, count - 1)]
    )
    assert meets(enough, GOALS)
    assert not meets(short, GOALS)


def test_searches_go_on_side_by_side() -> None:
    """Each round makes one run of every search that is not over."""
    rounds: list[int] = []

    def counted(jobs: Sequence[Job]) -> list[Outcome]:
        rounds.append(len(jobs))
        return run_all(jobs)

    drive([highest_rate(job(), GOALS, 0.1), highest_rate(job(2), GOALS, 0.2)], counted)
    drive([one_run(job())], counted)
    assert rounds[0] == 2
    assert rounds[-1] == 1


@pytest.mark.parametrize(
    ("goals", "room", "limit"),
    [
        ("e2e_p99=1s", Room(tokens=10**9, seats=1), Limit.SEATS),
        ("ttft_p99=1s", Room(tokens=1200), Limit.KV_POOL),
        ("tpot_p99=1ms", Room(tokens=10**9), Limit.DECODE),
    ],
)
def test_what_binds_is_named(goals: str, room: Room, limit: Limit) -> None:
    """One seat, a pool of one answer, or the step itself."""
    asked = replace(job(rate=0.24, room=room), traffic=replace(SHAPE, first_tokens=500))
    parsed = parse_goals(goals)
    stop = Stop(requests=1000, goals=parsed)
    (outcome,) = run_all([replace(asked, stop=stop)])
    assert binding(outcome, parsed) is limit
