"""Which engine to take where none is named, and what else was weighed."""

from __future__ import annotations

from heavylift.errors import HeavyliftError
from heavylift.plan.planner import Knowledge
from heavylift.recipe.launches import launch
from heavylift.reciping.plans import candidates, planned, worth
from heavylift.reciping.refusals import refusal
from heavylift.reciping.shelf import Shelf
from heavylift.reciping.wish import RecipeWish
from heavylift.records.plan import Plan
from heavylift.records.recipe import EngineChoice


def recommended(
    shelf: Shelf, wish: RecipeWish, knowledge: Knowledge
) -> tuple[str, tuple[EngineChoice, ...]]:
    """The engine to take, and every one that was weighed, the best first.

    As a plan orders them: holds at all, then who ran it, then the verdict; then the order in
    which the facts list them. Raises the first error when no engine can be planned, REC022 when
    the model lists none.
    """
    weighed: list[tuple[str, Plan]] = []
    errors: dict[str, HeavyliftError] = {}
    for engine in candidates(shelf, wish, knowledge):
        try:
            plan, derived = planned(shelf, wish, knowledge, engine)
            job = shelf.job(wish, knowledge, engine, plan, derived)
            if wish.split is None and refusal(shelf, wish, knowledge, job) is None:
                launch(job, shelf.router(job.serving))
        except HeavyliftError as error:
            errors[engine] = error
            continue
        weighed.append((engine, plan))
    if not weighed:
        raise next(iter(errors.values()), HeavyliftError("REC022", {"model": wish.model}))
    weighed.sort(key=lambda each: worth(each[1]))
    best = weighed[0][0]
    choices = [
        EngineChoice(
            engine=engine,
            title=shelf.serving(engine).title,
            chosen=engine == best,
            verdict=plan.verdict,
            support=plan.support,
            layout=plan.layout.label,
        )
        for engine, plan in weighed
    ]
    choices += [
        EngineChoice(
            engine=engine,
            title=shelf.serving(engine).title,
            chosen=False,
            code=error.code,
            params=dict(error.params),
        )
        for engine, error in errors.items()
    ]
    return best, tuple(choices)
