"""A running service against its plan: which term drifted, which GPU is unlike the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from heavylift.errors import Scalar
from heavylift.observe.drift import POOL, TOLERANCE, is_outside, pool_of
from heavylift.plan.observed import in_use, reserves
from heavylift.records.finding import Finding, Severity
from heavylift.records.plan import Note, Plan
from heavylift.records.ranges import Interval
from heavylift.records.receipt import MeasuredTerm
from heavylift.records.watch import EngineNow, GpuNow, HostNow, TermNow
from heavylift.telemetry.gpu_readings import EVEN, IN_USE

OUTSIDE_POOL: Final = "outside_pool"
KV_CACHE: Final = "kv_cache"
FEWEST: Final = 5
"""Looks before the use of GPUs is compared: a single one catches a GPU between two steps."""
UNEVEN_USE: Final = 0.5
"""Difference of mean use between GPUs of one model. They work in step: half is not noise."""


def with_plan(gpu: GpuNow, plan: Plan | None) -> GpuNow:
    """The GPU with what the plan lets it hold, and how far it lies outside of that."""
    if plan is None:
        return gpu
    planned = in_use(plan)
    return replace(
        gpu,
        planned_low_bytes=planned.low,
        planned_high_bytes=planned.high,
        drift_bytes=None if gpu.memory_used_bytes is None else _off(planned, gpu.memory_used_bytes),
    )


def _off(planned: Interval, used: int) -> int:
    if used < planned.low:
        return used - planned.low
    if planned.high is not None and used > planned.high:
        return used - planned.high
    return 0


def by_drift(gpus: Iterable[GpuNow]) -> tuple[GpuNow, ...]:
    """The GPUs, those furthest from the plan first, then by host and number."""
    return tuple(sorted(gpus, key=lambda gpu: (-abs(gpu.drift_bytes or 0), gpu.host, gpu.gpu)))


# --- terms -----------------------------------------------------------------------------------


def terms(
    plan: Plan | None, measured: Sequence[MeasuredTerm], gpus: Sequence[GpuNow]
) -> tuple[TermNow, ...]:
    """Each term of the plan beside what was observed of it; what the log told beyond them after.

    A term is that of the fullest rank. Where the log told of weights and of the pool, what the
    fullest GPU holds beside all that the log told of lies outside of the pool.
    """
    fullest = _fullest(measured)
    planned = {} if plan is None else _planned(plan)
    finer = {} if plan is None else {term.id: term.bytes for term in plan.terms}
    found = []
    for name in dict.fromkeys((*planned, *fullest)):
        if name != OUTSIDE_POOL:
            told = fullest.get(name)
            observed = None if told is None else told.bytes
            found.append(_term(name, planned.get(name, finer.get(name)), observed, "log", told))
    rest = _rest(fullest, gpus)
    if OUTSIDE_POOL in planned or rest is not None:
        found.append(_term(OUTSIDE_POOL, planned.get(OUTSIDE_POOL), rest, "gpu", None))
    return tuple(found)


def _planned(plan: Plan) -> dict[str, Interval]:
    per_gpu = plan.per_gpu
    grows = (
        {POOL: pool_of(plan)}
        if reserves(plan)
        else {KV_CACHE: per_gpu.kv_cache_bytes, "recurrent_state": per_gpu.recurrent_state_bytes}
    )
    return {
        "weights": per_gpu.weights_bytes,
        **grows,
        "workspace": per_gpu.workspace_bytes,
        OUTSIDE_POOL: per_gpu.outside_pool_bytes,
    }


def _fullest(measured: Iterable[MeasuredTerm]) -> dict[str, MeasuredTerm]:
    found: dict[str, MeasuredTerm] = {}
    for term in measured:
        if term.term not in found or term.bytes > found[term.term].bytes:
            found[term.term] = term
    return found


def _rest(fullest: dict[str, MeasuredTerm], gpus: Sequence[GpuNow]) -> int | None:
    used = [gpu.memory_used_bytes for gpu in gpus if gpu.memory_used_bytes is not None]
    if not used or "weights" not in fullest or POOL not in fullest:
        return None
    return max(0, max(used) - sum(term.bytes for term in fullest.values()))


def _term(
    name: str,
    planned: Interval | None,
    observed: int | None,
    basis: str,
    measured: MeasuredTerm | None,
) -> TermNow:
    resolution = 0 if measured is None else measured.resolution_bytes
    is_inside = None
    if planned is not None and observed is not None:
        is_inside = not is_outside(planned, observed, resolution)
    return TermNow(
        term=name,
        planned_low_bytes=None if planned is None else planned.low,
        planned_high_bytes=None if planned is None else planned.high,
        observed_bytes=observed,
        basis=None if observed is None else basis,
        is_inside=is_inside,
    )


# --- findings --------------------------------------------------------------------------------


def findings(
    plan: Plan | None,
    looks: Sequence[Sequence[GpuNow]],
    observed: Sequence[TermNow],
    engine: EngineNow,
    host: HostNow,
) -> tuple[Finding, ...]:
    """What is not as planned, or not as it should be. `looks`: GPUs at each look, newest last."""
    gpus = looks[-1] if looks else ()
    return (
        *_terms(observed),
        *(() if plan is None else _against_plan(plan, gpus)),
        *_memory_imbalance(gpus),
        *_use_imbalance(looks),
        *_spill(gpus),
        *_swap(host),
        *_preempted(engine),
    )


def _terms(observed: Sequence[TermNow]) -> Iterator[Finding]:
    for term in observed:
        if term.is_inside is False:
            yield _finding(
                "observe.term",
                term.term,
                term=term.term,
                observed_bytes=term.observed_bytes,
                planned_low_bytes=term.planned_low_bytes,
                planned_high_bytes=term.planned_high_bytes,
                basis=term.basis,
            )


def _against_plan(plan: Plan, gpus: Sequence[GpuNow]) -> Iterator[Finding]:
    """One finding for the GPUs above, one for those below: eight alike are not eight problems.

    The plan is of the fullest rank: others may hold less, so below counts only where all are.
    """
    busy = _in_use(gpus)
    drifts = [(gpu.drift_bytes or 0, gpu) for gpu in busy]
    above = [gpu for off, gpu in drifts if off > 0]
    if above:
        worst = max(above, key=lambda gpu: gpu.drift_bytes or 0)
        # The pool is taken once and stays: what grows above the budget lies outside of it.
        term = OUTSIDE_POOL if reserves(plan) else "total"
        yield _gpu_finding("observe.above_plan", worst, count=len(above), term=term)
    elif busy and all(off < 0 for off, _ in drifts):
        nearest = max(busy, key=lambda gpu: gpu.drift_bytes or 0)
        term = POOL if reserves(plan) else "total"
        yield _gpu_finding("observe.below_plan", nearest, count=len(busy), term=term)
    if busy and len(busy) != plan.rack.gpu_count:
        yield _finding(
            "observe.gpus_differ",
            "gpus",
            planned=plan.rack.gpu_count,
            in_use=len(busy),
            seen=len(gpus),
        )


def _gpu_finding(code: str, gpu: GpuNow, *, count: int, term: str) -> Finding:
    return _finding(
        code,
        _named(gpu),
        gpu=_named(gpu),
        count=count,
        term=term,
        used_bytes=gpu.memory_used_bytes,
        planned_low_bytes=gpu.planned_low_bytes,
        planned_high_bytes=gpu.planned_high_bytes,
    )


def _memory_imbalance(gpus: Sequence[GpuNow]) -> Iterator[Finding]:
    busy = _in_use(gpus)
    if len(busy) < 2:  # noqa: PLR2004 - one has no like
        return
    fullest = max(busy, key=lambda gpu: gpu.memory_used_bytes or 0)
    least = min(busy, key=lambda gpu: gpu.memory_used_bytes or 0)
    most, fewest = fullest.memory_used_bytes or 0, least.memory_used_bytes or 0
    if most - fewest > EVEN * most:
        yield _finding(
            "observe.memory_imbalance",
            _named(fullest),
            fullest=_named(fullest),
            fullest_bytes=most,
            least=_named(least),
            least_bytes=fewest,
        )


def _use_imbalance(looks: Sequence[Sequence[GpuNow]]) -> Iterator[Finding]:
    recent = looks[-FEWEST:]
    if len(recent) < FEWEST:
        return
    holding = {(gpu.host, gpu.gpu) for gpu in _in_use(recent[-1])}
    sums: dict[tuple[str, int], list[float]] = {}
    for look in recent:
        for gpu in look:
            if gpu.use_ratio is not None and (gpu.host, gpu.gpu) in holding:
                sums.setdefault((gpu.host, gpu.gpu), []).append(gpu.use_ratio)
    means = {key: sum(each) / len(each) for key, each in sums.items() if len(each) == FEWEST}
    if len(means) < 2:  # noqa: PLR2004 - one has no like
        return
    busiest, idlest = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    if means[busiest] - means[idlest] > UNEVEN_USE:
        yield _finding(
            "observe.use_imbalance",
            _label(*busiest),
            busiest=_label(*busiest),
            busiest_ratio=round(means[busiest], 3),
            idlest=_label(*idlest),
            idlest_ratio=round(means[idlest], 3),
        )


def _spill(gpus: Sequence[GpuNow]) -> Iterator[Finding]:
    """Host memory used by a card that has memory of its own: far behind a slower bus."""
    for gpu in gpus:
        used, own = gpu.gtt_used_bytes, gpu.memory_total_bytes
        if used is None or own is None or (gpu.gtt_total_bytes or 0) > own:
            continue  # an integrated GPU lives in host memory
        if used > TOLERANCE * own:
            yield _finding("observe.spill", _named(gpu), gpu=_named(gpu), gtt_bytes=used)


def _swap(host: HostNow) -> Iterator[Finding]:
    used, total = host.swap_used_bytes, host.memory_total_bytes
    if used is not None and total is not None and used > TOLERANCE * total:
        yield _finding("observe.swap", host.name, host=host.name, swap_bytes=used)


def _preempted(engine: EngineNow) -> Iterator[Finding]:
    if engine.preemptions_in_window:
        yield _finding(
            "observe.preempted",
            KV_CACHE,
            term=KV_CACHE,
            count=round(engine.preemptions_in_window),
            window_s=round(engine.window_s or 0.0),
        )


def _in_use(gpus: Sequence[GpuNow]) -> list[GpuNow]:
    return [
        gpu
        for gpu in gpus
        if gpu.memory_used_bytes is not None
        and gpu.memory_total_bytes
        and gpu.memory_used_bytes > IN_USE * gpu.memory_total_bytes
    ]


def _named(gpu: GpuNow) -> str:
    return _label(gpu.host, gpu.gpu)


def _label(host: str, number: int) -> str:
    return f"{host} gpu {number}"


def _finding(code: str, subject: str, **params: Scalar) -> Finding:
    return Finding(
        id=f"{code}.{subject.replace(' ', '_')}",
        code=code,
        severity=Severity.WARN,
        subject=subject,
        params=params,
    )


# --- notes -----------------------------------------------------------------------------------


def notes(plan: Plan | None, gpus: Sequence[GpuNow], engine: EngineNow) -> tuple[Note, ...]:
    """What has to be said beside the figures: used memory of an engine that reserves is no need."""
    if plan is None:
        return (Note(code="observe.no_plan"),) if gpus else ()
    if not reserves(plan):
        return ()
    budget = next(budget for budget in plan.budgets if budget.fraction is not None)
    params: dict[str, Scalar] = {
        "fraction": budget.fraction,
        "base": budget.base,
        "budget_bytes": budget.bytes,
        "need_bytes": plan.per_gpu.known_total_bytes,
        "kv_use_ratio": engine.kv_use_ratio,
    }
    return (Note(code="observe.pool", params=params),)
