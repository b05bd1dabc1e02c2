"""From a subject and a layout to a plan; from a request to the best plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import EngineFacts, GpuFacts, NodeFacts
from heavylift.plan.cache import state_parts_of, token_parts
from heavylift.plan.capacity import capacity
from heavylift.plan.defaults import resolve
from heavylift.plan.layout import Refusal, candidates, refusal
from heavylift.plan.memory import capacity_verdict, limits, memory, stage_rows
from heavylift.plan.subject import HOST_VENDOR, ModelKnowledge, Subject
from heavylift.plan.support import UNPUBLISHED, publication_rank, ran_as_published, support
from heavylift.plan.weights import expert_split
from heavylift.records.plan import (
    Capacity,
    HostNeeds,
    Layout,
    Note,
    PerGpu,
    Plan,
    PlanRequest,
    PlanVerdict,
    Rejected,
    Segment,
    Status,
    Support,
    Totals,
)
from heavylift.records.ranges import Interval
from heavylift.records.receipt import Receipt

_VERDICTS = (
    PlanVerdict.FITS,
    PlanVerdict.TIGHT,
    PlanVerdict.UNKNOWN,
    PlanVerdict.UNSUPPORTED,
    PlanVerdict.DOES_NOT_FIT,
)
_STATUSES = tuple(Status)


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """A card and the machine it is built into."""

    gpu: GpuFacts
    node: NodeFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Knowledge:
    """Everything a planner may look at: the model, the engines, the cards. Nothing is read later."""

    model: ModelKnowledge
    engines: Mapping[str, EngineFacts]
    machines: Mapping[str, Machine]


def plan_layout(subject: Subject, request: PlanRequest, layout: Layout) -> Plan:
    """The plan of one layout, without search or fixes."""
    account = memory(subject, layout)
    fits = capacity_verdict(account)
    known = support(subject, layout)
    verdict = _verdict(subject, layout, fits, known)
    worst = account.worst
    pool = account.budgets[0]
    inside = worst.only(pool.inside)
    inventory = subject.inventory
    bytes_total = (
        inventory.bytes_total if inventory is not None else (subject.variant.bytes_total or 0)
    )
    replicas = layout.tensor_parallel_size * layout.data_parallel_size
    return Plan(
        request=request,
        model=subject.model.id,
        title=subject.model.title,
        variant=subject.variant.id,
        engine=subject.engine.id,
        engine_version=subject.version_text,
        rack=subject.rack,
        layout=layout,
        context_tokens=subject.context_tokens,
        output_tokens=subject.output_tokens,
        concurrency=subject.concurrency,
        kv_cache_dtype=subject.kv_dtype,
        max_num_seqs=subject.max_num_seqs,
        max_num_batched_tokens=subject.max_num_batched_tokens,
        moe_backend=subject.moe_backend,
        vision=subject.vision,
        verdict=verdict,
        capacity_verdict=fits,
        support=known,
        per_gpu=PerGpu(
            weights_bytes=worst.of(Segment.WEIGHTS),
            kv_cache_bytes=worst.of(Segment.KV_CACHE),
            recurrent_state_bytes=worst.of(Segment.RECURRENT_STATE),
            workspace_bytes=worst.of(Segment.WORKSPACE),
            outside_pool_bytes=worst.of(Segment.OUTSIDE_POOL),
            known_total_bytes=worst.known_bytes,
            certain_total_bytes=worst.certain_bytes,
            high_total_bytes=worst.high_bytes,
            budget_bytes=pool.bytes,
            visible_bytes=subject.gpu.memory_visible.value,
            headroom_bytes=pool.bytes - inside.known_bytes,
        ),
        terms=worst.terms,
        budgets=account.budgets,
        stages=stage_rows(account),
        capacity=capacity(subject, layout, account),
        kv_bytes_per_token=sum(
            part.layer_bytes * len(part.layers) for part in token_parts(subject, layout)
        ),
        state_bytes_per_sequence=sum(
            part.layer_bytes * len(part.layers) for part in state_parts_of(subject, layout)
        ),
        page_tokens=account.cache.page_tokens,
        page_bytes=account.cache.page_bytes,
        limits=limits(account),
        fixes=(),
        defaults=subject.defaults,
        rejected=(),
        notes=_notes(subject, layout, fits, known),
        totals=Totals(
            weights_bytes_total=replicas * sum(a.of(Segment.WEIGHTS).low for a in account.accounts),
            kv_cache_bytes_total=replicas
            * sum(a.of(Segment.KV_CACHE).low for a in account.accounts),
            recurrent_state_bytes_total=replicas
            * sum(a.of(Segment.RECURRENT_STATE).low for a in account.accounts),
        ),
        host=HostNeeds(
            disk_bytes=bytes_total,
            load_bytes_per_node=bytes_total if layout.pipeline_parallel_size == 1 else None,
            host_ram_bytes=Interval(low=0, high=None),
        ),
        total_parameters=inventory.params_total if inventory is not None else 0,
        active_parameters=(
            inventory.active_params(subject.model) if inventory is not None else None
        ),
        checkpoint_bytes=bytes_total,
        checkpoint_tensors=inventory.tensors if inventory is not None else None,
        receipt=None if subject.receipt is None else subject.receipt.taken_at,
    )


def _verdict(subject: Subject, layout: Layout, fits: Capacity, known: Support) -> PlanVerdict:
    """The first that applies of does_not_fit, unsupported, unknown, tight, fits.

    A layout whose source says it ran but whose bytes we cannot place is unknown: one of the two
    is wrong, and both are shown.
    """
    if fits is Capacity.DOES_NOT_FIT:
        ran = ran_as_published(subject, layout)
        return PlanVerdict.DOES_NOT_FIT if ran is None else PlanVerdict.UNKNOWN
    if known.status in (Status.UNSUPPORTED, Status.BROKEN):
        return PlanVerdict.UNSUPPORTED
    if known.status is Status.UNKNOWN:
        return PlanVerdict.UNKNOWN
    return PlanVerdict(fits.value)


def _notes(subject: Subject, layout: Layout, fits: Capacity, known: Support) -> tuple[Note, ...]:
    notes = []
    if subject.rack.reading is not None:
        notes.append(
            Note(
                code=f"rack_{subject.rack.reading}",
                params={
                    "text": subject.rack.text,
                    "nodes": subject.rack.nodes,
                    "per_node": subject.rack.gpus_per_node,
                },
            )
        )
    experts = expert_split(subject, layout)
    if experts is not None and experts.is_padded:
        notes.append(
            Note(
                code="expert_padding",
                params={
                    "inner": experts.inner,
                    "padded": experts.width * experts.ranks,
                    "width": experts.width,
                    "ranks": experts.ranks,
                    "backend": subject.moe_backend or "?",
                    "engine": subject.engine.title,
                    "version": subject.version_text,
                },
            )
        )
    if layout.pipeline_parallel_size > 1 and layout.tensor_parallel_size > 1:
        notes.append(
            Note(code="pipeline_bubbles", params={"stages": layout.pipeline_parallel_size})
        )
    ran = ran_as_published(subject, layout)
    if fits is Capacity.DOES_NOT_FIT and ran is not None:
        notes.append(
            Note(
                code="published_but_no_room",
                params={"recipe": ran.id, "source": ran.source, "as_of": ran.as_of.isoformat()},
            )
        )
    if known.conflict is not None and known.note != "version_unread":
        notes.append(Note(code="sources_differ", params={"other": known.conflict}))
    if not subject.version_is_read:
        notes.append(
            Note(
                code="version_unread",
                params={
                    "version": subject.version_text,
                    "taken": subject.scope.version.id,
                    "engine": subject.engine.title,
                },
            )
        )
    if fits is not Capacity.DOES_NOT_FIT and known.status is not Status.VERIFIED:
        notes.append(Note(code="no_proof_of_run"))
    elif fits is not Capacity.DOES_NOT_FIT:
        notes.append(Note(code="no_proof_of_traffic"))
    rule = subject.scope.first(subject.engine.caches)
    if rule is not None and rule.context_shared and subject.concurrency > 1:
        notes.append(
            Note(
                code="context_shared",
                params={
                    "context": subject.context_tokens,
                    "slots": subject.concurrency,
                    "each": subject.context_tokens // subject.concurrency,
                },
            )
        )
    return tuple(notes)


# --- search --------------------------------------------------------------------------------------


def _order(subject: Subject, plan: Plan) -> tuple[int, ...]:
    """How layouts are ordered: verdict; who ran it; whether it was published for this card or any.

    Published ones then go by room for KV. Those nobody published go by what is usually right:
    tensor parallelism as wide as a machine, few pipeline stages, then room. Where nothing fits, the
    published come first, then the one that misses by least.
    """
    layout = plan.layout
    published = publication_rank(subject, layout)
    verdict = _VERDICTS.index(plan.verdict)
    if plan.verdict is PlanVerdict.DOES_NOT_FIT:
        return (verdict, published, -plan.per_gpu.headroom_bytes)
    room = -(plan.capacity.kv_tokens.high or 0)
    stages = layout.pipeline_parallel_size
    status = _STATUSES.index(plan.support.status)
    if published == UNPUBLISHED:
        crosses = int(layout.tensor_parallel_size > subject.rack.gpus_per_node)
        return (verdict, status, published, crosses, -layout.tensor_parallel_size, stages, room)
    return (verdict, status, published, room, stages)


def best_on_engine(subject: Subject, request: PlanRequest) -> Plan:
    """The best layout for a subject, with every other one and why it lost.

    Raises PLAN030 when the engine refuses every layout that the request allows.
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
    plans.sort(key=lambda plan: _order(subject, plan))
    best, others = plans[0], plans[1:]
    lost = [_lost(other, best) for other in others]
    return replace(best, rejected=tuple(lost + refused))


