"""The plan of one layout: the account, its verdict, its inverse, and what is known of it."""

from __future__ import annotations

from heavylift.plan.cache_parts import bytes_per_token, state_parts_of, token_parts
from heavylift.plan.capacity import capacity
from heavylift.plan.memory import Memory, capacity_verdict, limits, memory, stage_rows
from heavylift.plan.notes import notes
from heavylift.plan.subject import Subject
from heavylift.plan.support import ran_as_published, support
from heavylift.records.plan import (
    Capacity,
    HostNeeds,
    Layout,
    PerGpu,
    Plan,
    PlanRequest,
    PlanVerdict,
    Segment,
    Status,
    Support,
    Totals,
)
from heavylift.records.ranges import Interval


def plan_layout(subject: Subject, request: PlanRequest, layout: Layout) -> Plan:
    """The plan of one layout, without search or fixes."""
    account = memory(subject, layout)
    fits = capacity_verdict(account)
    known = support(subject, layout)
    verdict = _verdict(subject, layout, fits, known)
    inventory = subject.inventory
    size = _checkpoint_bytes(subject)
    return Plan(
        request=request,
        model=subject.model.id,
        title=subject.model.title,
        variant=subject.variant.id,
        variant_title=subject.variant.title,
        engine=subject.engine.id,
        engine_title=subject.engine.title,
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
        per_gpu=_per_gpu(subject, account),
        terms=account.worst.terms,
        budgets=account.budgets,
        stages=stage_rows(account),
        worst_stage=account.worst.stage.index,
        capacity=capacity(subject, layout, account),
        kv_bytes_per_token=bytes_per_token(token_parts(subject, layout)),
        state_bytes_per_sequence=sum(
            part.layer_bytes * len(part.layers) for part in state_parts_of(subject, layout)
        ),
        page_tokens=account.cache.page_tokens,
        page_bytes=account.cache.page_bytes,
        limits=limits(account),
        fixes=(),
        defaults=subject.defaults,
        rejected=(),
        notes=notes(subject, layout, fits, known),
        totals=_totals(account, layout),
        host=HostNeeds(
            disk_bytes=size,
            # Every rank group reads the whole checkpoint, unless stages read their own part.
            load_bytes_per_node=size if layout.pipeline_parallel_size == 1 else None,
            host_ram_bytes=Interval(low=0, high=None),
        ),
        total_parameters=inventory.params_total if inventory is not None else 0,
        active_parameters=(
            inventory.active_params(subject.model) if inventory is not None else None
        ),
        checkpoint_bytes=size,
        checkpoint_tensors=inventory.tensors if inventory is not None else None,
        receipt=None if subject.receipt is None else subject.receipt.taken_at,
    )


def _checkpoint_bytes(subject: Subject) -> int:
    if subject.inventory is not None:
        return subject.inventory.bytes_total
    return subject.variant.bytes_total or 0


def _per_gpu(subject: Subject, account: Memory) -> PerGpu:
    worst, pool = account.worst, account.budgets[0]
    return PerGpu(
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
        headroom_bytes=pool.bytes - worst.only(pool.inside).known_bytes,
    )


def _totals(account: Memory, layout: Layout) -> Totals:
    ranks = layout.tensor_parallel_size * layout.data_parallel_size

    def total(segment: Segment) -> int:
        return ranks * sum(stage.of(segment).low for stage in account.accounts)

    return Totals(
        weights_bytes_total=total(Segment.WEIGHTS),
        kv_cache_bytes_total=total(Segment.KV_CACHE),
        recurrent_state_bytes_total=total(Segment.RECURRENT_STATE),
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
    if known.status is Status.UNKNOWN or not subject.family.described:
        return PlanVerdict.UNKNOWN
    return PlanVerdict(fits.value)
