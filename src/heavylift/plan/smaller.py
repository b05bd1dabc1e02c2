"""Counts of a card that do not hold a model, each with what it lacks."""

from __future__ import annotations

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import GpuFacts
from heavylift.plan.bounds import cannot_hold, least_weights_bytes
from heavylift.plan.planner import Knowledge, subjects
from heavylift.plan.subject import Subject
from heavylift.records.plan import Plan, PlanRequest, SmallerRack


def too_small(request: PlanRequest, knowledge: Knowledge) -> SmallerRack | None:
    """A rack on which the weights alone are too much on every engine; None where that is not so.

    Raises what `resolve` raises when an engine is named.
    """
    taken = [each for each in subjects(request, knowledge) if isinstance(each, Subject)]
    if not taken or not all(map(cannot_hold, taken)):
        return None
    return SmallerRack(
        rack=request.rack.label,
        gpus=request.rack.gpu_count,
        need_bytes=min(map(least_weights_bytes, taken)),
        have_bytes=taken[0].gpu.memory_visible.value,
        weights_alone=True,
    )


def smaller_rack(plan: Plan) -> SmallerRack:
    """A rack whose best plan does not fit: the limit that is missed by most."""
    limit = max(plan.limits, key=lambda each: each.short_bytes)
    return SmallerRack(
        rack=plan.rack.label,
        gpus=plan.rack.gpu_count,
        need_bytes=limit.need_bytes,
        have_bytes=limit.have_bytes,
        weights_alone=False,
    )


def refused_rack(request: PlanRequest, error: HeavyliftError, gpu: GpuFacts) -> SmallerRack:
    """A rack on which no layout exists: the error says why."""
    return SmallerRack(
        rack=request.rack.label,
        gpus=request.rack.gpu_count,
        need_bytes=0,
        have_bytes=gpu.memory_visible.value,
        weights_alone=False,
        code=error.code,
    )
