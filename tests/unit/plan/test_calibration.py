"""Classes, what makes one known, and fits."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

import pytest

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import FactKind
from heavylift.facts.speed_schema import SpeedClassBook, SpeedClassFacts, SpeedSpreadFacts
from heavylift.plan.calibration import (
    Observation,
    anchored,
    calibrate,
    fit_fixed,
    quantile,
    shrunk,
    spread,
    spread_of,
)
from heavylift.records.speed import Evidence

CLASS = SpeedClassFacts(
    kind=FactKind.DERIVED,
    source="rows",
    as_of=date(2026, 11, 30),
    gpu="card",
    engine="engine",
    crosses_nodes=False,
    fixed_us_per_layer=120.0,
    low_ratio=0.8,
    high_ratio=1.5,
    rows=12,
    sweeps=3,
    versions=("1.0",),
    drawn_from=("rows",),
    first=date(2026, 1, 1),
    last=date(2026, 2, 1),
)


def a_spread(setting: str, low: float, high: float, fixed: float | None = None) -> SpeedSpreadFacts:
    """The spread of a setting."""
    return SpeedSpreadFacts(
        kind=FactKind.DERIVED,
        source="rows",
        as_of=date(2026, 11, 30),
        setting=setting,
        low_ratio=low,
        high_ratio=high,
        rows=50,
        classes=9,
        fixed_us_per_layer=fixed,
    )


BOOK = SpeedClassBook(
    classes=(CLASS,),
    spreads=(a_spread("unseen", 0.6, 2.4, 100.0), a_spread("anchored", 0.8, 1.2)),
)


def a_book(**changes: object) -> SpeedClassBook:
    """The book with its class changed."""
    return replace(BOOK, classes=(replace(CLASS, **changes),))  # type: ignore[arg-type] # fields


def line(measured_ms: float, base_ms: float, layers: int = 100) -> Observation:
    """A measured time and a model of a base and a fixed cost per layer."""
    return Observation(
        measured_s=measured_ms / 1000,
        model_s=lambda fixed_us: base_ms / 1000 + layers * fixed_us * 1e-6,
    )


def test_the_fixed_cost_of_one_row_is_what_is_missing() -> None:
    """25 ms measured, 5 ms modelled, 100 layers: 200 us each."""
    assert fit_fixed([line(25, 5)]) == pytest.approx(200, rel=1e-4)


def test_the_fixed_cost_of_several_rows_is_in_their_middle() -> None:
    """Half of the rows are slower than the model, half faster."""
    rows = [line(15, 5), line(25, 5), line(95, 5)]
    assert fit_fixed(rows) == pytest.approx(200, rel=1e-4)


def test_a_model_slower_than_the_row_needs_no_fixed_cost() -> None:
    """It cannot be negative."""
    assert fit_fixed([line(4, 5)]) == pytest.approx(0, abs=0.01)


def test_quantiles_lie_between_neighbours() -> None:
    """A tenth into 0, 1, 2 is 0.2."""
    assert quantile([2, 0, 1], 0.1) == pytest.approx(0.2)
    assert quantile([7.0], 0.9) == 7.0


def test_a_spread_leaves_out_a_tenth_at_either_end() -> None:
    """Eleven ratios from e^0 to e^10: from the second to the last but one."""
    low, high = spread([float(n) for n in range(11)])
    assert [math.log(low), math.log(high)] == pytest.approx([1, 9])


def test_few_independent_groups_leave_out_less() -> None:
    """Nine groups: nothing is left out; ninety-nine: nearly a tenth."""
    ratios = [float(n) for n in range(11)]
    assert spread(ratios, 9) == pytest.approx((math.exp(0), math.exp(10)))
    assert spread(ratios, 10**9) == pytest.approx(spread(ratios))
    assert spread(ratios, 1) == spread(ratios, 9)


def test_few_rows_are_drawn_to_the_others() -> None:
    """Ten rows weigh as much as all other classes."""
    assert shrunk((1.0, 1.0), 10, (0.25, 4.0)) == pytest.approx((0.5, 2.0))
    assert shrunk((1.0, 1.0), 0, (0.25, 4.0)) == pytest.approx((0.25, 4.0))


def test_a_class_with_rows_that_agree_is_known() -> None:
    """Its own fixed cost and spread, with sample size, versions and days."""
    found = calibrate(BOOK, "card", "engine", crosses_nodes=False)
    assert found.basis.evidence is Evidence.KNOWN
    assert found.fixed_s_per_layer == pytest.approx(120e-6)
    assert (found.basis.rows, found.basis.sweeps, found.basis.last) == (12, 3, "2026-02-01")


@pytest.mark.parametrize(
    ("book", "reason"),
    [(a_book(rows=2), "few_rows"), (a_book(high_ratio=2.5), "rows_disagree")],
)
def test_few_or_differing_rows_are_taken_and_said_to_be_thin(
    book: SpeedClassBook, reason: str
) -> None:
    """The class's own fixed cost and spread are nearer than those of all; the why is told."""
    found = calibrate(book, "card", "engine", crosses_nodes=False)
    assert (found.basis.evidence, found.basis.reason) == (Evidence.THIN, reason)
    assert (found.basis.low_ratio, found.basis.rows) == (0.8, book.classes[0].rows)
    assert found.fixed_s_per_layer == pytest.approx(120e-6)


def test_a_class_without_rows_gets_the_wide_spread() -> None:
    """That of classes left out, and the reason."""
    found = calibrate(BOOK, "other", "engine", crosses_nodes=False)
    assert (found.basis.evidence, found.basis.reason) == (Evidence.UNSEEN, "no_rows")
    assert (found.basis.low_ratio, found.basis.high_ratio) == (0.6, 2.4)
    assert found.fixed_s_per_layer == pytest.approx(100e-6)


def test_crossing_machines_is_another_class() -> None:
    """Rows inside a machine say nothing of the network."""
    found = calibrate(BOOK, "card", "engine", crosses_nodes=True)
    assert found.basis.reason == "no_rows"


def test_an_anchor_gives_the_fixed_cost_and_the_narrow_spread() -> None:
    """One point of the user's own service."""
    basis = calibrate(BOOK, "other", "engine", crosses_nodes=False).basis
    found = anchored(BOOK, basis, [line(25, 5)])
    assert found.fixed_s_per_layer == pytest.approx(200e-6, rel=1e-4)
    assert (found.basis.evidence, found.basis.rows) == (Evidence.ANCHORED, 1)
    assert found.basis.low_ratio == pytest.approx(0.8, rel=1e-4)


def test_an_anchor_faster_than_the_bytes_moves_the_spread() -> None:
    """Half the modelled time with no fixed cost left to take away."""
    basis = calibrate(BOOK, "card", "engine", crosses_nodes=False).basis
    found = anchored(BOOK, basis, [line(2.5, 5)])
    assert found.basis.high_ratio == pytest.approx(0.6, rel=1e-3)


def test_a_spread_that_lacks_is_an_error() -> None:
    """PLAN072, never a guess."""
    with pytest.raises(HeavyliftError) as caught:
        spread_of(BOOK, "ttft")
    assert caught.value.code == "PLAN072"
