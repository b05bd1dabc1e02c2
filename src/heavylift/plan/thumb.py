"""Rules of thumb beside a plan: what each would say, and where it goes wrong here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heavylift.facts.thumb_schema import ThumbRuleFacts
from heavylift.plan.arithmetic import ceil_div
from heavylift.records.plan import Capacity, Note, Plan, Segment, ThumbAnswer
from heavylift.records.ranges import Interval


def rules_of_thumb(plan: Plan, rules: Sequence[ThumbRuleFacts]) -> tuple[ThumbAnswer, ...]:
    """Every rule's answer for the plan's rack and checkpoint, beside the account.

    Formula: even share = checkpoint / GPUs; kept = ratio × (the card's memory, or the share).
    """
    share = ceil_div(plan.checkpoint_bytes, plan.rack.gpu_count)
    return tuple(_answer(plan, rule, share) for rule in rules)


def _answer(plan: Plan, rule: ThumbRuleFacts, share: int) -> ThumbAnswer:
    visible = plan.per_gpu.visible_bytes
    base = visible if rule.base == "memory" else share
    kept = Interval(low=int(base * rule.low_ratio), high=int(base * rule.high_ratio))
    answers = {share + each <= visible for each in (kept.low, kept.high or 0)}
    holds = answers.pop() if len(answers) == 1 else None
    return ThumbAnswer(
        id=rule.id,
        weights_bytes=share,
        reserve_bytes=kept,
        holds=holds,
        faults=tuple(_faults(plan, kept, share, holds)),
        source=rule.source,
    )


def beside_weights(plan: Plan) -> Interval:
    """What the account itself puts beside the weights of the worst rank."""
    rest = Interval.exactly(0)
    for term in plan.terms:
        if term.segment != Segment.WEIGHTS:
            rest = rest + term.bytes
    return rest


def _faults(plan: Plan, kept: Interval, share: int, holds: bool | None) -> Iterator[Note]:
    fits = plan.capacity_verdict is not Capacity.DOES_NOT_FIT
    if holds is True and not fits:
        yield Note(code="calls_it_enough")
    if holds is False and fits:
        yield Note(code="calls_it_too_small")
    weights = plan.per_gpu.weights_bytes.low
    if weights > share:
        yield Note(code="even_share", params={"weights": weights, "share": share})
    rest = beside_weights(plan)
    if rest.low > (kept.high or 0):
        yield Note(
            code="keeps_too_little", params={"need": rest.low, "context": plan.context_tokens}
        )
    elif rest.high is not None and rest.high < kept.low and plan.kv_bytes_per_token:
        spare = kept.low - rest.high
        yield Note(
            code="keeps_too_much",
            params={"spare": spare, "tokens": spare // plan.kv_bytes_per_token},
        )
    yield Note(code="same_for_any_context", params={"context": plan.context_tokens})
