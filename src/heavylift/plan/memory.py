"""The account of one rank: terms that add up, against the budgets that limit them.

total = weights + kv_cache + recurrent_state + workspace + outside_pool + headroom, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heavylift.plan.cache import CacheModel, cache_model
from heavylift.plan.receipts import with_measured
from heavylift.plan.stages import Stage, stages
from heavylift.plan.subject import Subject
from heavylift.plan.weights import seen_parts, stage_parts
from heavylift.plan.workspace import memory_terms
from heavylift.records.plan import (
    Budget,
    Capacity,
    Kind,
    Layout,
    Limit,
    Part,
    Segment,
    StageMemory,
    Term,
)
from heavylift.records.ranges import Interval

_CERTAIN = frozenset({Kind.EXACT, Kind.SPEC, Kind.DERIVED, Kind.MEASURED})
# With nothing known above the need, less room than this is called tight. From the definition of
# the verdicts, not a property of any engine.
TIGHT_RATIO = 0.15


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """One stage's rank: its terms and what they come to."""

    stage: Stage
    terms: tuple[Term, ...]

    def of(self, segment: Segment) -> Interval:
        """Bytes of a segment."""
        return total(term.bytes for term in self.terms if term.segment == segment)

    @property
    def known_bytes(self) -> int:
        """The lows of all terms."""
        return sum(term.bytes.low for term in self.terms)

    @property
    def certain_bytes(self) -> int:
        """The lows of the terms that are neither assumed nor unknown nor others' word.

        The weights count whatever they rest on: a published size may be off, but not by a model.
        """
        return sum(
            term.bytes.low
            for term in self.terms
            if term.kind in _CERTAIN or term.id == Segment.WEIGHTS
        )

    @property
    def high_bytes(self) -> int | None:
        """The highs of all terms; None when one has none."""
        return total(term.bytes for term in self.terms).high

    def only(self, segments: Iterable[str]) -> Account:
        """The account of some segments."""
        wanted = set(segments)
        return Account(
            stage=self.stage, terms=tuple(term for term in self.terms if term.segment in wanted)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """The accounts of all stages, the budgets, and the cache model they used."""

    accounts: tuple[Account, ...]
    budgets: tuple[Budget, ...]
    cache: CacheModel

    @property
    def worst(self) -> Account:
        """The stage a plan shows: the one most over a budget; where none is, the heaviest."""

        def over(account: Account) -> int:
            rooms = (b.bytes - account.only(b.inside).known_bytes for b in self.budgets)
            return max(0, -min(rooms))

        return max(self.accounts, key=lambda a: (over(a), a.of(Segment.WEIGHTS).low))


def total(intervals: Iterable[Interval]) -> Interval:
    """The sum of intervals."""
    summed = Interval(low=0, high=0)
    for interval in intervals:
        summed = summed + interval
    return summed


def memory(subject: Subject, layout: Layout) -> Memory:
    """Account for every rank of a layout: one account per pipeline stage."""
    cache = cache_model(subject, layout)
    accounts = tuple(
        Account(
            stage=stage,
            terms=_measured(subject, _terms(subject, layout, stage, cache)),
        )
        for stage in stages(subject, layout)
    )
    return Memory(accounts=accounts, budgets=budgets(subject), cache=cache)


def _measured(subject: Subject, terms: tuple[Term, ...]) -> tuple[Term, ...]:
    return terms if subject.receipt is None else with_measured(terms, subject.receipt)


def _terms(subject: Subject, layout: Layout, stage: Stage, cache: CacheModel) -> tuple[Term, ...]:
    weights = stage_parts(subject, layout, stage)
    sequences = -(-subject.concurrency // layout.data_parallel_size)
    kv = cache.kv_parts(stage, subject.context_tokens, sequences)
    state_low = cache.state_parts(stage, sequences, reserved=False)
    state_high = cache.state_parts(stage, sequences, reserved=True)
    found = [
        Term(
            id=Segment.WEIGHTS,
            segment=Segment.WEIGHTS,
            kind=Kind.EXACT if subject.inventory is not None else Kind.REPORTED,
            bytes=Interval.exactly(_sum(weights)),
            formula=f"{len(weights)} tensor groups",
            source=subject.inventory.source if subject.inventory else subject.variant.source,
            parts=weights,
        ),
        Term(
            id=Segment.KV_CACHE,
            segment=Segment.KV_CACHE,
            kind=Kind.DERIVED,
            bytes=Interval.exactly(_sum(kv)),
            formula=" + ".join(part.formula for part in kv),
            source=kv[0].source,
            parts=kv,
        ),
    ]
    seen = seen_parts(subject, layout, stage)
    if seen:
        found.insert(
            1,
            Term(
                id=f"{Segment.WEIGHTS}.tables_seen",
                segment=Segment.WEIGHTS,
                kind=Kind.REPORTED,
                bytes=Interval.exactly(_sum(seen)),
                formula=" + ".join(part.id for part in seen),
                source=seen[0].source,
                parts=seen,
            ),
        )
    for low, high in zip(state_low, state_high, strict=True):
        found.append(
            Term(
                id=f"{Segment.RECURRENT_STATE}.{low.id}",
                segment=Segment.RECURRENT_STATE,
                kind=Kind.DERIVED,
                bytes=Interval(low=low.bytes, high=high.bytes),
                formula=low.formula,
                source=low.source,
                parts=(low,),
            )
        )
    return (*found, *memory_terms(subject, layout, stage))


def _sum(parts: Sequence[Part]) -> int:
    return sum(part.bytes for part in parts)


def budgets(subject: Subject) -> tuple[Budget, ...]:
    """The pool's budget by the engine's rule, and the driver's whole figure."""
    visible = subject.gpu.memory_visible.value
    rule = subject.scope.first(subject.engine.budgets)
    everything = Budget(
        name="driver_visible",
        fraction=None,
        base="total",
        bytes=visible,
        inside=tuple(segment.value for segment in Segment),
        source=subject.gpu.memory_visible.source,
    )
    if rule is None or rule.base == "none" or subject.gpu_memory_utilization is None:
        return (everything,)
    fraction = subject.gpu_memory_utilization
    pool = Budget(
        name=rule.fraction_flag,
        fraction=fraction,
        base=rule.base,
        # Free memory before load is not known here; the driver's whole figure bounds it from above.
        bytes=int(visible * fraction),
        inside=rule.inside,
        source=rule.source,
    )
    return (pool, everything)


def capacity_verdict(memory: Memory) -> Capacity:
    """Fits, tight or does not fit: the worst answer over stages and budgets."""
    answers = [
        _against(account, budget) for account in memory.accounts for budget in memory.budgets
    ]
    order = (Capacity.DOES_NOT_FIT, Capacity.TIGHT, Capacity.FITS)
    return min(answers, key=order.index)


def _against(account: Account, budget: Budget) -> Capacity:
    inside = account.only(budget.inside)
    if inside.certain_bytes > budget.bytes:
        return Capacity.DOES_NOT_FIT
    high = inside.high_bytes
    if high is None:
        room = budget.bytes - inside.known_bytes
        return Capacity.TIGHT if room < TIGHT_RATIO * budget.bytes else Capacity.FITS
    return Capacity.TIGHT if high > budget.bytes else Capacity.FITS


def limits(memory: Memory) -> tuple[Limit, ...]:
    """Each budget with need, have and short on the worst rank; the one with least room binds."""
    account = memory.worst
    rows = []
    for budget in memory.budgets:
        need = account.only(budget.inside).known_bytes
        rows.append((budget, need, budget.bytes - need))
    least = min(room for _, _, room in rows)
    return tuple(
        Limit(
            id=budget.name,
            need_bytes=need,
            have_bytes=budget.bytes,
            short_bytes=max(0, -room),
            binds=room == least,
            term=_largest(account) if room < 0 else _growing(account),
        )
        for budget, need, room in rows
    )


def _largest(account: Account) -> str:
    return max(account.terms, key=lambda term: term.bytes.low).segment


def _growing(account: Account) -> str:
    """What will hit the limit next: KV when there is any, else the state."""
    return Segment.KV_CACHE if account.of(Segment.KV_CACHE).low else Segment.RECURRENT_STATE


def stage_rows(memory: Memory) -> tuple[StageMemory, ...]:
    """A row per stage for the plan."""
    return tuple(
        StageMemory(
            stage=account.stage.index,
            first_layer=account.stage.first_layer,
            last_layer=account.stage.last_layer,
            weights_bytes=account.of(Segment.WEIGHTS).low,
            kv_cache_bytes=account.of(Segment.KV_CACHE).low,
            recurrent_state_bytes=account.of(Segment.RECURRENT_STATE).low,
            workspace_bytes=account.of(Segment.WORKSPACE),
            outside_pool_bytes=account.of(Segment.OUTSIDE_POOL),
        )
        for account in memory.accounts
    )
