"""Recipes with their facts loaded: a model, a rack and an engine become a launch, or a refusal.

`recipe` itself is pure and is handed everything; here plans are made, engines are weighed, and
what was published or reported broken is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.command_schema import CommandModelFacts
from heavylift.facts.consistency import name_key
from heavylift.facts.schema import RecipeFacts, RecipeStatus
from heavylift.facts.serving_schema import ServingEngine
from heavylift.plan.command import layout_flags, plan_command
from heavylift.plan.planner import Knowledge
from heavylift.plan.support import is_layout_of
from heavylift.planning import Planning
from heavylift.recipe.flags import FlagTable
from heavylift.recipe.job import DECODE, PREFILL, SERVE, Job, Start
from heavylift.recipe.launches import can_spread, launch, split_launch
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Capacity, Plan, PlanRequest, PlanVerdict, Rack, Status
from heavylift.records.recipe import (
    EngineChoice,
    Nearest,
    Recipe,
    RecipeRefusal,
    SourceNote,
)
from heavylift.units import GIB

_RAN: Final = (Status.VERIFIED, Status.REPORTED)
_BROKEN_FIRST: Final = (RecipeStatus.BROKEN, RecipeStatus.UNSUPPORTED)

Ask = Callable[[Rack], PlanRequest]
"""What is asked of a rack, as a plan's request; its engine is set here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeWish:
    """What was asked for. `split` are the machines of the prefill and the decode pool.

    `despite`: a layout that somebody reported broken is written all the same.
    """

    model: str
    rack: str
    ask: Ask
    engine: str | None = None
    start: Start = field(default_factory=Start)
    replicas: int = 1
    split: tuple[int, int] | None = None
    despite: bool = False


