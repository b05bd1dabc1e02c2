"""The planner behind the page: one set of facts, answers kept for the next time they are asked.

Everything here is what the command line computes, by the same calls. Only models of the catalogue
are planned: a page never opens a folder or a hub that its address names.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final, TypeVar

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import EngineFacts, GpuFacts, Source, VariantFacts
from heavylift.plan.compare import Comparison, rack_sizes
from heavylift.plan.cost import Comparison as CostComparison
from heavylift.plan.cost import Wanted
from heavylift.plan.fixes import fixes
from heavylift.plan.money import OwnPrices
from heavylift.plan.planner import Knowledge, plan_on_layout, with_receipt
from heavylift.plan.speed import Forecaster, forecaster
from heavylift.planning import THIS_MACHINE, Planning
from heavylift.reciping import RecipeWish, Reciping
from heavylift.reciping.wish import constraints
from heavylift.records.decision import Decision
from heavylift.records.plan import Capacity, Fix, Plan, PlanRequest, Rack
from heavylift.records.recipe import Recipe
from heavylift.records.speed import AnchorPoint, Speed
from heavylift.state.deployments import deployments_path
from heavylift.state.kept_anchors import anchors_dir, kept
from heavylift.state.kept_receipts import newest_receipt
from heavylift.web.question import Question, read_keep

T = TypeVar("T")

CONCURRENCIES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TPOT_LIMIT_S: Final = 0.05
"""The limit at which a cost is read, as `heavylift decide` has it unasked."""
_KEPT: Final = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What the selects of the page offer for a model, and for a card how many of it."""

    models: tuple[tuple[str, str], ...]
    variants: tuple[VariantFacts, ...]
    engines: tuple[EngineFacts, ...]
    gpus: tuple[GpuFacts, ...]
    counts: tuple[int, ...]
    most_context: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedCurve:
    """The forecast at the concurrency asked and at the marks of the axis, refused ones included."""

    plan: Plan
    asked: Speed
    points: tuple[Speed, ...]


