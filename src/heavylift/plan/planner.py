"""From a request to the best plan: over engines when none is named, and over layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import EngineFacts, GpuFacts, NodeFacts
from heavylift.plan.assemble import plan_layout
from heavylift.plan.defaults import resolve
from heavylift.plan.layout import Refusal, candidates, refusal
from heavylift.plan.receipts import mismatch
from heavylift.plan.subject import HOST_VENDOR, ModelKnowledge, Subject
from heavylift.plan.support import UNPUBLISHED, publication_rank
from heavylift.records.plan import (
    Layout,
    Note,
    Plan,
    PlanRequest,
    PlanVerdict,
    Rejected,
    Status,
)
from heavylift.records.receipt import Receipt

_VERDICTS = tuple(PlanVerdict)
_STATUSES = tuple(Status)
# Fits and tight are both yes.
_ANSWERS = {verdict: max(1, index) for index, verdict in enumerate(_VERDICTS)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """A card and the machine it is built into."""

    gpu: GpuFacts
    node: NodeFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Knowledge:
    """Everything a planner may look at: the model, the engines, the cards."""

    model: ModelKnowledge
    engines: Mapping[str, EngineFacts]
    machines: Mapping[str, Machine]


_Criteria = tuple[tuple[str, int], ...]


def _order(subject: Subject, plan: Plan) -> _Criteria:
    """What orders layouts, the deciding first: each with its name, less is better.

    Whether it holds at all; who ran it; whether it was published for this card or one built alike;
    the verdict. A layout that was run and is tight comes before one that fits and was never tried.
    Published ones then go by room for KV. Those nobody published go by what is usually right:
    tensor parallelism as wide as a machine, few pipeline stages, then room. Decode context
    parallelism buys room with speed and is never chosen for its room alone. Where nothing fits,
    the published come first, then the one that misses by least.
    """
    layout = plan.layout
    published = ("unpublished", publication_rank(subject, layout))
    answer = ("answer", _ANSWERS[plan.verdict])
    if plan.verdict is PlanVerdict.DOES_NOT_FIT:
        return (answer, published, ("misses_by_more", -plan.per_gpu.headroom_bytes))
    status = ("status", _STATUSES.index(plan.support.status))
    verdict = ("verdict", _VERDICTS.index(plan.verdict))
    context = ("decode_context", layout.decode_context_parallel_size)
    room = ("less_room", -(plan.capacity.kv_tokens.high or 0))
    stages = ("more_stages", layout.pipeline_parallel_size)
    first = (answer, status, published, verdict)
    if published[1] < UNPUBLISHED:
        return (*first, context, room, stages)
    crosses = int(layout.tensor_parallel_size > subject.rack.gpus_per_node)
    return (
        *first,
        ("crosses_machines", crosses),
        ("narrower", -layout.tensor_parallel_size),
        stages,
        context,
        room,
    )


def best_on_engine(subject: Subject, request: PlanRequest) -> Plan:
    """The best layout for a subject, with every other one and why it lost.

    Raises PLAN030 when the engine refuses every layout that the request allows, PLAN032 when the
    sizes stated make none.
    """
    refused: list[Rejected] = []
    plans: list[Plan] = []
    for layout in candidates(subject, request.layout_constraints):
        no = refusal(subject, layout)
        if no is not None:
            refused.append(_refused(layout, no))
        else:
            plans.append(plan_layout(subject, request, layout))
    if not plans:
        raise _no_layout(subject, refused)
    plans.sort(key=lambda plan: [value for _, value in _order(subject, plan)])
    best, others = plans[0], plans[1:]
    lost = [_lost(subject, other, best) for other in others]
    return replace(best, rejected=tuple(lost + refused))


def _refused(layout: Layout, no: Refusal) -> Rejected:
    return Rejected(layout=layout, code=no.code, params=no.params)


def _lost(subject: Subject, other: Plan, best: Plan) -> Rejected:
    """The first thing in which a layout came second."""
    pairs = zip(_order(subject, other), _order(subject, best), strict=False)
    deciding = next((mine[0] for mine, theirs in pairs if mine != theirs), "less_room")
    code = {
        "answer": f"verdict_{other.verdict}",
        "verdict": f"verdict_{other.verdict}",
        "status": f"status_{other.support.status}",
    }.get(deciding, deciding)
    return Rejected(
        layout=other.layout,
        code=code,
        params={
            "kv_tokens": other.capacity.kv_tokens.high,
            "best_kv_tokens": best.capacity.kv_tokens.high,
            "headroom_bytes": other.per_gpu.headroom_bytes,
            "best": best.layout.label,
            "stages": other.layout.pipeline_parallel_size,
            "tensor": other.layout.tensor_parallel_size,
            "verdict": other.verdict.value,
        },
    )


def _no_layout(subject: Subject, refused: list[Rejected]) -> HeavyliftError:
    if not refused:
        return HeavyliftError(
            "PLAN032", {"rack": subject.rack.label, "gpus": subject.rack.gpu_count}
        )
    # Sizes an engine takes say more than what it does not offer.
    first = next((entry for entry in refused if entry.code == "tensor_size"), refused[0])
    return HeavyliftError(
        "PLAN030",
        {
            "model": subject.model.title,
            "engine": subject.engine.title,
            "rack": subject.rack.label,
            "layout": first.layout.label,
            "refusal": first.code,
            **first.params,
        },
    )


def best_plan(request: PlanRequest, knowledge: Knowledge) -> Plan:
    """The best plan for a request: over the engines when none is named, and over layouts.

    Raises what `resolve` raises; with several engines, an engine that cannot take the request is
    passed over and the error is raised only when none can.
    """
    machine = knowledge.machines[request.rack.gpu]
    failed: HeavyliftError | None = None
    plans = []
    for engine in _engines(request, knowledge, machine.gpu):
        try:
            subject = resolve(request, knowledge.model, engine, machine.gpu, machine.node)
            plans.append(best_on_engine(subject, request))
        except HeavyliftError as error:
            if request.engine is not None:
                raise
            failed = failed or error
    if not plans:
        raise failed or HeavyliftError("PLAN031", {"model": knowledge.model.model.title})
    # Equal plans keep the order of the engines: that of the model's own list.
    return min(plans, key=_engine_order)


def plan_on_layout(
    request: PlanRequest, knowledge: Knowledge, engine: str, layout: Layout
) -> Plan | None:
    """The plan of a request on one engine and layout, without a search; None when the engine
    refuses that layout.

    For answers while an input is being moved: what a search then finds may be another layout.
    Raises what `resolve` raises.
    """
    machine = knowledge.machines[request.rack.gpu]
    subject = resolve(
        request, knowledge.model, knowledge.engines[engine], machine.gpu, machine.node
    )
    offered = candidates(subject, request.layout_constraints)
    if layout not in offered or refusal(subject, layout) is not None:
        return None
    return plan_layout(subject, request, layout)


def with_receipt(plan: Plan, receipt: Receipt, knowledge: Knowledge) -> Plan:
    """The plan with a receipt's measured terms in place of assumed and unknown ones.

    A receipt of something else changes nothing and is named in a note.
    """
    other = mismatch(receipt, plan)
    if other is not None:
        note = Note(code="receipt_of_other", params={"what": other})
        return replace(plan, notes=(*plan.notes, note))
    machine = knowledge.machines[plan.rack.gpu]
    subject = resolve(
        plan.request,
        knowledge.model,
        knowledge.engines[plan.engine],
        machine.gpu,
        machine.node,
        receipt=receipt,
    )
    measured = plan_layout(subject, plan.request, plan.layout)
    return replace(measured, rejected=plan.rejected)


def _engine_order(plan: Plan) -> tuple[int, int, int]:
    verdict = _VERDICTS.index(plan.verdict)
    if plan.verdict is PlanVerdict.DOES_NOT_FIT:
        return (verdict, 0, 0)
    return (_ANSWERS[plan.verdict], _STATUSES.index(plan.support.status), verdict)


def _engines(request: PlanRequest, knowledge: Knowledge, gpu: GpuFacts) -> list[EngineFacts]:
    """The engine named, or those that take the variant named, or the model's own checkpoint, as its
    facts list them.

    On a host without a card: the engines that split whole layers, which is what runs on a CPU.
    """
    if request.engine is not None:
        return [knowledge.engines[request.engine]]
    asked = None if request.variant is None else knowledge.model.variant(request.variant)
    if asked is not None:
        return [knowledge.engines[name] for name in asked.engines if name in knowledge.engines]
    if gpu.vendor == HOST_VENDOR:
        return [
            engine
            for engine in knowledge.engines.values()
            if any(rule.splits == "layers" for rule in engine.layouts)
        ]
    return [knowledge.engines[name] for name in knowledge.model.model.variants[0].engines]
