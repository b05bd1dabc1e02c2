"""Why a recipe is not written, and the nearest one that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from heavylift.errors import HeavyliftError
from heavylift.plan.command import layout_flags, plan_command
from heavylift.plan.fixes import fixes
from heavylift.plan.planner import Knowledge
from heavylift.recipe.job import Job
from heavylift.reciping.plans import broken, candidates, planned, sound, worth
from heavylift.reciping.shelf import Shelf
from heavylift.reciping.wish import RecipeWish
from heavylift.records.plan import Fix, Plan, PlanRequest, PlanVerdict, Rack, Status
from heavylift.records.recipe import Nearest, RecipeRefusal
from heavylift.units import GIB

RAN = (Status.VERIFIED, Status.REPORTED)
_CARDS_TRIED = 6


def refusal(shelf: Shelf, wish: RecipeWish, knowledge: Knowledge, job: Job) -> RecipeRefusal | None:
    """Why the job's launch is not written: it does not fit, was reported broken, is unsupported."""
    plan = job.plan
    # Where a source says that exactly this ran, the plan's verdict is unknown, not this.
    if plan.verdict is PlanVerdict.DOES_NOT_FIT:
        limit = max(plan.limits, key=lambda each: each.short_bytes)
        return RecipeRefusal(
            code="does_not_fit",
            params={
                "need_gib": round(limit.need_bytes / GIB, 2),
                "have_gib": round(limit.have_bytes / GIB, 2),
                "short_gib": round(limit.short_bytes / GIB, 2),
                "weights_gib": round(plan.per_gpu.weights_bytes.low / GIB, 2),
                "note": plan.support.note,
            },
            source=plan.support.source,
            as_of=plan.support.as_of,
            nearest=nearest(shelf, wish, knowledge, job),
        )
    report = broken(knowledge, job.engine, plan)
    if report is not None and not wish.despite:
        return RecipeRefusal(
            code="reported_broken",
            params={
                "recipe": report.id,
                "reason": report.reason,
                "other": plan.support.recipe if plan.support.status in RAN else None,
            },
            source=report.source,
            as_of=report.as_of.isoformat(),
            nearest=nearest(shelf, wish, knowledge, job),
        )
    if plan.verdict is PlanVerdict.UNSUPPORTED and not wish.despite:
        return RecipeRefusal(
            code="unsupported",
            params={"status": plan.support.status.value, "note": plan.support.note},
            source=plan.support.source,
            as_of=plan.support.as_of,
            nearest=nearest(shelf, wish, knowledge, job),
        )
    return None


def nearest(shelf: Shelf, wish: RecipeWish, knowledge: Knowledge, job: Job) -> tuple[Nearest, ...]:
    """Commands that work instead: another layout of the same rack, another engine on it where this
    one does not serve the model there, then the plan's changes.
    """
    plan = job.plan
    found = []
    other = next(sound(shelf, wish, knowledge, job.engine, plan), None)
    if other is not None:
        bare = plan_command(replace(plan.request, engine=None, layout_constraints={}))
        command = f"{_as_recipe(bare)} --engine {job.engine} {layout_flags(other.layout)}"
        found.append(_near(other, job.engine, command))
    elif plan.verdict is PlanVerdict.UNSUPPORTED:
        found += _other_engine(shelf, wish, knowledge, job)
    for fix in fixes(_as_asked(wish, job), knowledge):
        there = _moved(shelf, wish, knowledge, job, fix)
        if there is not None:
            found.append(_near(there, job.engine, _as_recipe(fix.command)))
        else:
            found.append(
                Nearest(
                    command=_as_recipe(fix.command),
                    rack=str(fix.params.get("rack", plan.rack.label)),
                    layout=str(fix.params.get("layout", "")),
                    engine=str(fix.params.get("engine", job.engine)),
                    verdict=fix.verdict,
                    status=fix.status,
                )
            )
    return tuple(found) or _elsewhere(shelf, wish, knowledge, job)


def _other_engine(
    shelf: Shelf, wish: RecipeWish, knowledge: Knowledge, job: Job
) -> Iterator[Nearest]:
    """The best other engine on the rack that was asked for: no other card need be had for it.

    What was stated for the refused engine (version, layout, form) was its own and is not kept.
    """

    def ask(rack: Rack) -> PlanRequest:
        return replace(wish.ask(rack), engine_version=None, variant=None, layout_constraints={})

    moved = replace(wish, ask=ask)
    served: list[tuple[str, Plan]] = []
    for engine in candidates(shelf, moved, knowledge):
        if engine == job.engine:
            continue
        try:
            plan, _ = planned(shelf, moved, knowledge, engine)
        except HeavyliftError:
            continue  # no form of the model, or no layout there
        if plan.verdict.is_positive and broken(knowledge, engine, plan) is None:
            served.append((engine, plan))
    if served:
        engine, plan = min(served, key=lambda each: worth(each[1]))
        request = replace(moved.ask(plan.rack), engine=None)
        command = f"{_as_recipe(plan_command(request))} --engine {engine}"
        yield _near(plan, engine, command)


def _elsewhere(
    shelf: Shelf, wish: RecipeWish, knowledge: Knowledge, job: Job
) -> tuple[Nearest, ...]:
    """The same engine, or else another, on the fewest of the largest cards that hold the model,
    where no change of the rack that was asked for helps.
    """
    largest = sorted(shelf.catalog.gpus(), key=lambda each: -each.memory_visible.value)
    bare = replace(wish.ask(job.plan.rack), layout_constraints={})
    others = (each for each in shelf.catalog.serving_ids() if each != job.engine)
    for engine in (job.engine, *others):
        for gpu in largest[:_CARDS_TRIED]:
            moved = replace(wish, rack=gpu.title, ask=lambda rack: replace(bare, rack=rack))
            try:
                plan, _ = planned(shelf, moved, knowledge, engine)
            except HeavyliftError:
                continue  # no layout there, or no count of that card holds the model
            if plan.verdict.is_positive or plan.verdict is PlanVerdict.UNKNOWN:
                request = replace(bare, engine=None, rack=plan.rack)
                command = f"{_as_recipe(plan_command(request))} --engine {engine}"
                return (_near(plan, engine, command),)
    return ()


def _as_asked(wish: RecipeWish, job: Job) -> Plan:
    """The plan with what was asked: what was worked out here travels to no other rack."""
    plan, asked = job.plan, wish.ask(job.plan.rack)
    changed = {name: getattr(asked, name) for name in job.derived}
    request = replace(plan.request, layout_constraints=asked.layout_constraints, **changed)
    return replace(plan, request=request)


def _moved(shelf: Shelf, wish: RecipeWish, knowledge: Knowledge, job: Job, fix: Fix) -> Plan | None:
    """What a recipe takes on more of the same card: not always the layout a plan would."""
    if fix.id != "more_gpus":
        return None
    try:
        plan, _ = planned(shelf, replace(wish, rack=str(fix.params["rack"])), knowledge, job.engine)
    except HeavyliftError:
        # The stated layout was for the smaller rack.
        return None
    return plan


def _near(plan: Plan, engine: str, command: str) -> Nearest:
    return Nearest(
        command=command,
        rack=plan.rack.label,
        layout=plan.layout.label,
        engine=engine,
        verdict=plan.verdict,
        status=plan.support.status,
    )


def _as_recipe(line: str) -> str:
    return line.replace("heavylift plan", "heavylift recipe", 1)