class _Kept:
    """Answers by question, the least recently asked dropped first."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The answer of that key, made now if nobody asked before."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                found: T = self._answers[key]
                return found
        made = make()
        with self._lock:
            self._answers[key] = made
            while len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
        return made


class Planner:
    """Answers questions of the page. Methods may be called from several threads."""

    def __init__(
        self, catalog: Catalog | None = None, anchors: tuple[AnchorPoint, ...] = ()
    ) -> None:
        self.catalog = catalog or Catalog()
        self.anchors = anchors
        self._planning = Planning(self.catalog)
        self._kept = _Kept()

    def knowledge(self, model: str) -> Knowledge:
        """What is known of a model of the catalogue. Raises FACT010 for any other."""
        identifier = self.catalog.model(model).id
        return self._kept.get(
            ("knowledge", identifier), lambda: self._planning.knowledge(identifier)
        )

    def plan(self, question: Question) -> Plan:
        """The best plan, without fixes. Raises as `Planning.plan`."""
        return self._answer(
            lambda: self._measured(self._plan(question), question), "plan", question
        )

    def _answer(self, make: Callable[[], T], *asked: Hashable) -> T:
        """The answer to what was asked, made now if nobody asked since a start was kept last."""
        return self._kept.get((*asked, self._receipts_stamp()), make)

    def _measured(self, plan: Plan, question: Question) -> Plan:
        """The plan with what an earlier start on this machine showed, as the command has it."""
        path = deployments_path()
        if plan.rack.reading == "smallest_count" or not path.is_file():
            return plan
        try:
            receipt = newest_receipt(path, plan)
        except (HeavyliftError, sqlite3.Error, msgspec.MsgspecError):
            return plan  # the live page says that the store cannot be read
        return (
            plan if receipt is None else with_receipt(plan, receipt, self.knowledge(question.model))
        )

    @staticmethod
    def _receipts_stamp() -> tuple[int, ...]:
        """Changes when a start or a measurement has been kept: an answer from before it is asked
        anew.
        """
        path = deployments_path()
        files = [path, path.with_name(f"{path.name}-wal")]
        if anchors_dir().is_dir():
            files += anchors_dir().iterdir()
        return tuple(file.stat().st_mtime_ns for file in files if file.is_file())

    def _plan(self, question: Question) -> Plan:
        knowledge = self.knowledge(question.model)
        gpu, rack = self.rack(question)
        engine = self._planning.engine(question.engine)
        if rack is not None:
            request = question.request(rack, engine)
            return self._planning.plan(request, knowledge, with_fixes=False)
        return self._planning.plan(
            lambda each: question.request(each, engine), knowledge, gpu=gpu, with_fixes=False
        )

    def plan_kept(self, question: Question, keep: str) -> Plan:
        """The plan on the engine and layout that are on screen; the best one where the question
        does not allow them. Raises as `plan`.
        """
        return self._answer(lambda: self._plan_kept(question, keep), "kept", question, keep)

    def _plan_kept(self, question: Question, keep: str) -> Plan:
        engine, layout = read_keep(keep)
        knowledge = self.knowledge(question.model)
        _, rack = self.rack(question)
        named = self._planning.engine(question.engine)
        if (
            rack is None
            or engine not in knowledge.engines
            or named not in (None, engine)
            or layout.world_size != rack.gpu_count
        ):
            return self.plan(question)
        found = plan_on_layout(question.request(rack, named), knowledge, engine, layout)
        return self.plan(question) if found is None else self._measured(found, question)

    def fixes(self, question: Question) -> tuple[Fix, ...]:
        """The nearest changes that hold, each planned again."""
        plan = self.plan(question)
        knowledge = self.knowledge(question.model)
        return self._kept.get(
            ("fixes", question, self._receipts_stamp()), lambda: fixes(plan, knowledge)
        )

    def compare(self, question: Question) -> Comparison:
        """The smallest rack of every card that holds what is asked, and the rack asked about."""
        engine = self._planning.engine(question.engine)
        racks = (question.on, *(gpu.title for gpu in self.catalog.gpus()))
        free = replace(question, tp=None, pp=None, dp=None, ep=None, dcp=None)

        def compared() -> Comparison:
            return self._planning.compare(
                racks,
                lambda rack: free.request(rack, engine),
                self.knowledge(question.model),
                with_speed=True,
            )

        return self._kept.get(("compare", free), compared)

    def speed(self, question: Question) -> SpeedCurve | None:
        """The bands of tokens per second; None when not one sequence of the workload fits.

        Raises as `plan`, PLAN070 for a variant without tensors by group.
        """
        return self._kept.get(
            ("speed", question, self._receipts_stamp()), lambda: self._speed(question)
        )

    def _speed(self, question: Question) -> SpeedCurve | None:
        made = self.forecaster(question)
        if made is None:
            return None
        asked = question.workload
        marks = sorted({*CONCURRENCIES, *self._room(made, question)})
        points = tuple(made.speed(replace(asked, concurrency=each)) for each in marks)
        return SpeedCurve(plan=made.plan, asked=made.speed(asked), points=points)

    def cost(self, question: Question, day: date) -> Decision | None:
        """The costs at the prices of a day; None when not one sequence fits. Raises PLAN080 where
        no speed keeps to the limit, and as `speed`.
        """
        return self._kept.get(
            ("cost", question, day, self._receipts_stamp()), lambda: self._cost(question, day)
        )

    def _cost(self, question: Question, day: date) -> Decision | None:
        made = self.forecaster(question)
        if made is None:
            return None
        own = OwnPrices(usd_per_gpu_hour=question.rent)
        wanted = Wanted(workload=question.workload, tpot_limit_s=TPOT_LIMIT_S, day=day)
        return CostComparison(made, self.catalog.prices(), wanted, own).decision()

    @staticmethod
    def _room(made: Forecaster, question: Question) -> tuple[int, ...]:
        """Where the band ends, when that is before the end of the axis."""
        held = made.seats(question.workload) * made.plan.layout.data_parallel_size
        return (held,) if 1 <= held <= CONCURRENCIES[-1] else ()

    def forecaster(self, question: Question) -> Forecaster | None:
        """The forecaster of the layout usually run, or None when it holds not one sequence."""
        plan = self.plan(question.at_speed())
        if plan.capacity_verdict is Capacity.DOES_NOT_FIT or not plan.capacity.max_sequences.high:
            return None
        knowledge = self.knowledge(question.model)
        facts = self.catalog.speed()
        if self.anchors:
            return forecaster(plan, knowledge, facts, self.anchors)
        points = kept(plan)
        found = "anchor_kept" if points else ""
        return forecaster(plan, knowledge, facts, points, anchors_from=found)

    def recipe(self, question: Question) -> Recipe:
        """The commands of the engine for the plan that is shown, or why none is written."""
        return self._kept.get(
            ("recipe", question, self._receipts_stamp()), lambda: self._recipe(question)
        )

    def _recipe(self, question: Question) -> Recipe:
        plan = self.plan(question)
        sizes = constraints(plan)

        def ask(rack: Rack) -> PlanRequest:
            return replace(question.request(rack, plan.engine), layout_constraints=sizes)

        wish = RecipeWish(model=plan.model, rack=plan.rack.label, ask=ask, engine=plan.engine)
        return Reciping(self.catalog).recipe(wish)

    def choices(self, question: Question) -> Choices:
        """What there is to choose from. Raises FACT010, FACT011, PLAN001 to PLAN003."""
        knowledge = self.knowledge(question.model)
        variants = knowledge.model.model.variants
        usable = {name for variant in variants for name in variant.engines}
        gpu, rack = self.rack(question)
        models = (self.catalog.model(identifier) for identifier in self.catalog.ids("models"))
        counts = {size.gpu_count for size in rack_sizes(knowledge, gpu.id)}
        if rack is not None:
            counts.add(rack.gpu_count)
        return Choices(
            models=tuple((model.id, model.title) for model in models),
            variants=variants,
            engines=tuple(each for each in self.catalog.engines() if each.id in usable),
            gpus=self.catalog.gpus(),
            counts=tuple(sorted(counts)),
            most_context=knowledge.model.model.max_context.value,
        )

    def source(self, identifier: str) -> Source | None:
        """The source of that id; None for what is no source."""
        return self.catalog.source_or_none(identifier)

    def rack(self, question: Question) -> tuple[GpuFacts, Rack | None]:
        """The card and the rack asked about; no rack where only a card is named."""
        if question.on == THIS_MACHINE:
            # The page is of racks; what this machine is like is `doctor`'s to say.
            raise HeavyliftError("WEB001", {"name": "on", "value": question.on})
        return self._planning.rack(question.on)
