"""The planner with its facts loaded: what the command line, the pages and other programs call.

`plan` itself is pure and is handed everything; here the files are found and read, a model may be an
id, a name or a folder, and a rack may be `this-machine`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from heavylift.checkpoint.inventory import from_facts
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import EngineFacts, Fact, FactKind, GpuFacts, ModelFacts, NodeFacts
from heavylift.plan import compare as comparing
from heavylift.plan.fixes import fixes
from heavylift.plan.planner import Knowledge, Machine, best_plan, with_receipt
from heavylift.plan.rack import parse_rack, resolve_rack
from heavylift.plan.subject import HOST_VENDOR, ModelKnowledge
from heavylift.records.plan import Capacity, Plan, PlanRequest, Rack
from heavylift.records.receipt import Receipt

THIS_MACHINE: Final = "this-machine"

T = TypeVar("T")
V = TypeVar("V", int, float, str)


class Loaded(Mapping[str, T]):
    """A mapping from ids to facts that reads a file when its entry is asked for."""

    def __init__(self, ids: tuple[str, ...], load: Callable[[str], T]) -> None:
        self._ids = ids
        self._load = load

    def __getitem__(self, key: str) -> T:
        if key not in self._ids:
            raise KeyError(key)
        return self._load(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


class Planning:
    """A catalogue and what is asked of it."""

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or Catalog()

    def knowledge(self, model: str) -> Knowledge:
        """Everything a plan of `model` may look at. Raises FACT010 for an unknown name."""
        return self.knowledge_of(self.catalog.model(model))

    def knowledge_of(self, facts: ModelFacts) -> Knowledge:
        """Everything a plan of a model may look at whose facts are at hand."""
        family = self.catalog.family(facts.family)
        inventories = {
            variant.id: from_facts(facts, family, variant)
            for variant in facts.variants
            if variant.bytes_total is None
        }
        return Knowledge(
            model=ModelKnowledge(
                model=facts,
                family=family,
                book=self.catalog.recipes(facts.id),
                inventories=inventories,
            ),
            engines=Loaded(self.catalog.ids("engines"), self._engine),
            machines=self._machines,
        )

    def rack(self, text: str) -> tuple[GpuFacts, Rack | None]:
        """The card and the rack a text names; no rack when only a card was named.

        Raises PLAN001 to PLAN003 for a text that is no rack, FACT011 for an unknown card.
        """
        if text == THIS_MACHINE:
            gpu, node = self._host
            return gpu, resolve_rack(parse_rack(f"1x{THIS_MACHINE}"), gpu, node)
        parsed = parse_rack(text)
        gpu = self.catalog.gpu(parsed.gpu)
        return gpu, resolve_rack(parsed, gpu, self.catalog.node(gpu.node))

    def engine(self, name: str | None) -> str | None:
        """The id of the engine of that name. Raises FACT012 for an unknown one."""
        return None if name is None else self.catalog.engine(name).id

    def plan(
        self,
        request: PlanRequest | Callable[[Rack], PlanRequest],
        knowledge: Knowledge,
        *,
        gpu: GpuFacts | None = None,
        receipt: Receipt | None = None,
        with_fixes: bool = True,
    ) -> Plan:
        """The best plan of a request, with its nearest fixes.

        For a card without a count `request` is a function of the rack: racks are tried from one
        GPU upwards, and the smallest that holds the model is taken, or the largest tried.
        """
        if isinstance(request, PlanRequest):
            found = best_plan(request, knowledge)
        else:
            if gpu is None:
                raise TypeError(gpu)
            found = self._smallest(request, knowledge, gpu)
        if receipt is not None:
            found = with_receipt(found, receipt, knowledge)
        if not with_fixes:
            return found
        return replace(found, fixes=fixes(found, knowledge))

    def compare(
        self,
        racks: tuple[str, ...],
        build: Callable[[Rack], PlanRequest],
        knowledge: Knowledge,
    ) -> comparing.Comparison:
        """A row per rack text, in order."""
        rows = []
        for text in racks:
            gpu, rack = self.rack(text)
            plan = (
                self._smallest(build, knowledge, gpu)
                if rack is None
                else best_plan(build(rack), knowledge)
            )
            rows.append(comparing.row(replace(plan, fixes=fixes(plan, knowledge)), knowledge))
        return comparing.Comparison(
            model=knowledge.model.model.id, title=knowledge.model.model.title, rows=tuple(rows)
        )

    def _smallest(
        self,
        build: Callable[[Rack], PlanRequest],
        knowledge: Knowledge,
        gpu: GpuFacts,
    ) -> Plan:
        found: Plan | None = None
        failed: HeavyliftError | None = None
        for size in comparing.rack_sizes(knowledge, gpu.id, text=gpu.title):
            rack = replace(size, reading="smallest_count")
            try:
                found = best_plan(build(rack), knowledge)
            except HeavyliftError as error:
                # A count at which no layout exists is passed over; the next may have one.
                failed = error
                continue
            if found.capacity_verdict is not Capacity.DOES_NOT_FIT:
                return found
        if found is None:
            raise failed or HeavyliftError("PLAN031", {"model": knowledge.model.model.title})
        return found

    # --- loading ---------------------------------------------------------------------------------

    def _engine(self, identifier: str) -> EngineFacts:
        return self.catalog.engine(identifier)

    @cached_property
    def _machines(self) -> Mapping[str, Machine]:
        return Loaded((*self.catalog.ids("gpus"), THIS_MACHINE), self._machine)

    def _machine(self, identifier: str) -> Machine:
        if identifier == THIS_MACHINE:
            gpu, node = self._host
            return Machine(gpu=gpu, node=node)
        gpu = self.catalog.gpu(identifier)
        return Machine(gpu=gpu, node=self.catalog.node(gpu.node))

    @cached_property
    def _host(self) -> tuple[GpuFacts, NodeFacts]:
        """This machine without a card, measured now."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        as_of = datetime.now(UTC).date()

        def measured(value: V, unit: str) -> Fact[V]:
            return Fact(
                value=value, unit=unit, kind=FactKind.MEASURED, source=THIS_MACHINE, as_of=as_of
            )

        gpu = GpuFacts(
            id=THIS_MACHINE,
            title=THIS_MACHINE,
            vendor=HOST_VENDOR,
            architecture=os.uname().machine,
            aliases=(),
            memory_nameplate=measured(memory / 10**9, "GB"),
            memory_visible=measured(memory, "bytes"),
            memory_bandwidth=measured(0.0, "TB/s"),
            link_bandwidth=None,
            native_formats=measured("", "names"),
            node=THIS_MACHINE,
        )
        node = NodeFacts(
            id=THIS_MACHINE,
            title=THIS_MACHINE,
            gpu=THIS_MACHINE,
            gpus_per_node=measured(1, "GPUs"),
            gpus_per_link_domain=measured(1, "GPUs"),
        )
        return gpu, node


def is_folder(model: str) -> bool:
    """True when a model argument names something on disk rather than in the catalogue."""
    return os.sep in model and Path(model).exists()
