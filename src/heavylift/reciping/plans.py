"""Plans for recipes: by the right engine's rules, in a layout nobody saw fail, with sequences that
are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import RecipeFacts, RecipeStatus
from heavylift.plan.planner import Knowledge
from heavylift.plan.subject import HOST_VENDOR
from heavylift.plan.support import is_layout_of
from heavylift.recipe.launches import can_spread
from heavylift.reciping.shelf import Shelf
from heavylift.reciping.wish import RecipeWish, constraints
from heavylift.records.plan import Capacity, Plan, PlanRequest, PlanVerdict, Rack, Status

BAD: Final = (RecipeStatus.BROKEN, RecipeStatus.UNSUPPORTED)

Derived = Mapping[str, str]
"""Settings nobody asked for: name -> the published recipe it is from, empty = worked out."""


def planned(
    shelf: Shelf, wish: RecipeWish, knowledge: Knowledge, engine: str
) -> tuple[Plan, Derived]:
    """The plan for an engine, with the number of sequences that it holds.

    Where the best layout was reported broken and none was stated, one that was run is taken; where
    it has no rendezvous, one without data parallelism.
    """
    plan = plan_on(shelf, wish, knowledge, engine)
    if not plan.request.layout_constraints:
        if broken(knowledge, engine, plan) is not None:
            plan = next(sound(shelf, wish, knowledge, engine, plan), plan)
        elif not can_spread(shelf.serving(engine).command, plan):
            plan = plan_on(shelf, wish, knowledge, engine, {"data": 1})
    return with_sequences(shelf, knowledge, plan)


def plan_on(
    shelf: Shelf,
    wish: RecipeWish,
    knowledge: Knowledge,
    engine: str,
    layout: Mapping[str, int] | None = None,
) -> Plan:
    """The best plan of a wish by the rules of an engine, in a layout where one is given."""
    by = shelf.serving(engine).plans_as or engine
    gpu, rack = shelf.planning.rack(wish.rack)

    def build(each: Rack) -> PlanRequest:
        request = replace(wish.ask(each), engine=by)
        return request if layout is None else replace(request, layout_constraints=dict(layout))

    if rack is None:
        return shelf.planning.plan(build, knowledge, gpu=gpu, with_fixes=False)
    return shelf.planning.plan(build(rack), knowledge, with_fixes=False)


def with_sequences(shelf: Shelf, knowledge: Knowledge, plan: Plan) -> tuple[Plan, Derived]:
    """No more sequences than are held, where the engine's own default is more or unknown."""
    usual = next((entry for entry in plan.defaults if entry.name == "max_num_seqs"), None)
    stated = plan.request.max_num_seqs is not None
    chosen = usual is not None and usual.origin != "engine"
    if plan.capacity_verdict is Capacity.DOES_NOT_FIT or stated or chosen:
        return plan, {}
    most = plan.capacity.max_sequences
    held = most.low or most.high or 0
    count = max(plan.concurrency, min(held, plan.max_num_seqs or held))
    if count < 1 or count == plan.max_num_seqs:
        return plan, {}
    request = replace(
        plan.request, engine=plan.engine, max_num_seqs=count, layout_constraints=constraints(plan)
    )
    again = shelf.planning.plan(request, knowledge, with_fixes=False)
    return again, {"max_num_seqs": ""}


def broken(knowledge: Knowledge, engine: str, plan: Plan) -> RecipeFacts | None:
    """A report that this layout fails on this card, unless somebody signed the layout off."""
    if plan.support.status is Status.VERIFIED:
        return None
    return next(
        (
            recipe
            for recipe in knowledge.model.book.recipes
            if recipe.engine == engine
            and recipe.status in BAD
            and recipe.phase is None
            and plan.rack.gpu in recipe.gpu_ids
            and is_layout_of(recipe, plan.layout, plan.rack)
        ),
        None,
    )


def sound(
    shelf: Shelf, wish: RecipeWish, knowledge: Knowledge, engine: str, before: Plan
) -> Iterator[Plan]:
    """Plans of the layouts that were published for this card and count and not called broken,
    those signed off first.
    """
    published = [
        recipe
        for recipe in knowledge.model.book.recipes
        if recipe.engine == engine
        and recipe.phase is None
        and before.rack.gpu in recipe.gpu_ids
        and recipe.gpus in (None, before.rack.gpu_count)
        and recipe.tensor_parallel_size is not None
        and recipe.status not in BAD
        and not is_layout_of(recipe, before.layout, before.rack)
    ]
    order: Callable[[RecipeFacts], int] = lambda recipe: list(Status).index(Status(recipe.status))  # noqa: E731
    tried: list[Mapping[str, int]] = []
    for recipe in sorted(published, key=order):
        layout = layout_of(recipe)
        if layout in tried:
            continue
        tried.append(layout)
        try:
            plan = plan_on(shelf, wish, knowledge, engine, layout)
        except HeavyliftError:
            # The engine refuses what was published for another version: it is no way out.
            continue
        refused = plan.verdict in (PlanVerdict.DOES_NOT_FIT, PlanVerdict.UNSUPPORTED)
        if not refused and broken(knowledge, engine, plan) is None:
            yield plan


def layout_of(recipe: RecipeFacts) -> dict[str, int]:
    """The layout of a published recipe as what a request states of it."""
    return {
        "tensor": recipe.tensor_parallel_size or 1,
        "pipeline": recipe.pipeline_parallel_size,
        "data": recipe.data_parallel_size,
        "expert": recipe.expert_parallel_size,
        "decode_context": recipe.decode_context_parallel_size,
    }


def candidates(shelf: Shelf, wish: RecipeWish, knowledge: Knowledge) -> list[str]:
    """Engines that can be planned by rules of their own, as the model's variants list them; on a
    host without cards those that split whole layers.
    """
    listed = dict.fromkeys(
        engine for variant in knowledge.model.model.variants for engine in variant.engines
    )
    known = shelf.catalog.serving_ids()
    engines = [name for name in listed if name in known]
    if shelf.planning.rack(wish.rack)[0].vendor != HOST_VENDOR:
        return engines
    rules = {name: shelf.catalog.engine(name).layouts for name in engines}
    return [name for name in engines if any(rule.splits == "layers" for rule in rules[name])]


def worth(plan: Plan) -> tuple[int, int, int]:
    """How plans of several engines are ordered, the best first: holds at all, then who ran it,
    then the verdict.
    """
    verdicts, statuses = tuple(PlanVerdict), tuple(Status)
    verdict = verdicts.index(plan.verdict)
    if plan.verdict is PlanVerdict.DOES_NOT_FIT:
        return (verdict, 0, 0)
    # Fits and tight are both yes.
    return (max(1, verdict), statuses.index(plan.support.status), verdict)
