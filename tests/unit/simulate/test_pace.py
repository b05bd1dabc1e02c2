"""Runs of steps: a closed form for what the forecast says of each step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heavylift.plan.planner import Knowledge
from heavylift.plan.speed import forecaster
from heavylift.plan.step_time import StepTime
from heavylift.planning import Planning
from heavylift.records.plan import Plan
from heavylift.simulate.pace import Pace, Row, crossing, run_s, steps_by

MakePlan = Callable[..., Plan]
KnowledgeOf = Callable[[str], Knowledge]

times = st.floats(1e-6, 1.0)
rows = st.builds(Row, times, st.floats(0.0, 1e-6), st.floats(0.0, 1.0), times)


@given(row=rows, batch=st.integers(1, 500), held=st.integers(1, 10**6), steps=st.integers(1, 200))
def test_a_run_takes_what_its_steps_take(row: Row, batch: int, held: int, steps: int) -> None:
    """Up to where memory overtakes compute, the closed form is the sum of the steps."""
    turn = crossing(row, batch, held)
    steps = steps if turn is None else min(steps, turn)
    summed = sum(row.step_s(held + batch * done) for done in range(steps))
    assert run_s(row, batch, held, steps) == pytest.approx(summed, rel=1e-9)


@given(row=rows, batch=st.integers(1, 500), held=st.integers(1, 10**6), seconds=st.floats(1e-6, 50))
def test_a_run_is_cut_at_the_end_of_the_step_under_way(
    row: Row, batch: int, held: int, seconds: float
) -> None:
    """The fewest steps that reach the moment; one less does not (but for rounding)."""
    turn = crossing(row, batch, held)
    steps = steps_by(row, batch, held, seconds)
    assume(turn is None or steps <= turn)
    assert run_s(row, batch, held, steps) >= seconds * (1 - 1e-9)
    if steps > 1:
        assert run_s(row, batch, held, steps - 1) <= seconds * (1 + 1e-9)


@pytest.mark.parametrize(
    ("model", "rack", "sizes"),
    [
        ("kimi-k3", "8xB300", {}),
        ("kimi-k3", "2x8xH200", {"tensor": 8, "pipeline": 2, "engine": "vllm"}),
        ("kimi-k3", "2x8xH200", {"tensor": 8, "data": 2, "engine": "vllm"}),
        ("llama-3.1-8b", "1xH100", {}),
    ],
)
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_steps_are_those_of_the_forecast(  # noqa: PLR0917 - fixtures come by position
    planning: Planning,
    knowledge_of: KnowledgeOf,
    make_plan: MakePlan,
    model: str,
    rack: str,
    sizes: dict[str, int],
    batch: int,
) -> None:
    """A step in the simulator is `StepTime.step_s`, at any batch and context, times the factor."""
    plan = make_plan(model, rack, context_tokens=4096, **sizes)
    found = forecaster(plan, knowledge_of(model), planning.catalog.speed())
    step: StepTime = found.times(1e-4)
    pace = Pace.of(step, factor=1.5, drafted=3, accepted=2.0)
    for context in (100, 4000, 200_000):
        expected = 1.5 * step.step_s(batch, context, 4) / 2.0
        assert pace.row(batch).step_s(batch * context) == pytest.approx(expected, rel=1e-9)
    attention_s = pace.attention_s(1000, 0)
    alone = pace.chunk_s(1000, 1, attention_s) + pace.pass_s(1000, attention_s)
    assert alone == pytest.approx(step.prefill_s(1000), rel=1e-9)
