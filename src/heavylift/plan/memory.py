"""The account of one rank: terms that add up, against the budgets that limit them.

total = weights + kv_cache + recurrent_state + workspace + outside_pool + headroom, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from heavylift.facts.schema import FactKind, GpuFacts
from heavylift.plan.arithmetic import ceil_div
from heavylift.plan.cache import CacheModel, cache_model
from heavylift.plan.fraction import fraction_in
from heavylift.plan.receipts import with_measured
from heavylift.plan.stages import Stage, stages
from heavylift.plan.subject import Subject
from heavylift.plan.weights import seen_parts, stage_bytes, stage_parts, unsplit_bytes
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

# A form whose tensors somebody saw: its maker, or we.
_SEEN = frozenset({FactKind.SPEC, FactKind.MEASURED})
_CERTAIN = frozenset({Kind.EXACT, Kind.SPEC, Kind.DERIVED, Kind.MEASURED})
# With nothing known above the need, less room than this is called tight. From the definition of
# the verdicts, not a property of any engine.
TIGHT_RATIO = 0.15


@dataclass(frozen=True, kw_only=True, slots=True)
class Sums:
    """What terms come to, bytes. `known`: the lows. `certain`: the lows of the terms that are
    neither assumed nor unknown nor others' word; the weights count whatever they rest on: a
    published size may be off, but not by a model. `high`: None when one term has none; `bounded`:
    the highs, of terms without one the lows.
    """

    known_bytes: int
    certain_bytes: int
    high_bytes: int | None
    bounded_bytes: int


_NOTHING = Sums(known_bytes=0, certain_bytes=0, high_bytes=0, bounded_bytes=0)


@dataclass(frozen=True, kw_only=True)
class Account:
    """One stage's rank: its terms and what they come to."""

    stage: Stage
    terms: tuple[Term, ...]

    def of(self, segment: Segment) -> Interval:
        """Bytes of a segment."""
        sums = self.only((segment,))
        return Interval(low=sums.known_bytes, high=sums.high_bytes)

    @cached_property
    def whole(self) -> Sums:
        """All terms."""
        return self.only(Segment)

    @cached_property
    def _by_segment(self) -> dict[str, Sums]:
        by_segment: dict[str, list[Term]] = {segment: [] for segment in Segment}
        for term in self.terms:
            by_segment[term.segment].append(term)
        return {segment: _sums(terms) for segment, terms in by_segment.items()}

    @cached_property
    def _asked(self) -> dict[tuple[str, ...], Sums]:
        return {}

    def only(self, segments: Iterable[str]) -> Sums:
        """What the terms of some segments come to."""
        key = tuple(segments)
        found = self._asked.get(key)
        if found is None:
            found = self._asked[key] = self._only(key)
        return found

    def _only(self, segments: tuple[str, ...]) -> Sums:
        known = certain = high = highest = 0
        bounded = True
        for segment in segments:
            sums = self._by_segment[segment]
            known += sums.known_bytes
            certain += sums.certain_bytes
            highest += sums.bounded_bytes
            if sums.high_bytes is None:
                bounded = False
            else:
                high += sums.high_bytes
        return Sums(
            known_bytes=known,
            certain_bytes=certain,
            high_bytes=high if bounded else None,
            bounded_bytes=highest,
        )


def _sums(terms: Sequence[Term]) -> Sums:
    if not terms:
        return _NOTHING
    known = certain = bounded = 0
    high: int | None = 0
    for term in terms:
        known += term.bytes.low
        bounded += term.bytes.low if term.bytes.high is None else term.bytes.high
        if term.kind in _CERTAIN or term.id == Segment.WEIGHTS:
            certain += term.bytes.low
        high = None if high is None or term.bytes.high is None else high + term.bytes.high
    return Sums(known_bytes=known, certain_bytes=certain, high_bytes=high, bounded_bytes=bounded)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The accounts of all stages, the budgets, and the cache model they used."""

    accounts: tuple[Account, ...]
    budgets_by_stage: tuple[tuple[Budget, ...], ...]
    cache: CacheModel
    mixed: bool = False

    @cached_property
    def worst(self) -> Account:
        """The stage a plan shows: the one most over a budget; where none is, the heaviest, or
        among unlike cards the one with the least room.
        """

        def room(account: Account) -> int:
            budgets = self.budgets_of(account)
            return min(b.bytes - account.only(b.inside).known_bytes for b in budgets)

        def order(account: Account) -> tuple[int, int]:
            left = room(account)
            weights = account.of(Segment.WEIGHTS).low
            return (max(0, -left), -left if self.mixed else weights)

        return max(self.accounts, key=order)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets of the stage that a plan shows."""
        return self.budgets_of(self.worst)

    def budgets_of(self, account: Account) -> tuple[Budget, ...]:
        """The budgets of a stage's ranks; among unlike cards those of the smallest it has."""
        return self.budgets_by_stage[account.stage.index]


