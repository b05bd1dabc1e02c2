"""Memory of a start against its plan: term by term, card against card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from heavylift.observe import drift
from heavylift.records.finding import Severity
from heavylift.records.plan import Plan
from heavylift.records.ranges import Interval
from heavylift.records.receipt import MeasuredTerm, Receipt
from heavylift.units import GIB


def term(name: str, device: str, gib: float, resolution: int = 10_737_418) -> MeasuredTerm:
    """A term as a log with two decimals tells it."""
    return MeasuredTerm(
        term=name, device=device, bytes=round(gib * GIB), resolution_bytes=resolution, line=f"{gib}"
    )


@pytest.fixture(scope="module")
def plan(make_plan: Callable[..., Plan]) -> Plan:
    """K3 on eight B300."""
    return make_plan("kimi-k3", "8xB300", engine="vllm")


def receipt(plan: Plan, *terms: MeasuredTerm) -> Receipt:
    """A receipt of such terms."""
    return Receipt(
        model=plan.model,
        variant=plan.variant,
        engine=plan.engine,
        engine_version=plan.engine_version,
        backend="cuda",
        layout=plan.layout,
        rack=plan.rack.label,
        terms=terms,
    )


def test_two_percent_is_the_line(plan: Plan) -> None:
    """Weights 1.9 % over the plan are none of our business, 2.2 % over or under are a finding."""
    planned = plan.per_gpu.weights_bytes.low / GIB
    near = drift.differences(plan, receipt(plan, term("weights", "tp0", planned * 1.019)))
    assert near == ()
    for factor in (1.022, 0.978):
        (found,) = drift.differences(plan, receipt(plan, term("weights", "tp0", planned * factor)))
        assert (found.subject, found.severity) == ("weights", Severity.WARN)
        assert found.params["planned_low_bytes"] == plan.per_gpu.weights_bytes.low


def test_the_pool_is_what_the_plan_leaves(plan: Plan) -> None:
    """Cache, state and headroom together: an engine gives all of it to its cache."""
    per_gpu = plan.per_gpu
    grows = per_gpu.kv_cache_bytes.low + per_gpu.recurrent_state_bytes.low
    most = (per_gpu.budget_bytes - per_gpu.known_total_bytes + grows) / GIB
    assert drift.pool_findings(plan, (term(drift.POOL, "tp0", most),)) == ()
    (found,) = drift.pool_findings(plan, (term(drift.POOL, "tp0", most * 1.1),))
    assert found.subject == drift.POOL


def test_tokens_outside_the_capacity_are_named(plan: Plan) -> None:
    """The engine's own count against the plan's interval."""
    tokens = plan.capacity.kv_tokens
    assert drift.token_findings(plan, {"kv_tokens": float(tokens.low)}) == ()
    assert drift.token_findings(plan, {}) == ()
    (found,) = drift.token_findings(plan, {"kv_tokens": tokens.low / 2})
    assert found.params["observed"] == int(tokens.low / 2)


def test_a_card_that_holds_more_than_its_like_is_flagged() -> None:
    """190.97 against 181.7 GiB; stages of a pipeline are compared with themselves."""
    even = [term("weights", f"tp{n}", 181.7) for n in range(7)]
    assert drift.imbalance(even) == ()
    (found,) = drift.imbalance([*even, term("weights", "tp7", 190.97)])
    assert (found.subject, found.params["least"]) == ("tp7", "tp0")
    stages = [term("weights", "pp0.tp0", 100.0), term("weights", "pp1.tp0", 80.0)]
    assert drift.imbalance(stages) == ()


def test_nothing_is_outside_an_open_interval() -> None:
    """What has no upper bound cannot be exceeded; below its low it can be."""
    planned = Interval(low=100, high=None)
    assert not drift.is_outside(planned, 10**9, 0)
    assert drift.is_outside(planned, 90, 0)
    assert not drift.is_outside(replace(planned, low=0), 0, 0)