class Reciping:
    """A catalogue, and recipes made from it."""

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or Catalog()
        self.planning = Planning(self.catalog)

    # --- engines ---------------------------------------------------------------------------------

    def engine(self, name: str) -> str:
        """The id of the engine of that name. Raises REC020 with those that are known."""
        wanted = name_key(name)
        for identifier in self.catalog.serving_ids():
            facts = self.catalog.serving(identifier)
            if wanted in map(name_key, (identifier, facts.title, *facts.names)):
                return identifier
        raise HeavyliftError(
            "REC020", {"name": name, "known": ", ".join(self.catalog.serving_ids())}
        )

    def recipe(self, wish: RecipeWish) -> Recipe:
        """The recipe of a wish, written or refused.

        Raises what a plan raises, REC010 to REC019 for what cannot be emitted, REC021 for a split
        that the rack or the engine does not allow.
        """
        knowledge = self.planning.knowledge(wish.model)
        choices: tuple[EngineChoice, ...] = ()
        if wish.engine is None:
            engine, choices = self._recommended(wish, knowledge)
        else:
            engine = self.engine(wish.engine)
        if wish.split is not None:
            return self._split(wish, knowledge, engine, choices)
        plan, derived = self._planned(wish, knowledge, engine)
        job = self._job(wish, knowledge, engine, plan, derived)
        refused = None if wish.despite else self._refusal(wish, knowledge, job)
        spec = None
        if refused is None:
            spec = launch(job, self._router(job.serving))
        return self._record(wish, job, {SERVE: plan}, spec, refused, choices)

    # --- plans -----------------------------------------------------------------------------------

    def _planned(
        self, wish: RecipeWish, knowledge: Knowledge, engine: str
    ) -> tuple[Plan, dict[str, str]]:
        """The plan for an engine, with the number of sequences that it holds.

        Where the best layout was reported broken and none was stated, one that was run is taken.
        """
        plan = self._plan(wish, knowledge, engine)
        if not plan.request.layout_constraints and self._broken(knowledge, engine, plan):
            plan = next(self._sound(wish, knowledge, engine, plan), plan)
        command = self.catalog.serving(engine).command
        if not plan.request.layout_constraints and not can_spread(command, plan):
            plan = self._plan(
                wish,
                knowledge,
                engine,
                lambda request: replace(request, layout_constraints={"data": 1}),
            )
        return self._with_sequences(wish, knowledge, plan)

    def _plan(
        self,
        wish: RecipeWish,
        knowledge: Knowledge,
        engine: str,
        change: Callable[[PlanRequest], PlanRequest] = lambda request: request,
    ) -> Plan:
        planned_by = self.catalog.serving(engine).plans_as or engine
        gpu, rack = self.planning.rack(wish.rack)

        def build(each: Rack) -> PlanRequest:
            return change(replace(wish.ask(each), engine=planned_by))

        if rack is None:
            return self.planning.plan(build, knowledge, gpu=gpu)
        return self.planning.plan(build(rack), knowledge)

    def _with_sequences(
        self, wish: RecipeWish, knowledge: Knowledge, plan: Plan
    ) -> tuple[Plan, dict[str, str]]:
        """No more sequences than are held, where the engine's own default is more or unknown."""
        del wish
        taken = {entry.name: entry for entry in plan.defaults}
        usual = taken.get("max_num_seqs")
        stated = plan.request.max_num_seqs is not None
        if plan.capacity_verdict is Capacity.DOES_NOT_FIT:
            return plan, {}
        if stated or (usual is not None and usual.origin != "engine"):
            return plan, {}
        most = plan.capacity.max_sequences
        held = most.low or most.high or 0
        count = max(plan.concurrency, min(held, plan.max_num_seqs or held))
        if count < 1 or count == plan.max_num_seqs:
            return plan, {}
        request = replace(
            plan.request,
            engine=plan.engine,
            max_num_seqs=count,
            layout_constraints=_constraints(plan),
        )
        again = self.planning.plan(request, knowledge)
        return again, {"max_num_seqs": ""}

    # --- refusals --------------------------------------------------------------------------------

    def _refusal(
        self, wish: RecipeWish, knowledge: Knowledge, job: Job
    ) -> RecipeRefusal | None:
        plan = job.plan
        ran = plan.support.status in _RAN and plan.support.conflict is None
        if plan.verdict is PlanVerdict.DOES_NOT_FIT and not ran:
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
                nearest=self._nearest(wish, knowledge, job),
            )
        broken = self._broken(knowledge, job.engine, plan)
        if broken is not None:
            return RecipeRefusal(
                code="reported_broken",
                params={
                    "recipe": broken.id,
                    "reason": broken.reason,
                    "other": plan.support.recipe if plan.support.status in _RAN else None,
                },
                source=broken.source,
                as_of=broken.as_of.isoformat(),
                nearest=self._nearest(wish, knowledge, job),
            )
        if plan.verdict is PlanVerdict.UNSUPPORTED:
            return RecipeRefusal(
                code="unsupported",
                params={"status": plan.support.status.value, "note": plan.support.note},
                source=plan.support.source,
                as_of=plan.support.as_of,
                nearest=self._nearest(wish, knowledge, job),
            )
        return None

    def _broken(self, knowledge: Knowledge, engine: str, plan: Plan) -> RecipeFacts | None:
        """A report that this layout fails on this card, unless somebody signed the layout off."""
        if plan.support.status is Status.VERIFIED:
            return None
        return next(
            (
                recipe
                for recipe in knowledge.model.book.recipes
                if recipe.engine == engine
                and recipe.status in _BROKEN_FIRST
                and recipe.phase is None
                and plan.rack.gpu in recipe.gpu_ids
                and is_layout_of(recipe, plan.layout, plan.rack)
            ),
            None,
        )

    def _sound(
        self, wish: RecipeWish, knowledge: Knowledge, engine: str, before: Plan
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
            and recipe.status not in _BROKEN_FIRST
            and not is_layout_of(recipe, before.layout, before.rack)
        ]
        published.sort(key=lambda recipe: list(Status).index(Status(recipe.status)))
        seen = set()
        for recipe in published:
            layout = {
                "tensor": recipe.tensor_parallel_size or 1,
                "pipeline": recipe.pipeline_parallel_size,
                "data": recipe.data_parallel_size,
                "expert": recipe.expert_parallel_size,
                "decode_context": recipe.decode_context_parallel_size,
            }
            if tuple(layout.values()) in seen:
                continue
            seen.add(tuple(layout.values()))
            try:
                plan = self._plan(
                    wish,
                    knowledge,
                    engine,
                    lambda request, layout=layout: replace(  # type: ignore[misc]
                        request, layout_constraints=layout
                    ),
                )
            except HeavyliftError:
                continue
            refused = plan.verdict in (PlanVerdict.DOES_NOT_FIT, PlanVerdict.UNSUPPORTED)
            if not refused and self._broken(knowledge, engine, plan) is None:
                yield plan

    def _nearest(self, wish: RecipeWish, knowledge: Knowledge, job: Job) -> tuple[Nearest, ...]:
        """Commands that work instead: another layout of the same rack, then the plan's changes."""
        plan = job.plan
        found = [
            Nearest(
                command=_recipe_command(
                    plan_command(replace(plan.request, engine=None, layout_constraints={})),
                    engine=job.engine,
                    layout=layout_flags(other.layout),
                ),
                rack=other.rack.label,
                layout=other.layout.label,
                engine=job.engine,
                verdict=other.verdict,
                status=other.support.status,
            )
            for other in self._sound(wish, knowledge, job.engine, plan)
            if other.layout != plan.layout
        ][:1]
        found += [
            Nearest(
                command=fix.command.replace("heavylift plan", "heavylift recipe", 1),
                rack=str(fix.params.get("rack", plan.rack.label)),
                layout=str(fix.params.get("layout", "")),
                engine=str(fix.params.get("engine", job.engine)),
                verdict=fix.verdict,
                status=fix.status,
            )
            for fix in plan.fixes
        ]
        return tuple(found)

    # --- which engine ----------------------------------------------------------------------------

    def _recommended(
        self, wish: RecipeWish, knowledge: Knowledge
    ) -> tuple[str, tuple[EngineChoice, ...]]:
        """The engine to take where none was named, and what was weighed.

        As a plan orders them: holds at all, then who ran it, then the verdict; then the order in
        which the facts list them. Raises the first error when no engine can be planned.
        """
        weighed: list[tuple[tuple[int, int, int], str, Plan]] = []
        errors: dict[str, HeavyliftError] = {}
        for engine in self._order(knowledge):
            try:
                plan, _ = self._planned(wish, knowledge, engine)
                job = self._job(wish, knowledge, engine, plan, {})
                if self._refusal(wish, knowledge, job) is None and wish.split is None:
                    launch(job, self._router(job.serving))
            except HeavyliftError as error:
                errors[engine] = error
                continue
            weighed.append((_worth(plan), engine, plan))
        if not weighed:
            raise next(iter(errors.values()), HeavyliftError("REC022", {"model": wish.model}))
        best = min(weighed, key=lambda each: each[0])[1]
        choices = [
            EngineChoice(
                engine=engine,
                title=self.catalog.serving(engine).title,
                chosen=engine == best,
                verdict=plan.verdict,
                support=plan.support,
                layout=plan.layout.label,
            )
            for _, engine, plan in sorted(weighed, key=lambda each: each[0])
        ]
        choices += [
            EngineChoice(
                engine=engine,
                title=self.catalog.serving(engine).title,
                chosen=False,
                code=error.code,
                params=dict(error.params),
            )
            for engine, error in errors.items()
        ]
        return best, tuple(choices)

    def _order(self, knowledge: Knowledge) -> list[str]:
        """Engines that can be planned by rules of their own, as the model's variants list them."""
        listed = dict.fromkeys(
            engine for variant in knowledge.model.model.variants for engine in variant.engines
        )
        known = self.catalog.serving_ids()
        return [name for name in listed if name in known]

    # --- prefill apart from decode ---------------------------------------------------------------

    def _split(
        self,
        wish: RecipeWish,
        knowledge: Knowledge,
        engine: str,
        choices: tuple[EngineChoice, ...],
    ) -> Recipe:
        prefill_nodes, decode_nodes = wish.split or (1, 1)
        _, rack = self.planning.rack(wish.rack)
        if rack is None or rack.nodes != prefill_nodes + decode_nodes:
            raise HeavyliftError(
                "REC021",
                {
                    "rack": wish.rack,
                    "prefill": prefill_nodes,
                    "decode": decode_nodes,
                    "nodes": None if rack is None else rack.nodes,
                },
            )
        if engine not in ("vllm", "sglang"):
            raise HeavyliftError("REC023", {"engine": self.catalog.serving(engine).title})
        jobs = {}
        for role, nodes in ((PREFILL, prefill_nodes), (DECODE, decode_nodes)):
            jobs[role] = self._pool(wish, knowledge, engine, role, replace(rack, nodes=nodes))
        plans = {role: job.plan for role, job in jobs.items()}
        refused = next(
            (
                found
                for job in jobs.values()
                if job.plan.capacity_verdict is Capacity.DOES_NOT_FIT
                and (found := self._refusal(wish, knowledge, job)) is not None
            ),
            None,
        )
        spec = None
        if refused is None:
            table = self._router(jobs[DECODE].serving)
            spec = split_launch(jobs[PREFILL], jobs[DECODE], table)
        return self._record(wish, jobs[DECODE], plans, spec, refused, choices)

    def _pool(
        self, wish: RecipeWish, knowledge: Knowledge, engine: str, role: str, rack: Rack
    ) -> Job:
        """One pool, planned for itself: in the published layout of its half where there is one."""
        request = replace(wish.ask(rack), engine=engine, rack=rack)
        half = [
            recipe
            for recipe in knowledge.model.book.recipes
            if recipe.engine == engine
            and recipe.phase is not None
            and recipe.phase.value == role
            and rack.gpu in recipe.gpu_ids
            and recipe.status not in _BROKEN_FIRST
        ]
        fitting = [recipe for recipe in half if recipe.gpus in (None, rack.gpu_count)]
        derived: dict[str, str] = {}
        if fitting and not request.layout_constraints:
            recipe = fitting[0]
            layout = {
                "tensor": recipe.tensor_parallel_size or 1,
                "pipeline": recipe.pipeline_parallel_size,
                "data": recipe.data_parallel_size,
                "expert": recipe.expert_parallel_size,
                "decode_context": recipe.decode_context_parallel_size,
            }
            request = replace(request, layout_constraints=layout)
        if half:
            recipe = (fitting or half)[0]
            for name in ("max_num_batched_tokens", "max_num_seqs", "kv_cache_dtype", "moe_backend"):
                if name in recipe.settings and getattr(request, name) is None:
                    value = recipe.settings[name]
                    request = replace(request, **{name: value})  # type: ignore[arg-type]
                    derived[name] = recipe.id
        plan = self.planning.plan(request, knowledge)
        if "max_num_seqs" not in derived:
            plan, more = self._with_sequences(wish, knowledge, plan)
            derived |= more
        return replace(self._job(wish, knowledge, engine, plan, derived), role=role)

    # --- jobs and records ------------------------------------------------------------------------

    def _job(
        self,
        wish: RecipeWish,
        knowledge: Knowledge,
        engine: str,
        plan: Plan,
        derived: dict[str, str],
    ) -> Job:
        """Everything a launch is made from. Raises REC016 for a version whose names nobody read."""
        serving = self.catalog.serving(engine)
        table = self._table(serving.table)
        version = serving.table_versions.get(plan.engine_version, plan.engine_version)
        if not table.is_read(version):
            raise HeavyliftError(
                "REC016",
                {
                    "engine": serving.title,
                    "version": plan.engine_version,
                    "read": ", ".join((*serving.table_versions, *table.facts.read)),
                },
            )
        machine = knowledge.machines[plan.rack.gpu]
        model = knowledge.model.model
        return Job(
            engine=engine,
            plan=plan,
            gpu=machine.gpu,
            node=machine.node,
            model=model,
            serving=serving,
            command=next(
                each for each in self._commands.engines if each.id == serving.command
            ),
            table=table,
            table_version=version,
            common=self.catalog.serving_common(),
            recipes=tuple(
                recipe for recipe in knowledge.model.book.recipes if recipe.engine == engine
            ),
            changes=self.catalog.name_changes(),
            naming=self._naming(model.id),
            start=wish.start,
            replicas=wish.replicas,
            derived=derived,
        )

    def _record(  # noqa: PLR0913 - the parts of one record
        self,
        wish: RecipeWish,
        job: Job,
        plans: dict[str, Plan],
        spec: LaunchSpec | None,
        refused: RecipeRefusal | None,
        choices: tuple[EngineChoice, ...],
    ) -> Recipe:
        plan = job.plan
        support = plan.support if spec is None or spec.support is None else spec.support
        status = support.status
        if refused is not None and status in (*_RAN, Status.UNVERIFIED, Status.UNKNOWN):
            status = Status.BROKEN if refused.code == "reported_broken" else Status.UNSUPPORTED
        del wish
        engines = [] if spec is None else [r for r in spec.ranks if r.gpus != 0 or len(r.env)]
        shared = set(engines[0].env.items()) if engines else set()
        for rank in engines[1:]:
            shared &= set(rank.env.items())
        return Recipe(
            model=plan.model,
            title=plan.title,
            rack=" + ".join(dict.fromkeys(each.rack.label for each in plans.values())),
            engine=job.engine,
            engine_title=job.serving.title,
            engine_version=plan.engine_version,
            layout=" → ".join(each.layout.label for each in plans.values()),
            target=None,
            status=status,
            support=support,
            plan=plan,
            plans=plans,
            launch=spec,
            argv=() if spec is None else tuple(rank.argv for rank in spec.ranks),
            env=dict(sorted(shared)),
            sources=self._sources(job, spec, support.source, support.recipe),
            choices=choices,
            refused=refused,
        )

    def _sources(
        self, job: Job, spec: LaunchSpec | None, *more: str | None
    ) -> tuple[SourceNote, ...]:
        """Every source named by a setting, published recipes with their status and day."""
        published = {recipe.id: recipe for recipe in job.recipes}
        named = dict.fromkeys(
            (
                *(each for each in more if each),
                *(setting.source for setting in (spec.settings if spec else ())),
            )
        )
        notes = []
        for identifier in named:
            recipe = published.get(identifier)
            source = self.catalog.source_or_none(recipe.source if recipe else identifier)
            notes.append(
                SourceNote(
                    id=identifier,
                    title=source.title if source else identifier,
                    url=source.url if source else None,
                    as_of=recipe.as_of.isoformat()
                    if recipe
                    else (source.retrieved.isoformat() if source else None),
                    recipe=recipe.id if recipe else None,
                    status=recipe.status.value if recipe else None,
                )
            )
        return tuple(notes)

    # --- loading ---------------------------------------------------------------------------------

    @cached_property
    def _commands(self):  # type: ignore[no-untyped-def]
        return self.catalog.command_engines()

    @cached_property
    def _tables(self) -> dict[str, FlagTable]:
        return {}

    def _table(self, name: str) -> FlagTable:
        if name not in self._tables:
            self._tables[name] = FlagTable(self.catalog.flags(name))
        return self._tables[name]

    def _router(self, serving: ServingEngine) -> FlagTable | None:
        return None if serving.router is None else self._table(serving.router)

    def _naming(self, model: str) -> CommandModelFacts | None:
        return next(
            (each for each in self.catalog.command_models().models if each.plans_as == model), None
        )


def _worth(plan: Plan) -> tuple[int, int, int]:
    verdicts, statuses = tuple(PlanVerdict), tuple(Status)
    verdict = verdicts.index(plan.verdict)
    if plan.verdict is PlanVerdict.DOES_NOT_FIT:
        return (verdict, 0, 0)
    return (max(1, verdict), statuses.index(plan.support.status), verdict)


def _constraints(plan: Plan) -> dict[str, int]:
    layout = plan.layout
    return {
        "tensor": layout.tensor_parallel_size,
        "pipeline": layout.pipeline_parallel_size,
        "data": layout.data_parallel_size,
        "expert": layout.expert_parallel_size,
        "decode_context": layout.decode_context_parallel_size,
    }


def _recipe_command(plan_line: str, *, engine: str, layout: str) -> str:
    line = plan_line.replace("heavylift plan", "heavylift recipe", 1)
    return f"{line} --engine {engine} {layout}"
