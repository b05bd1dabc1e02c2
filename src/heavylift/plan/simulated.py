"""The SLO point of a simulated fleet, as what a decision about money rests on."""

from __future__ import annotations

from heavylift.errors import HeavyliftError
from heavylift.records.decision import SimulatedPoint
from heavylift.records.plan import Plan
from heavylift.records.simulation import Simulation
from heavylift.records.speed import Band


def simulated_point(found: Simulation, plan: Plan) -> SimulatedPoint:
    """The highest rate within the objectives of one rack of the fleet, and its output tokens.

    Formula: output tokens per second = requests per second × tokens of a mean answer / racks
    Raises PLAN090 for a simulation of something else than the plan, PLAN091 for one without
    objectives, PLAN092 where the slow end of the interval serves nothing within them.
    """
    fleet = found.fleet
    differs = next(
        (
            name
            for name, simulated, planned in (
                ("model", found.model, plan.model),
                ("engine", found.engine, plan.engine),
                ("rack", fleet.rack.label, plan.rack.label),
                ("layout", fleet.layout.label, plan.layout.label),
                ("prefill", fleet.prefill_racks, 0),
            )
            if simulated != planned
        ),
        None,
    )
    if differs is not None:
        raise HeavyliftError("PLAN090", {"name": differs, "rack": plan.rack.label})
    highest = found.highest_rate_per_s
    if highest is None:
        raise HeavyliftError("PLAN091")
    if not highest.low:
        raise HeavyliftError("PLAN092", {"slo": found.slo, "rack": plan.rack.label})
    answer = found.traffic.output_tokens
    rate = Band(low=highest.low / fleet.racks, high=highest.high / fleet.racks)
    return SimulatedPoint(
        slo=found.slo,
        traffic=found.traffic.name,
        racks=fleet.racks,
        requests_per_s=rate,
        output_tokens_per_s=Band(low=rate.low * answer, high=rate.high * answer),
    )
