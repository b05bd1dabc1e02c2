"""Prefill apart from decode: each pool planned for itself, in its half's published layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.plan.planner import Knowledge
from heavylift.recipe.job import DECODE, PREFILL, Job
from heavylift.reciping.plans import BAD, layout_of, with_sequences
from heavylift.reciping.shelf import Shelf
from heavylift.reciping.wish import RecipeWish
from heavylift.records.plan import Rack

_HALF_SETTINGS: Final = ("max_num_batched_tokens", "max_num_seqs", "kv_cache_dtype", "moe_backend")


def pools(
    shelf: Shelf, wish: RecipeWish, knowledge: Knowledge, engine: str, split: tuple[int, int]
) -> dict[str, Job]:
    """The jobs of both pools by role.

    Raises REC021 when the machines do not add up, REC023 for an engine that is not split here.
    """
    _, rack = shelf.planning.rack(wish.rack)
    if rack is None or rack.nodes != sum(split):
        raise HeavyliftError(
            "REC021",
            {
                "rack": wish.rack,
                "prefill": split[0],
                "decode": split[1],
                "nodes": None if rack is None else rack.nodes,
            },
        )
    serving = shelf.serving(engine)
    if not serving.splits:
        raise HeavyliftError("REC023", {"engine": serving.title})
    return {
        role: _pool(shelf, wish, knowledge, engine, (role, replace(rack, nodes=nodes)))
        for role, nodes in zip((PREFILL, DECODE), split, strict=True)
    }


def _pool(
    shelf: Shelf, wish: RecipeWish, knowledge: Knowledge, engine: str, half: tuple[str, Rack]
) -> Job:
    role, rack = half
    request = replace(wish.ask(rack), engine=engine, rack=rack)
    halves = [
        recipe
        for recipe in knowledge.model.book.recipes
        if recipe.engine == engine
        and recipe.phase is not None
        and recipe.phase.value == role
        and rack.gpu in recipe.gpu_ids
        and recipe.status not in BAD
    ]
    fitting = [recipe for recipe in halves if recipe.gpus in (None, rack.gpu_count)]
    derived: dict[str, str] = {}
    if fitting and not request.layout_constraints:
        request = replace(request, layout_constraints=layout_of(fitting[0]))
    for recipe in (fitting or halves)[:1]:
        for name in _HALF_SETTINGS:
            if name in recipe.settings and getattr(request, name) is None:
                request = replace(request, **{name: recipe.settings[name]})  # type: ignore[arg-type]
                derived[name] = recipe.id
    plan = shelf.planning.plan(request, knowledge, with_fixes=False)
    if "max_num_seqs" not in derived:
        plan, more = with_sequences(shelf, knowledge, plan)
        derived |= more
    return replace(shelf.job(wish, knowledge, engine, plan, derived), role=role)
