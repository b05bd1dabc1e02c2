"""Planned against observed: what the log of a start told of its memory, term by term. Pure.

What a plan calls headroom, an engine that reserves its share turns into cache: its pool is compared
with need and headroom together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from heavylift.plan.receipts import compare
from heavylift.records.finding import Finding, Severity
from heavylift.records.plan import Plan
from heavylift.records.ranges import Interval
from heavylift.records.receipt import MeasuredTerm, Receipt

TOLERANCE: Final = 0.02
"""Of a term: a difference above it is a finding."""

POOL: Final = "pool"


def differences(plan: Plan, receipt: Receipt) -> tuple[Finding, ...]:
    """A finding for each measured term that lies more than 2 % outside the planned bytes."""
    return tuple(
        _term_finding(term.term, term.planned, term.measured_bytes, term.line)
        for term in compare(plan, receipt)
        if term.planned is not None
        and is_outside(term.planned, term.measured_bytes, term.resolution_bytes)
    )


def pool_of(plan: Plan) -> Interval:
    """What the plan leaves for use, in bytes per GPU: cache, state and headroom together."""
    per_gpu = plan.per_gpu
    grows_low = per_gpu.kv_cache_bytes.low + per_gpu.recurrent_state_bytes.low
    fixed_low = per_gpu.known_total_bytes - grows_low
    high = per_gpu.high_total_bytes
    least = 0 if high is None else max(0, per_gpu.budget_bytes - (high - grows_low))
    return Interval(low=least, high=max(least, per_gpu.budget_bytes - fixed_low))


def pool_findings(plan: Plan, terms: Iterable[MeasuredTerm]) -> tuple[Finding, ...]:
    """What an engine took for use against what the plan leaves: cache, state and what is left."""
    planned = pool_of(plan)
    pools = [term for term in terms if term.term == POOL]
    return tuple(
        _term_finding(POOL, planned, term.bytes, term.line)
        for term in pools[:1]
        if is_outside(planned, term.bytes, term.resolution_bytes)
    )


def token_findings(plan: Plan, figures: Mapping[str, float]) -> tuple[Finding, ...]:
    """The tokens an engine says its cache holds against the plan's capacity."""
    told = figures.get("kv_tokens")
    planned = plan.capacity.kv_tokens
    if told is None or not is_outside(planned, int(told), 1):
        return ()
    return (
        Finding(
            id="run.memory.kv_tokens",
            code="run.memory.kv_tokens",
            severity=Severity.WARN,
            subject="kv_tokens",
            observed=int(told),
            expected=shown(planned),
            params={"term": "kv_tokens", "observed": int(told), "expected": shown(planned)},
        ),
    )


def imbalance(terms: Iterable[MeasuredTerm]) -> tuple[Finding, ...]:
    """Cards of one stage that hold different amounts of one term, by more than 2 %."""
    groups: dict[tuple[str, str], list[MeasuredTerm]] = defaultdict(list)
    for term in terms:
        # Stages of a pipeline hold different layers: only cards of one are alike.
        stage = ".".join(part for part in term.device.split(".") if not part.startswith("tp"))
        groups[term.term, stage].append(term)
    return tuple(
        finding
        for (term, _), entries in groups.items()
        if (finding := _imbalance(term, entries)) is not None
    )


def _imbalance(term: str, entries: list[MeasuredTerm]) -> Finding | None:
    fullest = max(entries, key=lambda entry: entry.bytes)
    least = min(entries, key=lambda entry: entry.bytes)
    gap = fullest.bytes - least.bytes - fullest.resolution_bytes
    if fullest.bytes <= 0 or gap <= TOLERANCE * fullest.bytes:
        return None
    return Finding(
        id=f"run.memory.imbalance.{term}",
        code="run.memory.imbalance",
        severity=Severity.WARN,
        subject=fullest.device,
        observed=fullest.bytes,
        expected=least.bytes,
        evidence=(fullest.line, least.line),
        params={
            "term": term,
            "fullest": fullest.device,
            "fullest_bytes": fullest.bytes,
            "least": least.device,
            "least_bytes": least.bytes,
        },
    )


def is_outside(planned: Interval, measured: int, resolution: int) -> bool:
    """True when a number lies more than 2 % and the log's last digit outside an interval."""
    if measured < planned.low:
        return planned.low - measured - resolution > TOLERANCE * planned.low
    if planned.high is None or measured <= planned.high:
        return False
    return measured - planned.high - resolution > TOLERANCE * max(planned.high, 1)


def _term_finding(term: str, planned: Interval, measured: int, line: str) -> Finding:
    return Finding(
        id=f"run.memory.{term}",
        code="run.memory.term",
        severity=Severity.WARN,
        subject=term,
        observed=measured,
        expected=shown(planned),
        evidence=(line,),
        params={
            "term": term,
            "measured_bytes": measured,
            "planned_low_bytes": planned.low,
            "planned_high_bytes": planned.high,
        },
    )


def shown(planned: Interval) -> str:
    """An interval in bytes, as a finding expects it."""
    if planned.is_point:
        return str(planned.low)
    return f"{planned.low} to {'?' if planned.high is None else planned.high}"
