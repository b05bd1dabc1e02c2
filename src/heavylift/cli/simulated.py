"""A simulated SLO point for decisions about money: from a file, or run on the spot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.cli.text import text
from heavylift.cli.workload import Asked
from heavylift.errors import HeavyliftError, reason
from heavylift.records.plan import Plan
from heavylift.records.simulation import PaceEnd, Simulation

_REQUESTS: Final = 2000
_SEED: Final = 1


def read_simulation(path: Path) -> Simulation:
    """An answer of `simulate --json`. Raises PLAN093 when it is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Simulation)
    except (OSError, msgspec.MsgspecError) as error:
        raise HeavyliftError("PLAN093", {"path": str(path), "reason": reason(error)}) from error


def lengths_of(found: Simulation, *, stated: bool) -> dict[str, Any]:
    """The workload of a simulation, as options: mean lengths, and its cache hits unless stated."""
    given: dict[str, Any] = {
        "isl": round(found.traffic.input_tokens),
        "osl": max(1, round(found.traffic.output_tokens)),
    }
    if not stated:
        middle = next(run for run in found.runs if run.pace is PaceEnd.MIDDLE)
        given["cached_share"] = middle.hit_ratio
    return given


def simulate_point(asked: Asked, plan: Plan, slo: str) -> Simulation:
    """One rack with Poisson arrivals of the lengths asked for, at what the objectives allow.

    Raises USE092 for a metric that steps do not show.
    """
    from heavylift.cli.simulate import goals_of
    from heavylift.simulate.answer import Question, answer
    from heavylift.simulate.build import Fleet, Unit
    from heavylift.simulating import runner
    from heavylift.traffic.shape import TrafficShape

    work = asked.workload
    unit = Unit(asked.forecaster(plan), work, spared_ratio=work.cached_ratio)
    question = Question(
        fleet=Fleet(serve=unit, racks=1),
        traffic=TrafficShape(
            first_tokens=work.input_tokens,
            first_spread=0.0,
            output_tokens=work.output_tokens,
            output_spread=0.0,
        ),
        name=text("decide.traffic_stated"),
        sizes=work,
        goals=goals_of(slo),
        slo=slo,
        seed=_SEED,
        requests=_REQUESTS,
        gains=False,
    )
    with runner(os.cpu_count() or 1) as run:
        return answer(question, run)
