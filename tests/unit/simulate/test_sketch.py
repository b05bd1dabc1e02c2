"""Quantiles of streams."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.simulate.sketch import RELATIVE_ERROR, Sketch


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=300), st.floats(0, 1))
def test_a_quantile_is_the_value_of_its_rank_within_the_stated_error(
    values: list[float], share: float
) -> None:
    """Whatever the values are."""
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    exact = sorted(values)[math.floor(share * (len(values) - 1))]
    assert sketch.quantile(share) == pytest.approx(exact, rel=1.01 * RELATIVE_ERROR)


def test_means_are_exact_and_nothing_is_zero() -> None:
    """The mean is that of the values; no values give 0, zeros count."""
    sketch = Sketch()
    assert (sketch.mean, sketch.quantile(0.5)) == (0.0, 0.0)
    for value in (0.0, 0.0, 3.0):
        sketch.add(value)
    assert sketch.mean == 1.0
    assert sketch.quantile(0.5) == 0.0
    assert sketch.largest == 3.0
