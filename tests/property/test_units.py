"""What is shown reads back as what it was."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from heavylift.units import format_bytes, format_tokens, parse_bytes, parse_tokens

counts = st.integers(1, 2**60) | st.builds(
    lambda count, shift: count << shift, st.integers(1, 9999), st.sampled_from([10, 20])
)


@given(counts)
def test_token_counts_read_back(tokens: int) -> None:
    """Showing and reading a token count is the identity."""
    assert parse_tokens(format_tokens(tokens)) == tokens


@given(st.integers(0, 2**60))
def test_bytes_read_back(value: int) -> None:
    """Showing and reading a count of bytes is the identity."""
    assert parse_bytes(format_bytes(value)) == value


@given(st.text(max_size=30))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    """Nothing a person types gives another error, a negative count, or no tokens."""
    with contextlib.suppress(ValueError):
        assert parse_tokens(text) >= 1
    with contextlib.suppress(ValueError):
        assert parse_bytes(text) >= 0
