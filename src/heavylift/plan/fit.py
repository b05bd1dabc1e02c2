"""Which models a rack holds: every variant of a model, on the best of its engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import VariantFacts
from heavylift.plan.bounds import short_of_weights
from heavylift.plan.command import plan_command
from heavylift.plan.planner import Choice, Found, Knowledge, choose, none_can_hold, subjects
from heavylift.plan.subject import Subject
from heavylift.records.fit import FitMiss, FitRow
from heavylift.records.plan import Capacity, Plan, PlanRequest, Rack, Status

_REFUSED = (Status.UNSUPPORTED, Status.BROKEN)


def fit_model(
    knowledge: Knowledge, rack: Rack, context_tokens: int | None = None
) -> Iterator[FitRow | FitMiss]:
    """Every variant of a model on a rack, for one sequence: what fits, and what does not."""
    for variant in knowledge.model.model.variants:
        if variant.engines:
            yield _fit(knowledge, rack, variant, context_tokens)


def _fit(
    knowledge: Knowledge, rack: Rack, variant: VariantFacts, context_tokens: int | None
) -> FitRow | FitMiss:
    model = knowledge.model.model
    most = model.max_context.value
    request = PlanRequest(
        model=model.id,
        rack=rack,
        variant=variant.id,
        concurrency=1,
        context_tokens=None if context_tokens is None else min(context_tokens, most),
    )
    try:
        found = subjects(request, knowledge)
        if none_can_hold(found):
            return _miss(knowledge, variant, _short_of_weights(found))
        choice = choose(request, knowledge, found)
    except HeavyliftError as error:
        return _miss(knowledge, variant, None, error.code)
    if choice.best.fits is Capacity.DOES_NOT_FIT:
        return _miss(knowledge, variant, -choice.best.headroom_bytes)
    if choice.best.support.status in _REFUSED:
        return _miss(knowledge, variant, None, choice.best.support.note or "unsupported")
    return _row(knowledge, choice)


def _short_of_weights(found: Found) -> int:
    taken = [each for each in found if isinstance(each, Subject)]
    return min(map(short_of_weights, taken))


def _miss(
    knowledge: Knowledge, variant: VariantFacts, short: int | None, code: str | None = None
) -> FitMiss:
    model = knowledge.model.model
    return FitMiss(
        model=model.id, title=model.title, variant=variant.id, short_bytes=short, code=code
    )


def parameters(knowledge: Knowledge) -> tuple[int | None, int | None]:
    """Total and active parameters of a model, from any variant whose tensors are known."""
    for inventory in knowledge.model.inventories.values():
        return inventory.params_total, inventory.active_params(knowledge.model.model)
    return None, None


def _row(knowledge: Knowledge, choice: Choice) -> FitRow:
    plan = choice.plan(with_lost=False)
    total, active = parameters(knowledge)
    return FitRow(
        model=plan.model,
        title=plan.title,
        variant=plan.variant,
        variant_title=plan.variant_title,
        total_parameters=total,
        active_parameters=active,
        checkpoint_bytes=plan.checkpoint_bytes,
        engine=plan.engine,
        engine_version=plan.engine_version,
        layout=plan.layout,
        kv_cache_dtype=plan.kv_cache_dtype,
        verdict=plan.verdict,
        status=plan.support.status,
        max_context_tokens=plan.capacity.max_context_tokens,
        headroom_bytes=plan.per_gpu.headroom_bytes,
        engines=plan.engines,
        command=_command(plan),
    )


def _command(plan: Plan) -> str:
    return plan_command(replace(plan.request, engine=plan.engine))


def capability(row: FitRow) -> tuple[int, int, int]:
    """What puts rows in order: parameters, the bytes they are kept in, room; more first."""
    return (-(row.total_parameters or 0), -row.checkpoint_bytes, -row.headroom_bytes)
