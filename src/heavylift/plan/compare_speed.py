"""What a comparison of racks says of speed and money beside the bytes: one workload, every rack."""

from __future__ import annotations

from dataclasses import dataclass, replace

from heavylift.errors import HeavyliftError
from heavylift.facts.price_schema import PriceFacts
from heavylift.facts.speed_schema import SpeedFacts
from heavylift.plan.money import MILLION, OwnPrices, rent_parts
from heavylift.plan.planner import Knowledge
from heavylift.plan.speed import forecaster
from heavylift.records.plan import Plan
from heavylift.records.speed import Band, Evidence, SpeedWorkload


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSpeed:
    """Speed and cost of one rack under the workload.

    `concurrency` is what was asked or, where the rack holds less, what it holds.
    `usd_per_million_output` None = no public rent of the card is known.
    """

    concurrency: int
    tpot_s: Band
    output_tokens_per_s: Band
    output_tokens_per_s_per_gpu: Band
    evidence: Evidence
    usd_per_million_output: Band | None


def row_speed(
    plan: Plan,
    knowledge: Knowledge,
    speed: SpeedFacts,
    prices: PriceFacts,
    workload: SpeedWorkload,
    *,
    own: OwnPrices | None = None,
) -> RowSpeed | None:
    """The speed columns of a planned rack; None where not one sequence fits or no speed is known.

    Formula of the cost: GPUs × USD per GPU and hour / (output tokens per s × 3600), at both ends.
    """
    found = forecaster(plan, knowledge, speed)
    try:
        seats = found.seats(workload) * plan.layout.data_parallel_size
        held = replace(workload, concurrency=max(1, min(workload.concurrency, seats)))
        forecast = found.speed(held)
    except HeavyliftError:
        # What a plan already says (it does not fit, the card's bandwidth is not known) is no news.
        return None
    rents = rack_rents(plan, prices, own)
    rate = forecast.output_tokens_per_s
    cost = None
    if rents:
        cost = Band(
            low=min(rents) / (rate.high * 3600) * MILLION,
            high=max(rents) / (rate.low * 3600) * MILLION,
        )
    return RowSpeed(
        concurrency=held.concurrency,
        tpot_s=forecast.tpot_s,
        output_tokens_per_s=rate,
        output_tokens_per_s_per_gpu=forecast.output_tokens_per_s_per_gpu,
        evidence=forecast.basis.evidence,
        usd_per_million_output=cost,
    )


def rack_rents(plan: Plan, prices: PriceFacts, own: OwnPrices | None = None) -> list[float]:
    """USD per hour of the whole rack on demand, one for each source; empty where none is known."""
    if plan.rack.parts:
        return []  # nobody rents out unlike cards in one machine
    gpu, count = plan.rack.gpu, plan.rack.gpu_count
    return [part.usd_per_hour for part in rent_parts(prices, own or OwnPrices(), gpu, count, 0.0)]
