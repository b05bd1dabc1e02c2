"""Receipts against plans: whether one speaks of the other, and the difference term by term."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from heavylift.records.plan import Kind, Plan, Term
from heavylift.records.ranges import Interval
from heavylift.records.receipt import MeasuredTerm, Receipt

_CERTAIN = frozenset({Kind.EXACT, Kind.SPEC, Kind.DERIVED})


class Agreement(StrEnum):
    """How a measured term stands to the planned one."""

    EQUAL = "equal"
    """A planned number, and the measured one is it, as far as the log prints digits."""
    INSIDE = "inside"
    """A planned interval that holds the measured number."""
    OUTSIDE = "outside"
    """Neither: the plan is wrong, or something was started otherwise than planned."""
    NEW = "new"
    """The plan knew no bound, or no such term; now there is a number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TermComparison:
    """One term, planned and measured, in bytes. `resolution_bytes` is the log's last digit."""

    term: str
    planned: Interval | None
    measured_bytes: int
    resolution_bytes: int
    agreement: Agreement
    line: str


def mismatch(receipt: Receipt, plan: Plan) -> str | None:
    """The first thing in which a receipt was taken of something else than the plan; None = of it.

    Model, variant, engine, version, rack and layout must be equal, and every setting that the
    receipt says its terms depend on.
    """
    settings: dict[str, int | str | None] = {
        "context_tokens": plan.context_tokens,
        "max_num_seqs": plan.concurrency,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
        "kv_cache_dtype": plan.kv_cache_dtype,
    }
    pairs: list[tuple[str, object, object]] = [
        ("model", receipt.model, plan.model),
        ("variant", receipt.variant, plan.variant),
        ("engine", receipt.engine, plan.engine),
        ("engine_version", receipt.engine_version, plan.engine_version),
        ("rack", receipt.rack, plan.rack.label),
        ("layout", receipt.layout, plan.layout),
        *((name, value, settings.get(name)) for name, value in receipt.workload.items()),
    ]
    return next((name for name, of_receipt, of_plan in pairs if of_receipt != of_plan), None)


def compare(plan: Plan, receipt: Receipt) -> tuple[TermComparison, ...]:
    """Every measured term against the plan's, in the receipt's order."""
    planned = {term.id: term for term in plan.terms}
    return tuple(_compared(planned.get(name), entry) for name, entry in _summed(receipt.terms))


def _summed(entries: Iterable[MeasuredTerm]) -> list[tuple[str, MeasuredTerm]]:
    """Entries of one term on several devices become one: a host has one memory."""
    sums: dict[str, MeasuredTerm] = {}
    for entry in entries:
        before = sums.get(entry.term)
        sums[entry.term] = (
            entry
            if before is None
            else MeasuredTerm(
                term=entry.term,
                device=f"{before.device}+{entry.device}",
                bytes=before.bytes + entry.bytes,
                resolution_bytes=before.resolution_bytes + entry.resolution_bytes,
                line=before.line,
            )
        )
    return list(sums.items())


def _compared(term: Term | None, entry: MeasuredTerm) -> TermComparison:
    return TermComparison(
        term=entry.term,
        planned=None if term is None else term.bytes,
        measured_bytes=entry.bytes,
        resolution_bytes=entry.resolution_bytes,
        agreement=_agreement(term, entry),
        line=entry.line,
    )


def _agreement(term: Term | None, entry: MeasuredTerm) -> Agreement:
    if term is None or term.bytes.high is None:
        return Agreement.NEW
    if term.bytes.is_point:
        near = abs(term.bytes.low - entry.bytes) <= entry.resolution_bytes
        return Agreement.EQUAL if near else Agreement.OUTSIDE
    low, high = term.bytes.low - entry.resolution_bytes, term.bytes.high + entry.resolution_bytes
    return Agreement.INSIDE if low <= entry.bytes <= high else Agreement.OUTSIDE


def with_measured(terms: tuple[Term, ...], receipt: Receipt) -> tuple[Term, ...]:
    """Terms with measured bytes in place of reported, assumed and unknown ones."""
    measured = dict(_summed(receipt.terms))
    return tuple(
        _measured(term, measured[term.id])
        if term.id in measured and term.kind not in _CERTAIN
        else term
        for term in terms
    )


def _measured(term: Term, entry: MeasuredTerm) -> Term:
    return Term(
        id=term.id,
        segment=term.segment,
        kind=Kind.MEASURED,
        bytes=Interval.exactly(entry.bytes),
        formula=term.formula,
        source="receipt",
        note=entry.line,
    )