def _refused(layout: Layout, no: Refusal) -> Rejected:
    return Rejected(layout=layout, code=no.code, params=no.params)


def _lost(other: Plan, best: Plan) -> Rejected:
    if other.verdict is not best.verdict:
        code = f"verdict_{other.verdict}"
    elif other.support.status is not best.support.status:
        code = f"status_{other.support.status}"
    else:
        code = "less_room"
    return Rejected(
        layout=other.layout,
        code=code,
        params={
            "kv_tokens": other.capacity.kv_tokens.high,
            "best_kv_tokens": best.capacity.kv_tokens.high,
            "headroom_bytes": other.per_gpu.headroom_bytes,
            "verdict": other.verdict.value,
        },
    )


def _no_layout(subject: Subject, refused: list[Rejected]) -> HeavyliftError:
    first = refused[0] if refused else None
    return HeavyliftError(
        "PLAN030",
        {
            "model": subject.model.title,
            "engine": subject.engine.title,
            "rack": subject.rack.label,
            "layout": first.layout.label if first else "",
            "reason": first.code if first else "world_size",
            **({} if first is None else first.params),
        },
    )


def best_plan(
    request: PlanRequest, knowledge: Knowledge, *, receipt: Receipt | None = None
) -> Plan:
    """The best plan for a request: over the engines when none is named, and over layouts.

    Raises what `resolve` raises; with several engines, an engine that cannot take the request is
    passed over and the error is raised only when none can.
    """
    machine = knowledge.machines[request.rack.gpu]
    failed: HeavyliftError | None = None
    plans = []
    for engine in _engines(request, knowledge, machine.gpu):
        try:
            subject = resolve(
                request, knowledge.model, engine, machine.gpu, machine.node, receipt=receipt
            )
            plans.append(best_on_engine(subject, request))
        except HeavyliftError as error:
            if request.engine is not None:
                raise
            failed = failed or error
    if not plans:
        raise failed or HeavyliftError("PLAN031", {"model": knowledge.model.model.title})
    # Equal plans keep the order of the engines: that of the model's own list.
    return min(plans, key=_engine_order)


def _engine_order(plan: Plan) -> tuple[int, int]:
    if plan.verdict is PlanVerdict.DOES_NOT_FIT:
        return (_VERDICTS.index(plan.verdict), 0)
    return (_VERDICTS.index(plan.verdict), _STATUSES.index(plan.support.status))


def _engines(request: PlanRequest, knowledge: Knowledge, gpu: GpuFacts) -> list[EngineFacts]:
    """The engine named, or those that take the model's own checkpoint, as its facts list them.

    On a host without a card: the engines that split whole layers, which is what runs on a CPU.
    """
    if request.engine is not None:
        return [knowledge.engines[request.engine]]
    if gpu.vendor == HOST_VENDOR:
        return [
            engine
            for engine in knowledge.engines.values()
            if any(rule.splits == "layers" for rule in engine.layouts)
        ]
    return [knowledge.engines[name] for name in knowledge.model.model.variants[0].engines]
