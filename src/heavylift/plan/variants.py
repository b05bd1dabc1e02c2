"""The table of a model's published forms, against what somebody has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from heavylift.errors import HeavyliftError, Scalar
from heavylift.facts.schema import VariantFacts
from heavylift.facts.variant_schema import VariantReportBook, VariantReportFacts
from heavylift.plan.have import Have
from heavylift.plan.memory import TIGHT_RATIO
from heavylift.plan.planner import Choice, Knowledge, Machine, choose, none_can_hold, subjects
from heavylift.plan.rack import count_rack, sold_counts
from heavylift.records.plan import Capacity, Note, PlanRequest, Rack, Status
from heavylift.records.variants import Holds, Proof, SmallestRack, VariantRow, VariantTable

_MOST_NODES: Final = 16
_PROOFS: Final = tuple(Proof)
_RAN: Final = (Status.VERIFIED,)


def variant_table(knowledge: Knowledge, book: VariantReportBook, have: Have | None) -> VariantTable:
    """Every published form: those reported on, and those only the model's facts list."""
    reports = with_unreported(knowledge, book)
    racks = _racks(knowledge)
    rows = [_row(knowledge, report, reports, racks, have) for report in reports]
    rows.sort(key=lambda row: -(row.bytes_total or row.least_memory_bytes or 0))
    model = knowledge.model.model
    return VariantTable(
        model=model.id,
        title=model.title,
        rows=tuple(rows),
        have=None if have is None else have.text,
        have_params={} if have is None else _params(have),
        choices=() if have is None else tuple(row.id for row in _choices(rows)),
    )


def _params(have: Have) -> dict[str, Scalar]:
    setting = None if have.share is None else have.share.setting
    return {
        "memory_bytes": have.memory_bytes,
        "unasked_bytes": have.unasked_bytes,
        "setting": setting,
        "disk": have.disk,
    }


def with_unreported(
    knowledge: Knowledge, book: VariantReportBook
) -> tuple[VariantReportFacts, ...]:
    """The reports, and a bare one for every variant of the model's facts that none speaks of."""
    spoken_of = {report.variant for report in book.reports}
    engines = knowledge.engines
    bare = tuple(
        VariantReportFacts(
            id=variant.id,
            title=variant.title,
            form=variant.format,
            engines=tuple(engines[name].title for name in variant.engines if name in engines),
            host="gpus",
            variant=variant.id,
            plans_on=variant.engines[0],
            bytes_total=_size(knowledge, variant),
            kind=variant.kind,
            source=variant.source,
            as_of=variant.as_of,
        )
        for variant in knowledge.model.model.variants
        if variant.id not in spoken_of and variant.engines
    )
    return (*book.reports, *bare)


def _size(knowledge: Knowledge, variant: VariantFacts) -> int | None:
    inventory = knowledge.model.inventories.get(variant.id)
    return variant.bytes_total if inventory is None else inventory.bytes_total


def _row(
    knowledge: Knowledge,
    report: VariantReportFacts,
    reports: Sequence[VariantReportFacts],
    racks: Sequence[Rack],
    have: Have | None,
) -> VariantRow:
    holds: Holds | None = None
    because: Note | None = None
    context: int | None = None
    proof = Proof.NONE
    if have is not None:
        holds, because, context = _judged(knowledge, report, have)
        ran = because.params.get("status") in _RAN
        proof = Proof.PLANNED if ran else Proof.SEEN if _seen(report, have) else Proof.NONE
    return VariantRow(
        id=report.id,
        title=report.title,
        form=report.form,
        engines=report.engines,
        host=report.host,
        bytes_total=report.bytes_total,
        least_memory_bytes=report.least_memory_bytes,
        hardware=report.hardware,
        tokens_per_s_low=report.tokens_per_s_low,
        tokens_per_s_high=report.tokens_per_s_high,
        quality=report.quality,
        caution=report.caution,
        unusable=report.unusable,
        dominated_by=dominated_by(report, reports),
        confidence=report.confidence,
        source=report.source,
        as_of=report.as_of.isoformat(),
        smallest_rack=_smallest(knowledge, report, racks),
        holds=holds,
        because=because,
        max_context_tokens=context,
        proof=proof,
    )


