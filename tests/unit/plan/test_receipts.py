"""Receipts against plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from heavylift.plan.planner import Knowledge, with_receipt
from heavylift.plan.receipts import compare, mismatch
from heavylift.records.plan import Agreement, Kind, Layout, Plan
from heavylift.records.receipt import MeasuredTerm, Receipt

GIVEN = {"engine": "embedded", "context_tokens": 4096, "concurrency": 4}
MIB = 2**20


def entry(term: str, size: int, device: str = "host") -> MeasuredTerm:
    """A measured term, printed to a hundredth of a MiB."""
    return MeasuredTerm(
        term=term, device=device, bytes=size, resolution_bytes=MIB // 100, line=f"{term} {size}"
    )


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    """SmolLM2 on this machine."""
    return make_plan("smollm2-135m-instruct", "this-machine", **GIVEN)


@pytest.fixture
def receipt(plan: Plan) -> Receipt:
    """What a start of that plan printed."""
    return Receipt(
        model=plan.model,
        variant=plan.variant,
        engine=plan.engine,
        engine_version=plan.engine_version,
        backend="cpu",
        layout=plan.layout,
        rack=plan.rack.label,
        terms=(
            entry("weights", 96_576_768),
            entry("kv_cache", 60 * MIB),
            entry("kv_cache", 30 * MIB, "other"),
            entry("workspace.compute_buffer", 16 * MIB),
            entry("workspace.output_buffer", 9 * MIB),
            entry("workspace.surprise", 1 * MIB),
        ),
        workload={"context_tokens": 4096, "max_num_seqs": 4, "kv_cache_dtype": "f16"},
        taken_at="2026-11-30T12:00:00+00:00",
    )


def test_a_receipt_of_the_same_start_matches(plan: Plan, receipt: Receipt) -> None:
    """Equal model, engine, rack, layout and settings: it speaks of the plan."""
    assert mismatch(receipt, plan) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": "other"}, "model"),
        ({"engine_version": "1"}, "engine_version"),
        ({"rack": "8xB300"}, "rack"),
        ({"layout": Layout(tensor_parallel_size=2)}, "layout"),
        ({"workload": {"context_tokens": 8192}}, "context_tokens"),
        ({"workload": {"colour": "red"}}, "colour"),
    ],
)
def test_a_receipt_of_another_start_is_named_and_not_used(
    plan: Plan,
    receipt: Receipt,
    knowledge_of: Callable[[str], Knowledge],
    change: dict[str, object],
    field: str,
) -> None:
    """The first difference is given, and the plan stays as it was, with a note."""
    other = replace(receipt, **change)  # type: ignore[arg-type] # fields of the record by name
    assert mismatch(other, plan) == field
    kept = with_receipt(plan, other, knowledge_of(plan.model))
    assert kept.terms == plan.terms
    assert [note.params for note in kept.notes if note.code == "receipt_of_other"] == [
        {"what": field}
    ]


def test_terms_are_compared_one_by_one(plan: Plan, receipt: Receipt) -> None:
    """Equal, new and different are told apart per term; devices of one term add up."""
    found = {entry.term: entry for entry in compare(plan, receipt)}
    assert found["weights"].agreement is Agreement.EQUAL
    assert found["kv_cache"].measured_bytes == 90 * MIB
    assert found["kv_cache"].agreement is Agreement.EQUAL
    assert found["workspace.compute_buffer"].agreement is Agreement.NEW
    assert found["workspace.output_buffer"].agreement is Agreement.OUTSIDE
    assert found["workspace.surprise"].agreement is Agreement.NEW
    assert found["workspace.surprise"].planned is None


def test_an_interval_holds_or_does_not(make_plan: Callable[..., Plan], receipt: Receipt) -> None:
    """A measured state inside the planned interval agrees; above it, not."""
    plan = make_plan("kimi-k3", "8xB300", engine="vllm")
    state = next(term for term in plan.terms if term.id == "recurrent_state.state_pages")
    assert state.bytes.high is not None
    for size, expected in (
        (state.bytes.low + 1, Agreement.INSIDE),
        (state.bytes.high + MIB, Agreement.OUTSIDE),
    ):
        (found,) = compare(plan, replace(receipt, terms=(entry(state.id, size),)))
        assert found.agreement is expected


def test_measured_terms_replace_unknown_ones_only(
    plan: Plan, receipt: Receipt, knowledge_of: Callable[[str], Knowledge]
) -> None:
    """The compute buffer becomes measured; exact and derived terms stay what they were."""
    measured = with_receipt(plan, receipt, knowledge_of(plan.model))
    kinds = {term.id: term.kind for term in measured.terms}
    assert kinds["workspace.compute_buffer"] is Kind.MEASURED
    assert kinds["workspace.output_buffer"] is Kind.DERIVED
    assert kinds["weights"] is Kind.EXACT
    assert measured.receipt == receipt.taken_at
    added = measured.per_gpu.known_total_bytes - plan.per_gpu.known_total_bytes
    assert added == 16 * MIB


def test_some_of_the_layers_give_floors(
    plan: Plan, receipt: Receipt, knowledge_of: Callable[[str], Knowledge]
) -> None:
    """A term that was unknown takes as much at least and has no more of an end than before; what
    is exact stays, and nothing is compared with the whole.
    """
    part = replace(receipt, workload={**receipt.workload, "layers": 4})
    assert mismatch(part, plan) is None
    found = with_receipt(plan, part, knowledge_of(plan.model))
    before = {term.id: term for term in plan.terms}["workspace.compute_buffer"]
    after = {term.id: term for term in found.terms}["workspace.compute_buffer"]
    assert before.kind is after.kind is not Kind.MEASURED
    assert (after.bytes.low, after.bytes.high) == (16 * MIB, before.bytes.high)
    assert after.note == "workspace.compute_buffer 16777216"
    assert found.measured == ()
    assert [note.params for note in found.notes if note.code == "receipt_of_layers"] == [
        {"layers": 4}
    ]
    less = replace(part, terms=(entry("workspace.compute_buffer", 0),))
    assert with_receipt(plan, less, knowledge_of(plan.model)).terms == plan.terms
