"""The inverse of the account: what the room that is left holds."""

from __future__ import annotations

from collections.abc import Callable

from heavylift.plan.memory import Account, Memory
from heavylift.plan.stages import Stage
from heavylift.plan.subject import Subject
from heavylift.plan.unified_pages import UnifiedPages
from heavylift.records.plan import Layout, PlanCapacity, Segment
from heavylift.records.ranges import Interval

_FIXED = (Segment.WEIGHTS, Segment.WORKSPACE, Segment.OUTSIDE_POOL)


def capacity(subject: Subject, layout: Layout, memory: Memory) -> PlanCapacity:
    """Longest context, most sequences and KV tokens, each from the careful to the hopeful end.

    Hopeful: uncertain terms at their low, state as little as sequences hold. Careful: terms at
    their high, state as the engine admits or sets aside; no known high = nothing is promised.
    Every pipeline stage must hold them, so the fullest decides. Replicas add up.
    """
    if not subject.family.described:
        # What it keeps is not known, so nothing is promised and nothing ruled out.
        anything = Interval(low=0, high=None)
        return PlanCapacity(max_context_tokens=anything, max_sequences=anything, kv_tokens=anything)
    replicas = layout.data_parallel_size
    if not subject.family.caches and not subject.family.states:
        # Nothing is kept of a text: as many at once as the engine admits.
        return PlanCapacity(
            max_context_tokens=Interval.exactly(subject.model.max_context.value),
            max_sequences=Interval.exactly((subject.max_num_seqs or 1) * replicas),
            kv_tokens=Interval.exactly(0),
        )
    sequences = -(-subject.concurrency // replicas)
    cache, context = memory.cache, subject.context_tokens
    most = subject.model.max_context.value

    def over(ask: Callable[[Stage, int, bool], int]) -> Interval:
        low = min(ask(a.stage, _room(a, memory, careful=True), True) for a in memory.accounts)
        high = min(ask(a.stage, _room(a, memory, careful=False), False) for a in memory.accounts)
        return Interval(low=low, high=high)

    held = over(lambda s, room, careful: cache.sequences_in(s, room, context, reserved=careful))
    longest = over(lambda s, room, careful: cache.tokens_in(s, room, sequences, reserved=careful))
    pool = over(
        lambda s, room, careful: (
            cache.sequences_in(s, room, context, reserved=True) * context
            if careful
            else cache.pool_tokens(s, room)
        )
    )
    return PlanCapacity(
        max_context_tokens=Interval(low=min(longest.low, most), high=min(longest.high or 0, most)),
        max_sequences=_times(held, replicas),
        kv_tokens=_times(pool, replicas),
    )


def most_kv_tokens(layout: Layout, memory: Memory) -> int:
    """The hopeful end of the pool's tokens alone: what puts layouts in order."""
    tokens = min(
        memory.cache.pool_tokens(account.stage, _room(account, memory, careful=False))
        for account in memory.accounts
    )
    return tokens * layout.data_parallel_size


def state_blocks(subject: Subject, memory: Memory) -> int | None:
    """The most blocks that states may lie in, where the engine wants one for every sequence that it
    may admit before it starts; None elsewhere.
    """
    rule = subject.scope.first(subject.engine.caches)
    cache = memory.cache
    if rule is None or not rule.blocks_for_max_num_seqs or not isinstance(cache, UnifiedPages):
        return None
    found = [
        cache.blocks_of_states(account.stage, _room(account, memory, careful=False))
        for account in memory.accounts
    ]
    held = [blocks for blocks in found if blocks is not None]
    return min(held) if held else None


def _times(interval: Interval, factor: int) -> Interval:
    return Interval(low=interval.low * factor, high=(interval.high or 0) * factor)


def _room(account: Account, memory: Memory, *, careful: bool) -> int:
    """Bytes left for KV and state on a rank: the least over the budgets that count them."""
    rooms = []
    for budget in memory.budgets_of(account):
        fixed = account.only([segment for segment in _FIXED if segment in budget.inside])
        taken = fixed.high_bytes if careful else fixed.known_bytes
        rooms.append(0 if taken is None else max(0, budget.bytes - taken))
    return min(rooms)
