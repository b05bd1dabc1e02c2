"""A closed loop of the page's clients on one rack, simulated at the ends of its speed."""

from __future__ import annotations

import os
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.records.simulation import PaceEnd, Simulation
from heavylift.records.speed import SpeedWorkload
from heavylift.simulate.answer import Question as FleetQuestion
from heavylift.simulate.answer import answer
from heavylift.simulate.build import Fleet, Unit
from heavylift.simulate.fleet import Router
from heavylift.simulate.study import Clients
from heavylift.simulating import runner
from heavylift.slo import parse_goals
from heavylift.web.planner import Planner
from heavylift.web.question import Question

_REQUESTS: Final = 1000
_SEED: Final = 1
_MOST_CLIENTS: Final = 4096
"""More of them would keep this machine busy for minutes for one look at a page."""


def simulation(planner: Planner, question: Question) -> Simulation | None:
    """What the clients of a question would see; None when not one sequence fits.

    Raises USE060 for objectives that are none, WEB001 for more clients than a page simulates.
    """
    goals = parse_goals(question.slo) if question.slo.strip() else ()
    work = question.workload
    if work.concurrency > _MOST_CLIENTS:
        raise HeavyliftError("WEB001", {"name": "concurrency", "value": str(work.concurrency)})
    made = planner.forecaster(question)
    if made is None:
        return None
    unit = Unit(made, work, spared_ratio=work.cached_ratio)
    asked = FleetQuestion(
        fleet=Fleet(serve=unit, racks=1, router=Router.LEAST),
        traffic=Clients(
            clients=work.concurrency,
            input_tokens=work.input_tokens,
            output_tokens=work.output_tokens,
        ),
        name="clients",
        sizes=SpeedWorkload(
            concurrency=1, input_tokens=work.input_tokens, output_tokens=work.output_tokens
        ),
        goals=goals,
        slo=question.slo,
        seed=_SEED,
        requests=_REQUESTS,
        searches=False,
    )
    with runner(min(len(PaceEnd), os.cpu_count() or 1)) as run_all:
        return answer(asked, run_all)
