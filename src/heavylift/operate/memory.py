"""Memory of a start against its plan: term by term, card against card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from heavylift.errors import HeavyliftError
from heavylift.facts.log_schema import LogBook
from heavylift.launch.attempt import Attempt
from heavylift.observe.drift import (
    POOL,
    differences,
    imbalance,
    pool_findings,
    token_findings,
)
from heavylift.operate.recipes import Recipe
from heavylift.records.finding import Finding, Severity
from heavylift.records.plan import Plan
from heavylift.records.receipt import MeasuredTerm, Receipt
from heavylift.telemetry import llamacpp
from heavylift.telemetry.start_log import receipt_of, told


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Findings about the memory of a start, and its receipt where the log told enough for one."""

    findings: tuple[Finding, ...] = ()
    receipt: Receipt | None = None


def measure(recipe: Recipe, attempt: Attempt, log: Path, *, book: LogBook) -> Memory:
    """What the logs of a start tell of its memory, against the plan of the recipe."""
    plan = recipe.plan
    if plan is None:
        return Memory(findings=imbalance(attempt.terms()))
    if book.tells_buffers(recipe.spec.engine):
        return _by_buffers(plan, log)
    terms = attempt.terms()
    receipt = _receipt(plan, terms, attempt.figures())
    return Memory(
        findings=(
            *differences(plan, _without_pool(receipt)),
            *pool_findings(plan, terms),
            *token_findings(plan, attempt.figures()),
            *imbalance(terms),
        ),
        receipt=receipt if receipt.terms else None,
    )


def _by_buffers(plan: Plan, log: Path) -> Memory:
    lines = log.read_text("utf-8", "replace").splitlines()
    try:
        receipt = llamacpp.receipt_for(plan, lines, taken_at=_now())
    except HeavyliftError as error:
        return Memory(findings=(_untold(str(error.params["what"])),))
    return Memory(findings=differences(plan, receipt), receipt=receipt)


def _receipt(plan: Plan, terms: tuple[MeasuredTerm, ...], figures: Mapping[str, float]) -> Receipt:
    """A receipt of what was told per card, in the plan's terms: those of the fullest card."""
    settings: dict[str, int | str | None] = {
        "context_tokens": plan.context_tokens,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
        "kv_cache_dtype": plan.kv_cache_dtype,
    }
    return replace(
        receipt_of(told(plan.engine, terms, figures), plan),
        # The start was that of the plan's recipe: how its log numbers ranks does not say otherwise.
        layout=plan.layout,
        workload={name: value for name, value in settings.items() if value is not None},
        taken_at=_now(),
    )


def _without_pool(receipt: Receipt) -> Receipt:
    """The pool has findings of its own: need and headroom are compared together."""
    return replace(receipt, terms=tuple(term for term in receipt.terms if term.term != POOL))


def _untold(what: str) -> Finding:
    return Finding(
        id="run.memory.untold",
        code="run.memory.untold",
        severity=Severity.UNKNOWN,
        subject=what,
        params={"what": what},
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
