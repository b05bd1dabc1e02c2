"""Latency: what stops which clock."""

from __future__ import annotations

from heavylift.wire.reply import Delta
from heavylift.wire.timing import Latency, Stopwatch


def test_the_parts_count_from_the_moment_the_request_was_written() -> None:
    """Thinking stops the clock of the first token, the answer its own, a role-only chunk none."""
    watch = Stopwatch(100.0)
    watch.sent(100.5)
    watch.sent(101.0)
    watch.first_byte(101.25)
    watch.delta(Delta(role="assistant"), 101.5)
    watch.delta(Delta(reasoning="hm"), 102.0)
    watch.delta(Delta(text="4"), 103.0)
    watch.delta(Delta(text="2"), 103.5)
    watch.delta(Delta(finish_reason="stop"), 104.0)
    watch.ended(105.0)
    assert watch.latency() == Latency(
        connect_s=1.0,
        first_byte_s=0.25,
        ttft_s=1.0,
        ttfa_s=2.0,
        last_token_s=2.5,
        itl_s=(1.0, 0.5),
        e2e_s=4.0,
    )


def test_points_that_were_not_reached_are_unknown() -> None:
    """A request that was never written has no latency, and no zeros in its place."""
    watch = Stopwatch(100.0)
    watch.ended(110.0)
    assert watch.latency() == Latency()
    watch.sent(101.0)
    assert watch.latency() == Latency(connect_s=1.0, e2e_s=9.0)
