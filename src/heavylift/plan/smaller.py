"""Counts of a card that do not hold a model, each with what it lacks."""

from __future__ import annotations

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import GpuFacts
from heavylift.plan.assemble import Candidate
from heavylift.plan.bounds import least_weights_bytes
from heavylift.plan.memory import limits
from heavylift.plan.planner import Found, none_can_hold
from heavylift.plan.subject import Subject
from heavylift.records.plan import PlanRequest, SmallerRack


def too_small(request: PlanRequest, found: Found) -> SmallerRack | None:
    """A rack on which the weights alone are too much on every engine; None where that is not so."""
    if not none_can_hold(found):
        return None
    taken = [each for each in found if isinstance(each, Subject)]
    return SmallerRack(
        rack=request.rack.label,
        gpus=request.rack.gpu_count,
        need_bytes=min(map(least_weights_bytes, taken)),
        have_bytes=taken[0].visible_bytes_total // request.rack.gpu_count,
        weights_alone=True,
    )


def smaller_rack(best: Candidate) -> SmallerRack:
    """A rack whose best layout does not fit: the limit that is missed by most."""
    limit = max(limits(best.memory), key=lambda each: each.short_bytes)
    return SmallerRack(
        rack=best.subject.rack.label,
        gpus=best.subject.rack.gpu_count,
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
