"""The nearest changes that make a plan hold, each planned again, none guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from heavylift.errors import HeavyliftError, Scalar
from heavylift.plan.command import plan_command
from heavylift.plan.planner import Knowledge, Machine, best_plan, none_can_hold, subjects
from heavylift.plan.rack import count_rack, sold_counts
from heavylift.records.plan import Capacity, Fix, Plan, PlanRequest, PlanVerdict, Status

_MOST_NODES: Final = 8
_RAN: Final = (Status.VERIFIED, Status.REPORTED)
# A context is offered in whole steps of this many tokens, so that it is a number one would type.
_CONTEXT_STEP: Final = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class _Change:
    """A request to try in place of the one that failed, and how to call it."""

    id: str
    params: dict[str, Scalar]
    request: PlanRequest


def fixes(plan: Plan, knowledge: Knowledge) -> tuple[Fix, ...]:
    """Changes after which the plan holds; empty when it already fits.

    Each change is the smallest of its kind that does: the fewest more GPUs, each vendor's smallest
    card of the same count, experts spread whole, a narrower KV dtype, less context, fewer
    sequences, no vision tower. What needs no new hardware comes first.
    """
    if plan.verdict is PlanVerdict.FITS:
        return ()
    request = replace(plan.request, engine=plan.engine)
    found = []
    for kind in (_spread_experts, _narrow_kv, _text_only, _less_context, _fewer_sequences):
        for change in kind(plan, request):
            fix = _tried(change, knowledge, plan)
            found += fix
            if fix:
                break
    if plan.rack.parts:
        return tuple(found)  # what to add to unlike cards is not ours to choose
    found += _fewest_gpus(request, knowledge, plan)
    for vendor in dict.fromkeys(m.gpu.vendor for m in knowledge.machines.values()):
        found += _smallest_cards(request, knowledge, plan, vendor)
    return tuple(found)


def _smallest_cards(
    request: PlanRequest, knowledge: Knowledge, before: Plan, vendor: str
) -> list[Fix]:
    """A vendor's smallest card of the same count that holds it and, where that was never run, the
    smallest that was.
    """
    found: list[Fix] = []
    for change in _other_card(request, knowledge, vendor):
        fix = _tried(change, knowledge, before)
        if fix and (not found or fix[0].status in _RAN):
            found += fix
        if found and found[-1].status in _RAN:
            break
    return found


def _tried(change: _Change, knowledge: Knowledge, before: Plan) -> list[Fix]:
    """The change planned again: kept when its bytes fit and its verdict is better."""
    try:
        found = subjects(change.request, knowledge)
        if none_can_hold(found):
            return []
        after = best_plan(change.request, knowledge, found)
    except HeavyliftError:
        # The engine refuses the change (no such dtype, no layout): it is no way out.
        return []
    order = list(PlanVerdict)
    if after.capacity_verdict is Capacity.DOES_NOT_FIT:
        return []
    if order.index(after.verdict) >= order.index(before.verdict):
        return []
    params: dict[str, Scalar] = {
        **change.params,
        "rack": after.rack.label,
        "layout": after.layout.label,
        "engine": after.engine,
    }
    return [
        Fix(
            id=change.id,
            params=params,
            verdict=after.verdict,
            status=after.support.status,
            headroom_bytes=after.per_gpu.headroom_bytes,
            command=plan_command(change.request),
        )
    ]


def _spread_experts(plan: Plan, request: PlanRequest) -> Iterator[_Change]:
    if plan.layout.expert_parallel_size == 1:
        constraints = {**request.layout_constraints, "expert": 0}
        yield _Change(
            id="expert_parallel",
            params={},
            request=replace(request, layout_constraints=constraints),
        )


def _narrow_kv(plan: Plan, request: PlanRequest) -> Iterator[_Change]:
    if plan.kv_cache_dtype != "fp8":
        yield _Change(id="fp8_kv", params={}, request=replace(request, kv_cache_dtype="fp8"))


def _text_only(plan: Plan, request: PlanRequest) -> Iterator[_Change]:
    if plan.vision:
        yield _Change(id="text_only", params={}, request=replace(request, vision=False))


def _less_context(plan: Plan, request: PlanRequest) -> Iterator[_Change]:
    most = plan.capacity.max_context_tokens
    # The hopeful end first: the most that may hold; then what holds for certain.
    for tokens in dict.fromkeys((most.high or 0, most.low)):
        step = tokens // _CONTEXT_STEP * _CONTEXT_STEP
        if 0 < step < plan.context_tokens:
            yield _Change(
                id="less_context",
                params={"context": step},
                request=replace(request, context_tokens=step),
            )


def _fewer_sequences(plan: Plan, request: PlanRequest) -> Iterator[_Change]:
    if any(note.code == "context_shared" for note in plan.notes):
        return  # slots share one context: fewer of them need no less
    most = plan.capacity.max_sequences
    for count in dict.fromkeys((most.high or 0, most.low)):
        if 0 < count < plan.concurrency:
            yield _Change(
                id="fewer_sequences",
                params={"sequences": count},
                request=replace(request, concurrency=count),
            )


def _fewest_gpus(request: PlanRequest, knowledge: Knowledge, before: Plan) -> list[Fix]:
    """The fewest more of the same card that hold it and, where those were never run, the fewest
    that were.
    """
    machine = knowledge.machines[request.rack.gpu]
    fewest: list[Fix] = []
    for count in sold_counts(machine.node, _MOST_NODES):
        if count > request.rack.gpu_count:
            fewest = _tried(_more_gpus(request, machine, count), knowledge, before)
            if fewest:
                break
    if not fewest or fewest[0].status in _RAN:
        return fewest
    ran = sorted(
        {
            recipe.gpus
            for recipe in knowledge.model.book.recipes
            if recipe.engine == request.engine
            and request.rack.gpu in recipe.gpu_ids
            and Status(recipe.status) in _RAN
            and recipe.gpus is not None
            and recipe.gpus > request.rack.gpu_count
        }
    )
    for count in ran:
        published = _tried(_more_gpus(request, machine, count), knowledge, before)
        if published and published[0].status in _RAN:
            return fewest + published
    return fewest


def _more_gpus(request: PlanRequest, machine: Machine, count: int) -> _Change:
    return _Change(id="more_gpus", params={"gpus": count}, request=_on(request, machine, count))


def _other_card(request: PlanRequest, knowledge: Knowledge, vendor: str) -> Iterator[_Change]:
    """Other cards of a vendor in the same count, the smallest memory first, any engine."""
    count = request.rack.gpu_count
    others = [
        machine
        for identifier, machine in knowledge.machines.items()
        if identifier != request.rack.gpu
        and machine.gpu.vendor == vendor
        and _divides(machine, count)
    ]
    others.sort(key=lambda machine: machine.gpu.memory_visible.value)
    for machine in others:
        changed = replace(_on(request, machine, count), engine=None, engine_version=None)
        yield _Change(
            id="other_card",
            params={"gpu": machine.gpu.title},
            # Settings that were tied to the old card's engine do not travel.
            request=replace(changed, moe_backend=None, state_strategy=None),
        )


def _divides(machine: Machine, count: int) -> bool:
    per_node = machine.node.gpus_per_node.value
    most = machine.node.most_nodes
    joined = most is None or count <= per_node * most.value
    return joined and (count <= per_node or count % per_node == 0)


def _on(request: PlanRequest, machine: Machine, count: int) -> PlanRequest:
    """The request on another rack. A stated layout was for the old one and is left open."""
    rack = count_rack(machine.gpu, machine.node, count)
    return replace(request, rack=rack, layout_constraints={})
