"""A wish becomes a recipe: planned, refused or written, with every source it rests on."""

from __future__ import annotations

from collections.abc import Mapping

from heavylift.facts.catalog import Catalog
from heavylift.facts.consistency import name_key
from heavylift.facts.schema import RecipeFacts
from heavylift.plan.planner import Knowledge
from heavylift.planning import Planning
from heavylift.recipe.job import DECODE, PREFILL, SERVE, Job
from heavylift.recipe.launches import launch, split_launch
from heavylift.reciping import embedded
from heavylift.reciping.choices import recommended
from heavylift.reciping.plans import planned
from heavylift.reciping.pools import pools
from heavylift.reciping.refusals import RAN, refusal
from heavylift.reciping.shelf import Shelf
from heavylift.reciping.wish import RecipeWish
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Capacity, Plan, Status, Support
from heavylift.records.recipe import (
    EngineChoice,
    Recipe,
    RecipeRefusal,
    SourceNote,
)


class Reciping:
    """A catalogue, and recipes made from it."""

    def __init__(self, catalog: Catalog | None = None) -> None:
        self._shelf = Shelf(catalog)

    @property
    def catalog(self) -> Catalog:
        """The facts."""
        return self._shelf.catalog

    @property
    def planning(self) -> Planning:
        """The planner with the same facts."""
        return self._shelf.planning

    def recipe(self, wish: RecipeWish) -> Recipe:
        """The recipe of a wish, written or refused.

        Raises what a plan raises, and REC010 to REC024 for what cannot be emitted or is no engine.
        """
        shelf = self._shelf
        knowledge = shelf.planning.knowledge(wish.model)
        choices: tuple[EngineChoice, ...] = ()
        if wish.engine is None:
            engine, choices = recommended(shelf, wish, knowledge)
        elif name_key(wish.engine) == name_key(embedded.ENGINE):
            return self._embedded(wish, knowledge)
        else:
            engine = shelf.engine(wish.engine)
        if wish.split is not None:
            return self._split(wish, knowledge, engine, wish.split, choices)
        plan, derived = planned(shelf, wish, knowledge, engine)
        job = shelf.job(wish, knowledge, engine, plan, derived)
        refused = refusal(shelf, wish, knowledge, job)
        spec = launch(job, shelf.router(job.serving)) if refused is None else None
        return self._record(job, {SERVE: plan}, spec, refused, choices)

    def _split(
        self,
        wish: RecipeWish,
        knowledge: Knowledge,
        engine: str,
        split: tuple[int, int],
        choices: tuple[EngineChoice, ...],
    ) -> Recipe:
        shelf = self._shelf
        jobs = pools(shelf, wish, knowledge, engine, split)
        refused = None
        for job in jobs.values():
            if refused is None and job.plan.capacity_verdict is Capacity.DOES_NOT_FIT:
                refused = refusal(shelf, wish, knowledge, job)
        spec = None
        if refused is None:
            router = shelf.router(jobs[DECODE].serving)
            spec = split_launch(jobs[PREFILL], jobs[DECODE], router)
        plans = {role: job.plan for role, job in jobs.items()}
        return self._record(jobs[DECODE], plans, spec, refused, choices)

    def _embedded(self, wish: RecipeWish, knowledge: Knowledge) -> Recipe:
        plan, spec = embedded.embedded_launch(self._shelf, wish, knowledge)
        return Recipe(
            model=plan.model,
            title=plan.title,
            rack=plan.rack.label,
            engine=embedded.ENGINE,
            engine_title=plan.engine_title,
            engine_version=spec.engine_version,
            layout=plan.layout.label,
            target=None,
            status=plan.support.status,
            support=plan.support,
            plan=plan,
            plans={SERVE: plan},
            launch=spec,
            argv=tuple(rank.argv for rank in spec.ranks),
            sources=self._sources({}, spec, plan.support),
        )

    def _record(
        self,
        job: Job,
        plans: Mapping[str, Plan],
        spec: LaunchSpec | None,
        refused: RecipeRefusal | None,
        choices: tuple[EngineChoice, ...],
    ) -> Recipe:
        plan = job.plan
        support = plan.support
        if spec is not None and spec.support is not None:
            support = spec.support
        if refused is not None:
            support = _refused_support(refused, plan.support)
        return Recipe(
            model=plan.model,
            title=plan.title,
            rack=" + ".join(dict.fromkeys(each.rack.label for each in plans.values())),
            engine=job.engine,
            engine_title=job.serving.title,
            engine_version=plan.engine_version,
            layout=" + ".join(each.layout.label for each in plans.values()),
            target=None,
            status=support.status,
            support=support,
            plan=plan,
            plans=dict(plans),
            launch=spec,
            argv=() if spec is None else tuple(rank.argv for rank in spec.ranks),
            env={} if spec is None else _shared(spec),
            sources=self._sources({recipe.id: recipe for recipe in job.recipes}, spec, support),
            choices=choices,
            refused=refused,
        )

    def _sources(
        self, published: Mapping[str, RecipeFacts], spec: LaunchSpec | None, support: Support
    ) -> tuple[SourceNote, ...]:
        """Every source named by a setting, published recipes with their status and day."""
        settings = () if spec is None else spec.settings
        said = (support.source, support.recipe, *(setting.source for setting in settings))
        return tuple(
            self._source(each, published.get(each)) for each in dict.fromkeys(said) if each
        )

    def _source(self, identifier: str, recipe: RecipeFacts | None) -> SourceNote:
        source = self.catalog.source_or_none(recipe.source if recipe else identifier)
        day = recipe.as_of if recipe else source.retrieved if source else None
        return SourceNote(
            id=identifier,
            title=source.title if source else identifier,
            url=source.url if source else None,
            as_of=None if day is None else day.isoformat(),
            recipe=recipe.id if recipe else None,
            status=recipe.status.value if recipe else None,
        )


def _refused_support(refused: RecipeRefusal, told: Support) -> Support:
    """What is known of a launch that is refused: the refusal's own source, the plan's beside it.

    A release that lists the model says nothing of a layout that the numbers refuse.
    """
    broken = refused.code == "reported_broken"
    if not broken and told.status not in (*RAN, Status.UNVERIFIED, Status.UNKNOWN):
        return told
    if not broken and told.status in (Status.UNVERIFIED, Status.UNKNOWN):
        return Support(status=Status.UNSUPPORTED, source="", as_of="", note=told.note)
    return Support(
        status=Status.BROKEN if broken else Status.UNSUPPORTED,
        source=str(refused.source),
        as_of=str(refused.as_of),
        recipe=str(refused.params["recipe"]) if broken else None,
        note=told.note,
        conflict=told.recipe,
    )


def _shared(spec: LaunchSpec) -> dict[str, str]:
    """Variables that every engine process has with the same value."""
    engines = [rank.env for rank in spec.ranks if rank.role in (SERVE, PREFILL, DECODE)]
    shared = set.intersection(*(set(env.items()) for env in engines))
    return dict(sorted(shared))
