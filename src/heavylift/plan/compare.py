"""The same model on several racks, a row each, and the smallest rack of a card that holds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from heavylift.errors import Scalar
from heavylift.facts.price_schema import PriceFacts
from heavylift.facts.speed_schema import SpeedFacts
from heavylift.plan.compare_speed import RowSpeed, rack_rents, row_speed
from heavylift.plan.planner import Knowledge
from heavylift.plan.rack import count_rack, sold_counts
from heavylift.records.plan import Plan, Rack
from heavylift.records.speed import Band, SpeedWorkload

SCHEMA: Final = 1
_MOST_NODES: Final = 16
_OUTPUT_TOKENS: Final = 1024
# Beyond a few machines the next size is a step that one would buy.
_NODES_TRIED: Final = (1, 2, 3, 4, 6, 8, 12, _MOST_NODES)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareRow:
    """One rack: its plan, and the card's speeds beside it. Bandwidths in TB/s and GB/s one way.

    Where they were asked for and are known: `speed` under the plan's own workload with its cost per
    token, and `rent_usd_per_hour` of the whole rack, the least and the most that providers ask.
    """

    plan: Plan
    vendor: str
    memory_bandwidth_tb_per_s: float | None
    link_bandwidth_gb_per_s: float | None
    rack_memory_bytes_total: int
    speed: RowSpeed | None = None
    rent_usd_per_hour: Band | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareFailure:
    """A rack that could not be planned: the error's code and parameters."""

    rack: str
    code: str
    params: dict[str, Scalar]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All rows, in the order asked, and the racks that made none."""

    model: str
    title: str
    rows: tuple[CompareRow, ...]
    failures: tuple[CompareFailure, ...] = ()
    schema: int = SCHEMA


def row(plan: Plan, knowledge: Knowledge) -> CompareRow:
    """The row of a plan."""
    gpu = knowledge.machines[plan.rack.gpu].gpu
    return CompareRow(
        plan=plan,
        vendor=gpu.vendor,
        memory_bandwidth_tb_per_s=(
            None if gpu.memory_bandwidth is None else gpu.memory_bandwidth.value
        ),
        link_bandwidth_gb_per_s=None if gpu.link_bandwidth is None else gpu.link_bandwidth.value,
        rack_memory_bytes_total=gpu.memory_visible.value * plan.rack.gpu_count,
    )


def with_speed_and_rent(
    row: CompareRow, knowledge: Knowledge, facts: SpeedFacts, prices: PriceFacts
) -> CompareRow:
    """The row with a forecast for the plan's own workload, and the rents of its card.

    A plan that holds nothing has no speed, and a card of unknown bandwidth none either.
    """
    plan = row.plan
    speed = None
    if plan.verdict.is_positive and plan.capacity.max_sequences.high:
        speed = row_speed(plan, knowledge, facts, prices, own_workload(plan))
    rents = rack_rents(plan, prices)
    rent = Band(low=min(rents), high=max(rents)) if rents else None
    return replace(row, speed=speed, rent_usd_per_hour=rent)


def own_workload(plan: Plan) -> SpeedWorkload:
    """The plan's sequences with the longest prompts they leave room for, and nothing cached."""
    output = min(_OUTPUT_TOKENS, plan.context_tokens // 2)
    return SpeedWorkload(
        concurrency=plan.concurrency,
        input_tokens=plan.context_tokens - output,
        output_tokens=output,
    )


def rack_sizes(knowledge: Knowledge, gpu: str, *, text: str | None = None) -> tuple[Rack, ...]:
    """Racks of a card from one GPU upwards, as it is sold."""
    machine = knowledge.machines[gpu]
    per_node = machine.node.gpus_per_node.value
    return tuple(
        count_rack(machine.gpu, machine.node, count, text=text)
        for count in sold_counts(machine.node, _MOST_NODES)
        if count < per_node or count // per_node in _NODES_TRIED
    )
