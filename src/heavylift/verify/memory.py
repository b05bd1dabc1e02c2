"""Planned against observed memory, from the plan and the engine's own log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from heavylift.plan.receipts import Agreement, TermComparison, compare
from heavylift.records.plan import Plan
from heavylift.telemetry import llamacpp
from heavylift.verify.judge import result
from heavylift.verify.records import Check, CheckResult, Profile, Status, Trial

_ON_OUTSIDE: Final = {Agreement.OUTSIDE: "memory_differs"}


def memory_results(plan: Plan, log: Sequence[str]) -> tuple[CheckResult, ...]:
    """A check per memory term of the log: equal to the plan, or inside its interval.

    Raises RUN020 when the log has no line about a term the engine always prints.
    """
    receipt = llamacpp.receipt(
        llamacpp.parse(log),
        model=plan.model,
        variant=plan.variant,
        engine=plan.engine,
        engine_version=plan.engine_version,
        rack=plan.rack.label,
        taken_at="",
    )
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
