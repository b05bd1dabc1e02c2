"""Rules of the size language that hold for any expression."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from heavylift.facts.expressions import ExpressionError, evaluate, names

DIMS = {"a": 3, "b": 8, "c": 1, "zero": 0}

sums = st.recursive(
    st.sampled_from(sorted(DIMS)) | st.integers(0, 10**6).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=8,
)


@given(sums)
def test_sums_and_products_are_those_of_python(expression: str) -> None:
    """Without division the language agrees with Python's own arithmetic on whole numbers."""
    assert evaluate(expression, DIMS) == eval(expression, {}, DIMS)  # noqa: S307 - oracle


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_ceil_is_the_smallest_whole_number_not_below(top: int, bottom: int) -> None:
    """`ceil(a/b)` is exact for numbers that floating point cannot hold."""
    result = evaluate("ceil(top/bottom)", {"top": top, "bottom": bottom})
    assert (result - 1) * bottom < top <= result * bottom


@given(sums)
def test_only_the_names_an_expression_lists_are_needed(expression: str) -> None:
    """An expression evaluates with exactly the dimensions `names` returns."""
    needed = {name: DIMS[name] for name in names(expression)}
    assert evaluate(expression, needed) == evaluate(expression, DIMS)


@given(st.text(max_size=40))
def test_any_text_gives_a_number_or_an_expression_error(text: str) -> None:
    """Facts files are written by people: no text may raise anything else."""
    with contextlib.suppress(ExpressionError):
        assert isinstance(evaluate(text, DIMS), int)
