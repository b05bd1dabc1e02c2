"""The published forms of a model, each with the smallest rack that holds it."""

from __future__ import annotations

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import GpuFacts, VariantFacts
from heavylift.plan.planner import Knowledge
from heavylift.reciping.shelf import Shelf
from heavylift.records.plan import Plan, PlanRequest, PlanVerdict, Rack
from heavylift.records.recipe import VariantRow, VariantTable


def variants(shelf: Shelf, model: str) -> VariantTable:
    """Every published form of a model, in the order of its facts."""
    knowledge = shelf.planning.knowledge(model)
    facts = knowledge.model.model
    return VariantTable(
        model=facts.id,
        title=facts.title,
        rows=tuple(_row(shelf, knowledge, variant) for variant in facts.variants),
    )


def _row(shelf: Shelf, knowledge: Knowledge, variant: VariantFacts) -> VariantRow:
    inventory = knowledge.model.inventories.get(variant.id)
    counted = None if inventory is None else inventory.bytes_total
    best = _smallest(shelf, knowledge, variant)
    return VariantRow(
        id=variant.id,
        title=variant.title,
        bytes_total=variant.bytes_total or counted,
        engines=variant.engines,
        repo=variant.repo,
        note=variant.note,
        source=variant.source,
        as_of=variant.as_of.isoformat(),
        rack=None if best is None else best.rack.label,
        rack_engine=None if best is None else best.engine,
        verdict=None if best is None else best.verdict,
        status=None if best is None else best.support.status,
    )


def _smallest(shelf: Shelf, knowledge: Knowledge, variant: VariantFacts) -> Plan | None:
    """The plan of the least memory in all that holds a variant, with the first engine of its list
    that can be started.
    """
    engine = next((name for name in variant.engines if name in shelf.catalog.serving_ids()), None)
    if engine is None:
        return None
    found = [_on(shelf, knowledge, variant, engine, gpu) for gpu in shelf.catalog.gpus()]
    refused = (PlanVerdict.DOES_NOT_FIT, PlanVerdict.UNSUPPORTED)
    return min(
        (plan for plan in found if plan is not None and plan.verdict not in refused),
        key=lambda plan: (plan.per_gpu.visible_bytes * plan.rack.gpu_count, plan.rack.gpu_count),
        default=None,
    )


def _on(
    shelf: Shelf, knowledge: Knowledge, variant: VariantFacts, engine: str, gpu: GpuFacts
) -> Plan | None:
    def ask(rack: Rack) -> PlanRequest:
        return PlanRequest(
            model=knowledge.model.model.id, rack=rack, engine=engine, variant=variant.id
        )

    try:
        return shelf.planning.plan(ask, knowledge, gpu=gpu, with_fixes=False)
    except HeavyliftError:
        # No count of this card has a layout for the engine: another card may.
        return None
