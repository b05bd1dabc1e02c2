"""The linter with its facts loaded: what the command line and other programs call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, cached_property
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import FactKind, GpuFacts, ModelFacts
from heavylift.lint.case import Hints, KnownModel, Library, PlanWish
from heavylift.lint.check import Report, cases, lint
from heavylift.lint.hardware import Card, host_memory_bytes, named_racks
from heavylift.lint.said import Said, said_of_plan
from heavylift.plan.rules import find_version
from heavylift.planning import Loaded, Planning
from heavylift.recipe.flags import FlagTable
from heavylift.records.plan import Plan, PlanRequest
from heavylift.units import GIB

_FAST_LINK_GB_PER_S: Final = 100
"""Links between cards from here on are the card's own, below it is the slot."""


class Linting:
    """A catalogue, and texts linted with it."""

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or Catalog()
        self._planning = Planning(self.catalog)

    def lint(
        self,
        text: str,
        *,
        rack: str | None = None,
        model: str | None = None,
        version: str | None = None,
    ) -> Report:
        """What is wrong with the commands of a text. `rack` may be any text that names one;
        one that is not known (see `knows_rack`) leaves out what depends on it.
        """
        hints = Hints(rack=rack, model=model, version=version)
        return lint(text, self.library, hints)

    def said_of_plan(self, text: str, where: str) -> Said:
        """What the command of a text says of a plan.

        Raises PLAN064 where there is none that starts an engine which is planned, PLAN065 where
        several do that say different things, PLAN066 for settings that no plan takes.
        """
        found: list[Said] = []
        for case in cases(text, self.library):
            said = said_of_plan(case)
            if said is not None and said not in found:
                found.append(said)
        if not found:
            raise HeavyliftError("PLAN064", {"path": where})
        if len(found) > 1:
            raise HeavyliftError("PLAN065", {"path": where, "count": len(found)})
        if found[0].not_taken:
            raise HeavyliftError("PLAN066", {"flags": ", ".join(found[0].not_taken)})
        return found[0]

    def knows_rack(self, text: str) -> bool:
        """Whether a text names a known card, a machine's memory, or a rack as a plan takes it."""
        if named_racks(text, self.library.cards) or host_memory_bytes(text) is not None:
            return True
        try:
            self._planning.rack(text)
        except HeavyliftError:
            return False
        return True

    @cached_property
    def library(self) -> Library:
        """Everything commands are judged by. Flag tables are read when an engine needs its own."""
        catalog = self.catalog
        commands = catalog.command_engines()
        abbreviating = {engine.table for engine in commands.engines if engine.abbreviates}
        exact = {engine.table for engine in commands.engines if engine.exact}
        return Library(
            engines=commands.engines,
            devices=commands.devices,
            tables=Loaded(
                catalog.ids("flags"),
                lambda table: FlagTable(
                    catalog.flags(table),
                    abbreviates=table in abbreviating,
                    exact=table in exact,
                ),
            ),
            models=catalog.command_models(),
            cards=(*self._catalogued_cards(), *self._other_cards()),
            overheads=catalog.command_cards().overheads,
            changes=catalog.name_changes(),
            rules=catalog.command_rules(),
            known=self._known,
            plan=self._plan,
        )

    def _catalogued_cards(self) -> Iterator[Card]:
        """Cards with facts of their own. Of shared memory a command may rely on all that the driver
        can be made to give: whether it was, nothing in a command says.
        """
        shares = {share.id: share for share in self.catalog.memory_shares()}
        for gpu in self.catalog.gpus():
            card = _planned_card(gpu)
            share = shares.get(gpu.memory_share or "")
            if share is None:
                yield card
            else:
                sold = int(gpu.memory_nameplate.value * GIB)
                most = max(card.memory_bytes, share.most_bytes(sold))
                yield replace(card, memory_bytes=most, planned=False)

    def _other_cards(self) -> tuple[Card, ...]:
        """Cards without a file of their own. A name that has one by now is left to it."""
        known = set(self.catalog.ids("gpus"))
        return tuple(
            Card(
                id=each.id,
                title=each.names[0],
                names=each.names[1:],
                vendor=each.vendor,
                architecture=each.architecture,
                memory_bytes=int(each.memory_gib * GIB),
                link=each.link,
            )
            for each in self.catalog.command_cards().cards
            if each.id not in known
        )

    @cache  # noqa: B019 - a linter lives as long as its facts
    def _known(self, name: str) -> KnownModel | None:
        """What the facts know of a model by its name alone."""
        knowledge = self._planning.knowledge_of_name(name)
        if knowledge is None:
            return None
        model = knowledge.model.model
        only = model.variants[0] if len(model.variants) == 1 else None
        size = only.bytes_total if only is not None and only.id != "native" else None
        if model.totals is not None and (only is None or only.id == "native"):
            size = model.totals.bytes
        heads, experts = model.dims.get("heads"), model.dims.get("experts")
        narrow = _dim(model, "moe_intermediate_size")
        form = only or next((each for each in model.variants if each.id == "native"), None)
        blocks = (
            {each.group for each in form.quantised if each.scheme == "fp8-block"} if form else ()
        )
        return KnownModel(
            name=name,
            title=model.title,
            context_tokens=model.max_context.value,
            heads=None if heads is None else heads.value,
            experts=None if experts is None else experts.value,
            weights_bytes=size,
            is_assumed=only is not None and only.kind is FactKind.ASSUMED,
            source=model.max_context.source,
            block=max((each for each in blocks if each), default=None),
            expert_widths=(narrow,),
            dense_widths=(
                _dim(model, "intermediate_size") if "dense" in model.layers or not narrow else 0,
                narrow * _dim(model, "shared_experts"),
            ),
        )

    def _plan(self, wish: PlanWish) -> Plan | None:
        """The plan of a wish. Raises what the planner raises."""
        knowledge = (
            self._planning.knowledge(wish.model)
            if wish.model in self.catalog.ids("models")
            else self._planning.knowledge_of_name(wish.model)
        )
        if knowledge is None:
            return None
        gpu = self.catalog.gpu(wish.card)
        per_node = wish.gpus // wish.nodes if wish.nodes else None
        text = f"{wish.nodes}x{per_node}x{gpu.id}" if wish.nodes else f"{wish.gpus}x{gpu.id}"
        _, rack = self._planning.rack(text)
        if rack is None:
            return None
        version = wish.version
        engine = self.catalog.engine(wish.engine)
        known = find_version(engine, version) if version is not None else None
        layout = wish.layout
        return self._planning.plan(
            PlanRequest(
                model=knowledge.model.model.id,
                rack=rack,
                engine=wish.engine,
                engine_version=known.id if known is not None else None,
                variant=wish.variant,
                context_tokens=wish.context_tokens,
                kv_cache_dtype=wish.kv_dtype,
                layout_constraints={}
                if layout is None
                else {
                    "tensor": layout.tensor_parallel_size,
                    "pipeline": layout.pipeline_parallel_size,
                    "data": layout.data_parallel_size,
                    "expert": layout.expert_parallel_size,
                    "decode_context": layout.decode_context_parallel_size,
                },
                gpu_memory_utilization=wish.memory_fraction,
                max_num_batched_tokens=wish.batched_tokens,
                max_num_seqs=wish.sequences,
                moe_backend=wish.moe_backend if wish.moe_backend != "auto" else None,
                vision=False if wish.text_only else None,
            ),
            knowledge,
            with_fixes=False,
        )


def _dim(model: ModelFacts, name: str) -> int:
    """A dimension of a model; 0 where it has none of that name."""
    fact = model.dims.get(name)
    return 0 if fact is None else fact.value


def _planned_card(gpu: GpuFacts) -> Card:
    return Card(
        id=gpu.id,
        title=gpu.title,
        names=(*gpu.aliases, gpu.id),
        vendor=gpu.vendor,
        architecture=gpu.architecture,
        memory_bytes=gpu.memory_visible.value,
        link=_link(gpu),
        planned=True,
    )


def _link(gpu: GpuFacts) -> str:
    if gpu.link_bandwidth is None:
        return "unknown"
    return "fast" if gpu.link_bandwidth.value >= _FAST_LINK_GB_PER_S else "pcie"
