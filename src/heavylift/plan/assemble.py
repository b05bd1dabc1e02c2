"""The plan of one layout: the account, its verdict, its inverse, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from heavylift.errors import Scalar
from heavylift.plan.cache_parts import bytes_per_token, state_parts_of, token_parts
from heavylift.plan.capacity import capacity, most_kv_tokens, state_blocks
from heavylift.plan.memory import (
    Memory,
    capacity_verdict,
    limits,
    memory,
    stage_rows,
    written_terms,
)
from heavylift.plan.notes import notes
from heavylift.plan.subject import Subject
from heavylift.plan.support import ran_as_published, support
from heavylift.plan.weights import least_stage_bytes
from heavylift.records.plan import (
    Capacity,
    HostNeeds,
    Layout,
    Note,
    PerGpu,
    Plan,
    PlanRequest,
    PlanVerdict,
    ResolvedDefault,
    Segment,
    Status,
    Support,
    Totals,
)
from heavylift.records.ranges import Interval

TOO_FEW_BLOCKS: Final = "too_few_state_blocks"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A layout weighed: enough to put it in its place among others, without writing its plan.

    `is_hope`: its memory was not looked at, and the verdict is the best it can have.
    `weights_alone`: nothing but the weights was looked at, because they are more than the card
    shows.
    """

    subject: Subject
    layout: Layout
    fits: Capacity
    support: Support
    verdict: PlanVerdict
    weights_alone: int | None = None
    is_hope: bool = False

    @cached_property
    def memory(self) -> Memory:
        """The account of every rank."""
        return memory(self.subject, self.layout)

    @cached_property
    def kv_tokens(self) -> int:
        """Tokens that the pool holds at most."""
        if self.is_hope:
            return _WITHOUT_END
        return 0 if self.weights_alone else most_kv_tokens(self.layout, self.memory)

    @cached_property
    def headroom_bytes(self) -> int:
        """What the worst rank has left of the pool's budget; negative where it is short, and by as
        much at least where the weights alone are too many.
        """
        if self.is_hope:
            return _WITHOUT_END
        if self.weights_alone is not None:
            return self.subject.gpu.memory_visible.value - self.weights_alone
        pool = self.memory.budgets[0]
        return pool.bytes - self.memory.worst.only(pool.inside).known_bytes


def candidate(subject: Subject, layout: Layout) -> Candidate:
    """Weigh a layout."""
    account = memory(subject, layout)
    fits = capacity_verdict(account)
    known = support(subject, layout)
    found = Candidate(
        subject=subject,
        layout=layout,
        fits=fits,
        support=known,
        verdict=_verdict(subject, layout, fits, known),
    )
    found.__dict__["memory"] = account
    return found


def hoped(subject: Subject, layout: Layout, fits: Capacity = Capacity.FITS) -> Candidate:
    """The best that a layout could turn out to be, before its memory is looked at; or where it is
    known to be no better than `fits`.
    """
    known = support(subject, layout)
    return Candidate(
        subject=subject,
        layout=layout,
        fits=fits,
        support=known,
        verdict=_verdict(subject, layout, fits, known),
        is_hope=True,
    )


def hopeless(subject: Subject, layout: Layout) -> Candidate | None:
    """The candidate of a layout whose weights alone are more than the card shows; None for others,
    and for one whose source says that it ran all the same.
    """
    weights = subject.knowledge.remembered(
        ("least", subject.weights_key, layout), lambda: least_stage_bytes(subject, layout)
    )
    visible = subject.gpu.memory_visible.value
    if (
        weights <= visible
        or subject.cards
        or subject.receipt is not None
        or ran_as_published(subject, layout)
    ):
        return None
    return Candidate(
        subject=subject,
        layout=layout,
        fits=Capacity.DOES_NOT_FIT,
        support=support(subject, layout),
        verdict=PlanVerdict.DOES_NOT_FIT,
        weights_alone=weights,
    )


# More room than any pool has.
_WITHOUT_END: Final = 2**62


def plan_layout(subject: Subject, request: PlanRequest, layout: Layout) -> Plan:
    """The plan of one layout, without search or fixes."""
    return plan_candidate(candidate(subject, layout), request)


def plan_candidate(weighed: Candidate, request: PlanRequest) -> Plan:
    """The plan of a candidate, written out."""
    subject, layout, account = weighed.subject, weighed.layout, weighed.memory
    fits, known, verdict = weighed.fits, weighed.support, weighed.verdict
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
        per_gpu=_per_gpu(weighed),
        terms=written_terms(subject, layout, account.worst),
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
        defaults=_defaults(subject, account),
        rejected=(),
        notes=(*notes(subject, layout, fits, known), *_too_few_blocks(subject, account)),
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
        receipt=None if subject.receipt is None else subject.receipt.taken_at or "log",
    )


def _too_few_blocks(subject: Subject, account: Memory) -> Iterator[Note]:
    """The engine does not start for want of a block for each sequence it may admit."""
    blocks, wanted = state_blocks(subject, account), subject.max_num_seqs or 0
    if blocks is not None and blocks < wanted:
        params: dict[str, Scalar] = {
            "engine": subject.engine.title,
            "sequences": wanted,
            "blocks": blocks,
        }
        yield Note(code=TOO_FEW_BLOCKS, params=params)


def _defaults(subject: Subject, account: Memory) -> tuple[ResolvedDefault, ...]:
    """What was taken, with the memory fraction as the engine works it out in this layout."""
    if subject.captured_batches is None:
        return subject.defaults
    pool = account.budgets[0]
    return tuple(
        replace(each, value=pool.fraction)
        if each.name == pool.name and pool.fraction is not None
        else each
        for each in subject.defaults
    )


def _checkpoint_bytes(subject: Subject) -> int:
    if subject.inventory is not None:
        return subject.inventory.bytes_total
    return subject.variant.bytes_total or 0


def _per_gpu(weighed: Candidate) -> PerGpu:
    account = weighed.memory
    worst, pool = account.worst, account.budgets[0]
    return PerGpu(
        weights_bytes=worst.of(Segment.WEIGHTS),
        kv_cache_bytes=worst.of(Segment.KV_CACHE),
        recurrent_state_bytes=worst.of(Segment.RECURRENT_STATE),
        workspace_bytes=worst.of(Segment.WORKSPACE),
        outside_pool_bytes=worst.of(Segment.OUTSIDE_POOL),
        known_total_bytes=worst.whole.known_bytes,
        certain_total_bytes=worst.whole.certain_bytes,
        high_total_bytes=worst.whole.high_bytes,
        budget_bytes=pool.bytes,
        visible_bytes=account.budgets[-1].bytes,
        headroom_bytes=weighed.headroom_bytes,
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
    if known.status is Status.UNKNOWN or not subject.family.described or subject.drafter:
        return PlanVerdict.UNKNOWN
    return PlanVerdict(fits.value)
