"""Receipts against plans: whether one speaks of the other, and the difference term by term."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from heavylift.records.plan import Agreement, Kind, Plan, Term, TermComparison
from heavylift.records.ranges import Interval
from heavylift.records.receipt import POOL, MeasuredTerm, Receipt

_READING = 0.005
"""How far a figure with two decimals and whole blocks lets one read bytes out of it."""

WORKLOAD_LAYERS = "layers"
"""In a receipt's workload: it is of so many layers of the model, as a first rehearsal has."""

_WEIGHTS = "weights"
_ANOTHER_MODEL = 1.5
"""Times more, or less, than planned: no engine pads or copies so much."""

_CERTAIN = frozenset({Kind.EXACT, Kind.SPEC, Kind.DERIVED})


def mismatch(receipt: Receipt, plan: Plan) -> str | None:
    """The first thing in which a receipt was taken of something else than the plan; None = of it.

    Model, variant, engine, version, rack and layout must be equal, and every setting that the
    receipt says its terms depend on. A receipt of some of the layers is of the plan too: what it
    tells are floors.
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
        *(
            (name, value, settings.get(name))
            for name, value in receipt.workload.items()
            if name != WORKLOAD_LAYERS
        ),
    ]
    other = next((name for name, of_receipt, of_plan in pairs if of_receipt != of_plan), None)
    if other is None and layers_of(receipt) is None:
        return _other_weights(receipt, plan)
    return other


def layers_of(receipt: Receipt) -> int | None:
    """How many layers of the model the start had; None = all."""
    layers = receipt.workload.get(WORKLOAD_LAYERS)
    return layers if isinstance(layers, int) else None


def _other_weights(receipt: Receipt, plan: Plan) -> str | None:
    """`weights` where an engine loaded what cannot be this model: a log does not name its own."""
    for name, entry in _summed(receipt.terms):
        if name == _WEIGHTS and plan.per_gpu.weights_bytes.low:
            times = entry.bytes / plan.per_gpu.weights_bytes.low
            if not 1 / _ANOTHER_MODEL < times < _ANOTHER_MODEL:
                return _WEIGHTS
    return None


def compare(plan: Plan, receipt: Receipt) -> tuple[TermComparison, ...]:
    """Every measured term against the plan's, in the receipt's order; the pool against what the
    plan leaves for it, and what a token (or a sequence) takes of it.
    """
    planned = {term.id: term for term in plan.terms}
    rows = []
    for name, entry in _summed(receipt.terms):
        if name != POOL:
            rows.append(_compared(planned.get(name), entry))
            continue
        rows.append(_against(POOL, _pool(plan), entry.bytes, entry))
        each = _each(plan, receipt, entry)
        if each is not None:
            rows.append(each)
    return tuple(rows)


def _pool(plan: Plan) -> Interval:
    """What the plan leaves for cache and state: at least their need, at most all that is left."""
    need = plan.per_gpu.kv_cache_bytes.low + plan.per_gpu.recurrent_state_bytes.low
    return Interval(low=need, high=max(need, need + plan.per_gpu.headroom_bytes))


def _each(plan: Plan, receipt: Receipt, pool: MeasuredTerm) -> TermComparison | None:
    """Bytes of a token; where sequences keep states or windows, bytes of a whole one, since engines
    count the tokens of such pools in several ways.
    """
    kv, state = plan.per_gpu.kv_cache_bytes, plan.per_gpu.recurrent_state_bytes
    by_tokens = plan.kv_bytes_per_token * plan.context_tokens // _ways(plan)
    # Whole pages aside, a cache of tokens alone is what its tokens take.
    if state.low == 0 and kv.low <= by_tokens + by_tokens // 50 and "kv_tokens" in receipt.figures:
        tokens = receipt.figures["kv_tokens"] / plan.layout.data_parallel_size
        each = Interval.exactly(round(plan.kv_bytes_per_token / _ways(plan)))
        slack = round(each.low * _READING) + 1
        return _against("kv_bytes_per_token", each, round(pool.bytes / tokens), pool, slack)
    sequences = receipt.figures.get("most_sequences")
    if not sequences or receipt.figures.get("context_tokens") != plan.context_tokens:
        return None
    need = Interval(low=kv.low + state.low, high=(kv.high or kv.low) + (state.high or state.low))
    measured = round(pool.bytes / sequences)
    return _against("kv_bytes_per_sequence", need, measured, pool, round(measured * _READING))


def _ways(plan: Plan) -> int:
    return plan.layout.decode_context_parallel_size


def _against(
    name: str, planned: Interval, measured: int, entry: MeasuredTerm, slack: int | None = None
) -> TermComparison:
    resolution = entry.resolution_bytes if slack is None else slack
    return TermComparison(
        term=name,
        planned=planned,
        measured_bytes=measured,
        resolution_bytes=resolution,
        agreement=_agrees(planned, measured, resolution),
        line=entry.line,
    )


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
    return _agrees(term.bytes, entry.bytes, entry.resolution_bytes)


def _agrees(planned: Interval, measured: int, resolution: int) -> Agreement:
    if planned.is_point:
        near = abs(planned.low - measured) <= resolution
        return Agreement.EQUAL if near else Agreement.OUTSIDE
    high = planned.low if planned.high is None else planned.high
    inside = planned.low - resolution <= measured <= high + resolution
    return Agreement.INSIDE if inside else Agreement.OUTSIDE


def with_measured(terms: tuple[Term, ...], receipt: Receipt) -> tuple[Term, ...]:
    """Terms with measured bytes in place of reported, assumed and unknown ones. Of some of the
    layers they are floors: the whole takes as much at least, and stays as unsure as it was.
    """
    measured = dict(_summed(receipt.terms))
    replaced = _measured if layers_of(receipt) is None else _at_least
    return tuple(
        replaced(term, measured[term.id])
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


def _at_least(term: Term, entry: MeasuredTerm) -> Term:
    low, high = term.bytes.low, term.bytes.high
    if entry.bytes <= low:
        return term
    raised = Interval(low=entry.bytes, high=None if high is None else max(high, entry.bytes))
    return replace(term, bytes=raised, note=entry.line)