def _seen(report: VariantReportFacts, have: Have) -> bool:
    """True when it was seen, with a speed or a measure of quality, on a machine of this kind that
    is no larger.
    """
    ran = report.ran_memory_bytes
    if report.host == "stream":
        return report.tokens_per_s_high is not None and report.confidence != "claimed"
    seen = report.tokens_per_s_high is not None or report.quality is not None
    alike = (report.host == "unified") == (have.share is not None)
    return seen and alike and ran is not None and ran <= have.sold_bytes


def dominated_by(report: VariantReportFacts, reports: Iterable[VariantReportFacts]) -> str | None:
    """The form that leaves no reason for this one: named by the facts, or found by the same measure
    of quality at no more bytes, one of the two better.
    """
    if report.dominated_by is not None:
        return report.dominated_by
    score, size = report.quality_score, report.bytes_total
    if score is None or size is None:
        return None
    for other in reports:
        if other.unusable or other.quality_metric != report.quality_metric:
            continue
        if other.quality_score is None or other.bytes_total is None:
            continue
        no_worse = other.quality_score >= score and other.bytes_total <= size
        if no_worse and (other.quality_score > score or other.bytes_total < size):
            return other.id
    return None


_Judgement = tuple[Holds, Note, int | None]


def _judged(knowledge: Knowledge, report: VariantReportFacts, have: Have) -> _Judgement:
    vendors = ", ".join(report.vendors)
    if report.vendors and have.vendor is not None and have.vendor not in report.vendors:
        return Holds.NO, Note(code="other_vendor", params={"vendors": vendors}), None
    if report.host == "stream":
        return (*_streamed(report, have), None)
    need = report.bytes_total or report.least_memory_bytes
    if need is None:
        return Holds.UNKNOWN, Note(code="no_size"), None
    if need > have.memory_bytes:
        sizes: dict[str, Scalar] = {"need": need, "have": have.memory_bytes}
        return Holds.NO, Note(code="too_large", params=sizes), None
    if report.vendors and have.vendor is None:
        return Holds.UNKNOWN, Note(code="needs_vendor", params={"vendors": vendors}), None
    can_plan = report.form == "gguf" or have.vendor is not None
    planned = None
    if report.variant is not None and can_plan and not report.pruned:
        planned = _planned(knowledge, report, have)
    return planned or (*_by_weights(report, have, need), None)


def _by_weights(report: VariantReportFacts, have: Have, need: int) -> tuple[Holds, Note]:
    """What can be said where nobody worked out more than the weights."""
    sizes: dict[str, Scalar] = {"need": need, "have": have.memory_bytes}
    if have.is_host and report.form != "gguf":
        return Holds.UNKNOWN, Note(code="no_gpu")
    if report.bytes_total is None:
        return Holds.TIGHT, Note(code="ran_in", params=sizes)
    code = "weights_raised" if need > have.unasked_bytes else "weights_fit"
    tight = need > (1 - TIGHT_RATIO) * have.memory_bytes
    return (Holds.TIGHT if tight else Holds.WEIGHTS), Note(code=code, params=sizes)


def _streamed(report: VariantReportFacts, have: Have) -> tuple[Holds, Note]:
    least = report.least_memory_bytes or 0
    sizes: dict[str, Scalar] = {
        "need": least,
        "have": have.memory_bytes,
        "disk": report.bytes_total,
    }
    if not have.is_one_memory:
        return Holds.UNKNOWN, Note(code="host_memory_unknown", params=sizes)
    if least > have.memory_bytes:
        return Holds.NO, Note(code="too_little_memory", params=sizes)
    if not have.disk:
        return Holds.UNKNOWN, Note(code="needs_disk", params=sizes)
    return Holds.STREAMS, Note(code="streams", params=sizes)


