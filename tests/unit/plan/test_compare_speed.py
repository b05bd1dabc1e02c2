"""Speed and cost beside the bytes of a comparison."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heavylift.plan.compare_speed import RowSpeed, row_speed
from heavylift.plan.planner import Knowledge
from heavylift.planning import Planning
from heavylift.records.plan import Plan
from heavylift.records.speed import Evidence, SpeedWorkload

Columns = Callable[..., RowSpeed | None]
WORK = SpeedWorkload(concurrency=32, input_tokens=8192, output_tokens=1024)


@pytest.fixture(scope="module")
def columns(
    planning: Planning,
    knowledge_of: Callable[[str], Knowledge],
    make_plan: Callable[..., Plan],
) -> Columns:
    """The speed columns of K3 on a rack."""

    def of(rack: str, work: SpeedWorkload = WORK, **given: str) -> RowSpeed | None:
        plan = make_plan("kimi-k3", rack, context_tokens=work.context_tokens, **given)
        catalog = planning.catalog
        return row_speed(plan, knowledge_of("kimi-k3"), catalog.speed(), catalog.prices(), work)

    return of


def test_a_known_class_has_a_narrow_band_and_a_cost(columns: Columns) -> None:
    """Cheapest rent over fastest, dearest over slowest."""
    found = columns("8xB300", engine="sglang")
    assert found is not None
    assert found.evidence is Evidence.KNOWN
    assert found.tpot_s.width <= 2.5
    assert found.usd_per_million_output is not None
    dearest = 8 * 7.89 / (found.output_tokens_per_s.low * 3600) * 1e6
    assert found.usd_per_million_output.high == pytest.approx(dearest)


def test_without_a_public_rent_there_is_no_cost(columns: Columns) -> None:
    """Nothing is invented for the MI355X."""
    found = columns("8xMI355X", engine="atom")
    assert found is not None
    assert found.usd_per_million_output is None


def test_what_a_rack_does_not_hold_at_once_is_not_counted(columns: Columns) -> None:
    """Asked for a thousand long ones, the columns are those of what fits."""
    found = columns(
        "8xMI355X", SpeedWorkload(concurrency=1000, input_tokens=200_000, output_tokens=99)
    )
    assert found is not None
    assert 1 <= found.concurrency < 1000


def test_what_does_not_fit_has_no_speed(columns: Columns) -> None:
    """K3 on eight H100."""
    assert columns("8xH100") is None