def memory(subject: Subject, layout: Layout) -> Memory:
    """Account for every rank of a layout: one account per pipeline stage."""
    accounts, cache = subject.knowledge.remembered(
        ("accounts", subject.account_key, layout), lambda: _accounts(subject, layout)
    )
    if subject.receipt is not None:
        accounts = tuple(
            replace(account, terms=with_measured(account.terms, subject.receipt))
            for account in accounts
        )
    if not subject.cards:
        alike = budgets(subject, layout, accounts, subject.gpu)
        by_stage = (alike,) * len(accounts)
    else:
        by_stage = tuple(
            budgets(subject, layout, (account,), _least_card(subject, layout, account.stage))
            for account in accounts
        )
    return Memory(
        accounts=accounts, budgets_by_stage=by_stage, cache=cache, mixed=bool(subject.cards)
    )


def capacity_at_best(subject: Subject, layout: Layout) -> Capacity:
    """The verdict of the stage with most weights alone: that of the whole layout is no better.

    Fits, where stages cannot be judged apart: with measured terms and among unlike cards.
    """
    if subject.cards or subject.receipt is not None:
        return Capacity.FITS
    stage, weights = subject.knowledge.remembered(
        ("heaviest", subject.weights_key, layout), lambda: _heaviest(subject, layout)
    )
    if weights > _most_for_weights(subject, layout):
        return Capacity.DOES_NOT_FIT
    account = _account(subject, layout, stage, _cache(subject, layout))
    # What is free after load on this stage alone is no less than on the one that leaves least.
    return _worst_of(
        _against(account, each) for each in budgets(subject, layout, (account,), subject.gpu)
    )


def _heaviest(subject: Subject, layout: Layout) -> tuple[Stage, int]:
    """The stage with most weights, and their bytes."""
    weights = [(stage, stage_bytes(subject, layout, stage)[0]) for stage in stages(subject, layout)]
    return max(weights, key=lambda each: each[1])


def _most_for_weights(subject: Subject, layout: Layout) -> int:
    """What no weights of a rank that fits are above: the pool's budget where they lie in it."""
    visible = subject.gpu.memory_visible.value
    rule = subject.scope.first(subject.engine.budgets)
    fraction = None if rule is None else fraction_in(subject, rule, layout)
    if rule is None or fraction is None or rule.base in ("none", "free_after_load"):
        return visible
    return min(visible, int(visible * fraction)) if Segment.WEIGHTS in rule.inside else visible


def _least_card(subject: Subject, layout: Layout, stage: Stage) -> GpuFacts:
    """Of the cards of a stage's ranks the one with the least memory. Ranks are counted through
    tensor, then pipeline, then data parallel ranks.
    """
    tensor, count = layout.tensor_parallel_size, layout.pipeline_parallel_size
    ranks = (
        (replica * count + stage.index) * tensor + rank
        for replica in range(layout.data_parallel_size)
        for rank in range(tensor)
    )
    return min((subject.cards[rank] for rank in ranks), key=lambda card: card.memory_visible.value)


def _accounts(subject: Subject, layout: Layout) -> tuple[tuple[Account, ...], CacheModel]:
    cache = _cache(subject, layout)
    accounts = tuple(_account(subject, layout, stage, cache) for stage in stages(subject, layout))
    return accounts, cache


def _cache(subject: Subject, layout: Layout) -> CacheModel:
    return subject.knowledge.remembered(
        ("cache", subject.account_key, layout), lambda: cache_model(subject, layout)
    )


def _account(subject: Subject, layout: Layout, stage: Stage, cache: CacheModel) -> Account:
    return subject.knowledge.remembered(
        ("account", subject.account_key, layout, stage.index),
        lambda: Account(stage=stage, terms=_terms(subject, layout, stage, cache)),
    )


