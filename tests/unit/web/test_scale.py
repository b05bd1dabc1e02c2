"""Tracks and ticks of the page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.web.scale import Track, concurrency_track, context_track, decade_ticks, round_ticks


def test_a_context_of_a_million_is_the_end_of_its_track() -> None:
    """From 4k to 1M are eight doublings, four steps each."""
    track = context_track(1 << 20)
    assert (track.positions, track.place(4096), track.place(1 << 20)) == (32, 0.0, 1.0)
    assert track.position(65536) == 16


def test_a_model_of_a_short_context_has_a_track() -> None:
    """A track is never without length."""
    assert context_track(2048).positions > 0


@given(st.integers(1, 1 << 24), st.integers(1, 1 << 24))
def test_places_are_in_order_and_on_the_track(one: int, other: int) -> None:
    """More lies further right, and nothing lies outside."""
    track = concurrency_track()
    low, high = sorted((one, other))
    assert 0 <= track.place(low) <= track.place(high) <= 1


@given(st.floats(1e-3, 1e9))
def test_round_ticks_reach_over_the_value(high: float) -> None:
    """The axis holds the highest value, and not many times over."""
    ticks = round_ticks(high)
    assert ticks[0] == 0
    assert high <= ticks[-1] * (1 + 1e-6)
    assert len(ticks) <= 7


@given(st.floats(1e-2, 1e4), st.floats(1.5, 1e4))
def test_decade_ticks_hold_both_ends(low: float, factor: float) -> None:
    """A logarithmic axis begins at or below the lowest and ends at or above the highest."""
    ticks = decade_ticks(low, low * factor)
    assert ticks[0] <= low * (1 + 1e-9)
    assert ticks[-1] >= low * factor * (1 - 1e-9)
    assert list(ticks) == sorted(set(ticks))


def test_a_track_has_whole_positions() -> None:
    """The last position stands for the end, also when that is no power of two."""
    assert Track(low=1, high=3).positions == 7
    assert Track(low=1, high=3).place(3) == pytest.approx(0.905, abs=0.01)