def _planned(knowledge: Knowledge, report: VariantReportFacts, have: Have) -> _Judgement | None:
    """What a plan says; None where none can be made."""
    choice = _choice(knowledge, report, have.rack, have.machine)
    if choice is None:
        return None
    best = choice.best
    plan = choice.plan()
    context = plan.capacity.max_context_tokens.high
    sizes: dict[str, Scalar] = {
        "engine": plan.engine_title,
        "need": plan.per_gpu.known_total_bytes,
        "have": plan.per_gpu.budget_bytes,
        "context": context,
        "status": plan.support.status.value,
    }
    if best.fits is Capacity.DOES_NOT_FIT:
        return Holds.NO, Note(code="planned_short", params=sizes), None
    if best.support.status in (Status.UNSUPPORTED, Status.BROKEN):
        return Holds.NO, Note(code="engine_refuses", params=sizes), None
    raised = (report.bytes_total or 0) > have.unasked_bytes
    note = Note(code="planned_raised" if raised else "planned", params=sizes)
    tight = best.fits is Capacity.TIGHT
    return (Holds.TIGHT if tight else Holds.FITS), note, context


def _choice(
    knowledge: Knowledge, report: VariantReportFacts, rack: Rack, machine: Machine
) -> Choice | None:
    known = replace(knowledge, machines={rack.gpu: machine})
    engine = report.plans_on if report.form == "gguf" else None
    request = PlanRequest(
        model=knowledge.model.model.id,
        rack=rack,
        variant=report.variant,
        engine=engine,
        concurrency=1,
    )
    try:
        found = subjects(request, known)
        return None if none_can_hold(found) else choose(request, known, found)
    except HeavyliftError:
        return None


def _racks(knowledge: Knowledge) -> list[Rack]:
    """Every rack of the catalogue as it is sold, the least memory first."""
    racks = [
        (machine.gpu.memory_visible.value * count, count_rack(machine.gpu, machine.node, count))
        for machine in knowledge.machines.values()
        for count in sold_counts(machine.node, _MOST_NODES)
    ]
    racks.sort(key=lambda pair: (pair[0], pair[1].gpu_count))
    return [rack for _, rack in racks]


def _smallest(
    knowledge: Knowledge, report: VariantReportFacts, racks: Sequence[Rack]
) -> SmallestRack | None:
    """The rack with the least memory that holds a form; None for those that stay on disk."""
    need = report.bytes_total
    if need is None or report.host == "stream":
        return None
    planned = report.variant is not None and not report.pruned
    for rack in racks:
        machine = knowledge.machines[rack.gpu]
        memory = machine.gpu.memory_visible.value * rack.gpu_count
        if memory < need or (report.vendors and machine.gpu.vendor not in report.vendors):
            continue
        if not planned:
            return SmallestRack(rack=rack.label, memory_bytes_total=memory, weights_alone=True)
        choice = _choice(knowledge, report, rack, machine)
        if choice is None or choice.best.fits is Capacity.DOES_NOT_FIT:
            continue
        if choice.best.support.status in (Status.UNSUPPORTED, Status.BROKEN):
            continue
        return SmallestRack(rack=rack.label, memory_bytes_total=memory, weights_alone=False)
    return None


def _choices(rows: Iterable[VariantRow]) -> list[VariantRow]:
    """What to take: resident before streamed; what was seen to run on such a machine first; then
    the most bytes kept, then the faster.
    """
    taken = [row for row in rows if row.is_choice]
    taken.sort(
        key=lambda row: (
            row.holds is Holds.STREAMS,
            _PROOFS.index(row.proof),
            -(row.bytes_total or row.least_memory_bytes or 0)
            if row.holds is not Holds.STREAMS
            else 0,
            -(row.tokens_per_s_high or 0.0),
        )
    )
    return taken