def _terms(subject: Subject, layout: Layout, stage: Stage, cache: CacheModel) -> tuple[Term, ...]:
    sequences = -(-subject.concurrency // layout.data_parallel_size)
    kv = cache.kv_parts(stage, subject.context_tokens, sequences)
    state_low = cache.state_parts(stage, sequences, reserved=False)
    state_high = cache.state_parts(stage, sequences, reserved=True)
    found = [
        _weights(subject, layout, stage),
        Term(
            id=Segment.KV_CACHE,
            segment=Segment.KV_CACHE,
            kind=Kind.DERIVED if subject.family.described else Kind.UNKNOWN,
            bytes=Interval(low=_sum(kv), high=_sum(kv) if subject.family.described else None),
            formula=" + ".join(part.formula for part in kv),
            source=kv[0].source if kv else subject.variant.source,
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
    if subject.drafter is not None:
        found.insert(1, _drafter(subject.drafter))
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


def _weights_kind(subject: Subject, weights_bytes: Interval, ranks: int) -> Kind:
    """What the weights rest on: files or a published index, a rule over a config, a size. Between
    two bounds they are not exact, nor where several ranks cut tensors by what they are called.
    """
    if subject.inventory is None:
        return Kind.REPORTED
    if subject.variant.bytes_more:
        return Kind.ASSUMED
    if weights_bytes.low != weights_bytes.high or (subject.inventory.cut_by_name and ranks > 1):
        return Kind.DERIVED
    if subject.inventory.is_read or subject.variant.kind in _SEEN:
        return Kind.EXACT
    return Kind.ASSUMED if subject.variant.kind is FactKind.ASSUMED else Kind.DERIVED


def _weights(subject: Subject, layout: Layout, stage: Stage) -> Term:
    weights_bytes, groups = stage_bytes(subject, layout, stage)
    # Tensors that nobody said how to split are on every rank at worst; layers that a form known by
    # its name may have left as they were are split like all linear layers.
    ranks = layout.tensor_parallel_size * layout.pipeline_parallel_size
    more = unsplit_bytes(subject, layout, stage) + ceil_div(subject.variant.bytes_more or 0, ranks)
    found = Interval(low=weights_bytes, high=weights_bytes + more)
    return Term(
        id=Segment.WEIGHTS,
        segment=Segment.WEIGHTS,
        kind=_weights_kind(subject, found, ranks),
        bytes=found,
        formula=f"{groups} tensor groups",
        source=subject.inventory.source if subject.inventory else subject.variant.source,
    )


def _drafter(name: str) -> Term:
    """What a drafter takes beside the model, its weights and its cache: nobody said how much."""
    return Term(
        id=f"{Segment.WEIGHTS}.drafter",
        segment=Segment.WEIGHTS,
        kind=Kind.UNKNOWN,
        bytes=Interval(low=0, high=None),
        formula=name,
        source="",
    )


def written_terms(subject: Subject, layout: Layout, account: Account) -> tuple[Term, ...]:
    """The terms of an account with what only a plan shows: the tensor groups of the weights, and
    the formulas with their numbers.
    """
    formulas = {
        term.id: term.formula for term in memory_terms(subject, layout, account.stage, written=True)
    }
    return tuple(
        replace(term, parts=stage_parts(subject, layout, account.stage))
        if term.id == Segment.WEIGHTS
        else replace(term, formula=formulas.get(term.id, term.formula))
        for term in account.terms
    )


def _sum(parts: Sequence[Part]) -> int:
    return sum(part.bytes for part in parts)


def budgets(
    subject: Subject, layout: Layout, accounts: Sequence[Account], card: GpuFacts
) -> tuple[Budget, ...]:
    """The pool's budget on a card by the engine's rule, and the driver's whole figure.

    A fraction of what is free after load is taken of the stage that leaves least.
    """
    visible = card.memory_visible.value
    rule = subject.scope.first(subject.engine.budgets)
    everything = Budget(
        name="driver_visible",
        fraction=None,
        base="total",
        bytes=visible,
        inside=tuple(segment.value for segment in Segment),
        source=card.memory_visible.source,
    )
    if rule is None or rule.base == "none":
        return (everything,)
    fraction = fraction_in(subject, rule, layout)
    if fraction is None:
        return (everything,)
    base = visible
    if rule.base == "free_after_load":
        loaded = set(Segment) - set(rule.inside)
        base -= max(account.only(loaded).known_bytes for account in accounts)
    pool = Budget(
        name=rule.fraction_flag,
        fraction=fraction,
        base=rule.base,
        # Free memory before load is not known here; the driver's whole figure bounds it from above.
        bytes=max(0, int(base * fraction)),
        inside=rule.inside,
        source=rule.source,
    )
    return (pool, everything)


def capacity_verdict(memory: Memory) -> Capacity:
    """Fits, tight or does not fit: the worst answer over stages and budgets."""
    return _worst_of(
        _against(account, budget)
        for account in memory.accounts
        for budget in memory.budgets_of(account)
    )


def _worst_of(answers: Iterable[Capacity]) -> Capacity:
    return min(answers, key=(Capacity.DOES_NOT_FIT, Capacity.TIGHT, Capacity.FITS).index)


def _against(account: Account, budget: Budget) -> Capacity:
    inside = account.only(budget.inside)
    if inside.certain_bytes > budget.bytes:
        return Capacity.DOES_NOT_FIT
    high = inside.high_bytes
    if account.only((Segment.WEIGHTS,)).high_bytes is None:
        return Capacity.TIGHT
    if high is None:
        # Room for what has no bound is what the bounds of the others leave.
        room = budget.bytes - inside.bounded_bytes
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
