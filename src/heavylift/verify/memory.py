"""Memory: planned against observed, from the engine's log and from the GPUs themselves. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from heavylift.plan.observed import in_use
from heavylift.plan.receipts import compare
from heavylift.records.plan import Agreement, Plan, TermComparison
from heavylift.telemetry import llamacpp
from heavylift.telemetry.gpu_readings import EVEN, IN_USE, GpuReading
from heavylift.verify.judge import result
from heavylift.verify.records import Check, CheckResult, Profile, Status, Trial

_ON_OUTSIDE: Final = {Agreement.OUTSIDE: "memory_differs"}


def memory_results(plan: Plan, log: Sequence[str]) -> tuple[CheckResult, ...]:
    """A check per memory term of the log: equal to the plan, or inside its interval.

    Raises RUN020 when the log has no line about a term the engine always prints.
    """
    receipt = llamacpp.receipt_for(plan, log)
    return tuple(_term(comparison) for comparison in compare(plan, receipt))


def _term(term: TermComparison) -> CheckResult:
    check = Check(
        id=f"memory.{term.term}",
        probe="",
        trials={Profile.SMOKE: 1},
        on_failure=Status.FAIL,
    )
    planned = "-" if term.planned is None else f"{term.planned.low} to {term.planned.high}"
    trial = Trial(
        reason=_ON_OUTSIDE.get(term.agreement),
        evidence=f"planned {planned} B; {term.line}",
        figures={"measured_bytes": float(term.measured_bytes)},
    )
    return result(check, [trial], expected=frozenset())


# --- the GPUs during generation ------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuPeak:
    """The most that one GPU held during the watch, and all that it has, in bytes."""

    gpu: int
    used_bytes: int
    total_bytes: int

    def __str__(self) -> str:
        gib = 2**30
        return f"gpu {self.gpu}: {self.used_bytes / gib:.2f} of {self.total_bytes / gib:.2f} GiB"


def peaks(points: Sequence[GpuReading]) -> tuple[GpuPeak, ...]:
    """The peak of each GPU that holds more than a driver does."""
    used: dict[int, int] = defaultdict(int)
    totals: dict[int, int] = {}
    for point in points:
        if point.memory_used_bytes is not None and point.memory_total_bytes:
            used[point.gpu] = max(used[point.gpu], point.memory_used_bytes)
            totals[point.gpu] = point.memory_total_bytes
    return tuple(
        GpuPeak(gpu=gpu, used_bytes=used[gpu], total_bytes=totals[gpu])
        for gpu in sorted(used)
        if used[gpu] > IN_USE * totals[gpu]
    )


def gpu_results(points: Sequence[GpuReading], plan: Plan | None) -> tuple[CheckResult, ...]:
    """Checks of what the GPUs held during generation: that it was seen, that it is even, and,
    with a plan, that it is what was planned. Nothing seen and nothing planned: no check.
    """
    seen = peaks(points)
    if not seen:
        if plan is None:
            return ()
        missing = Trial(reason="gpus_not_seen", evidence="no tool told", undecided=True)
        return (_judged("memory.gpu_planned", missing, Status.FAIL),)
    use = Trial(
        evidence="; ".join(map(str, seen)),
        figures={f"gpu{peak.gpu}_peak_bytes": float(peak.used_bytes) for peak in seen},
    )
    results = [_judged("memory.gpu_use", use, Status.WARN)]
    if len(seen) > 1:
        results.append(_judged("memory.gpu_balance", _balance(seen), Status.WARN))
    if plan is not None:
        results.append(_judged("memory.gpu_planned", _against_plan(seen, plan), Status.FAIL))
    return tuple(results)


def _balance(seen: Sequence[GpuPeak]) -> Trial:
    fullest = max(seen, key=lambda peak: peak.used_bytes)
    emptiest = min(seen, key=lambda peak: peak.used_bytes)
    spread = 1 - emptiest.used_bytes / fullest.used_bytes
    return Trial(
        reason="memory_imbalance" if spread > EVEN else None,
        evidence=f"fullest {fullest}; emptiest {emptiest}",
        figures={"spread_ratio": spread},
    )


def _against_plan(seen: Sequence[GpuPeak], plan: Plan) -> Trial:
    """An engine turns what the plan calls headroom into cache, up to its budget: at least what is
    certain must be there, at most the budget and what lies outside of the pool.
    """
    expected = in_use(plan)
    low, high = expected.low, expected.high
    gib = 2**30
    most = "?" if high is None else f"{high / gib:.2f}"
    evidence = f"planned {low / gib:.2f} to {most} GiB; {'; '.join(map(str, seen))}"
    if len(seen) != plan.rack.gpu_count:
        evidence = f"{plan.rack.gpu_count} GPUs planned, {len(seen)} in use; {evidence}"
        return Trial(reason="gpus_differ", evidence=evidence)
    if high is not None and any(peak.used_bytes > high for peak in seen):
        return Trial(reason="memory_above_plan", evidence=evidence)
    # The plan is of the fullest rank: others may hold less.
    if max(peak.used_bytes for peak in seen) < low:
        return Trial(reason="memory_below_plan", evidence=evidence)
    return Trial(evidence=evidence)


def _judged(name: str, trial: Trial, on_failure: Status) -> CheckResult:
    check = Check(id=name, probe="", trials={}, on_failure=on_failure)
    return result(check, [trial], expected=frozenset())
