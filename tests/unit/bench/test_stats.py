"""Figures of a benchmark: definitions, what is left out, and the comparison of two runs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from heavylift.bench.records import Sample
from heavylift.bench.slo import Slo
from heavylift.bench.stats import compare, distribution, figures, tpot_s
from heavylift.wire.failures import Failure


def sample(index: int = 0, **given: Any) -> Sample:
    """A good request: first token after 0.2 s, ten tokens 0.02 s apart."""
    return Sample(
        **{
            "index": index,
            "prompt_digest": f"p{index}",
            "scheduled_s": 0.0,
            "started_s": 0.0,
            "ended_s": 0.4,
            "ttft_s": 0.2,
            "tpot_s": 0.02,
            "e2e_s": 0.38,
            "itl_s": (0.02,) * 9,
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "chunks": 10,
            **given,
        }
    )


def test_time_per_token_leaves_out_the_tokens_of_the_first_chunk() -> None:
    """(0.38 - 0.2) / (10 - 1); with four tokens in the first chunk, / 6; none after it: no time."""
    assert tpot_s(0.2, 0.38, 10, 1) == pytest.approx(0.02)
    assert tpot_s(0.2, 0.38, 10, 4) == pytest.approx(0.03)
    assert tpot_s(0.2, 0.2, 1, 1) is None
    assert tpot_s(None, None, 10, 1) is None


def test_failures_are_counted_and_left_out_of_every_latency() -> None:
    """Their times and tokens would flatter or spoil the others."""
    failed = sample(1, failure=Failure.STREAM_BROKEN, ttft_s=9.0, completion_tokens=500)
    found = figures([sample(), failed])
    assert found.requests.ok == 1
    assert found.requests.failures == {"stream_broken": 1}
    assert found.error_rate == 0.5
    assert found.ttft_s is not None
    assert found.ttft_s.max == 0.2
    assert found.output_tokens_per_s == pytest.approx(10 / 0.4)


def test_the_window_runs_from_the_first_send_to_the_last_byte() -> None:
    """Two requests, one after the other, with a pause: the pause is part of it."""
    found = figures([sample(started_s=1.0, ended_s=2.0), sample(1, started_s=4.0, ended_s=6.0)])
    assert found.window_s == 5.0
    assert found.achieved_per_s == pytest.approx(2 / 5)


def test_gaps_between_chunks_of_several_tokens_are_called_so() -> None:
    """Fewer than 0.9 chunks per token: the gap says nothing per token."""
    assert not figures([sample()]).itl_is_chunk_gap
    bundled = figures([sample(chunks=5, completion_tokens=10)])
    assert bundled.itl_is_chunk_gap
    assert bundled.chunks_per_token == 0.5


def test_what_the_server_does_not_say_is_unknown_and_not_zero() -> None:
    """One request without a count makes the sum unknown."""
    found = figures([sample(cached_tokens=50), sample(1, cached_tokens=None)])
    assert found.cached_share is None
    known = figures([sample(cached_tokens=50), sample(1, cached_tokens=0)])
    assert known.cached_share == 0.25
    assert figures([sample(prompt_tokens=None)]).total_tokens_per_s is None


def test_goodput_counts_what_meets_every_goal() -> None:
    """A success that is too slow in one of them is no goodput."""
    slo = Slo.parse("ttft_p99=250ms,tpot_p99=30ms")
    slow = sample(1, ttft_s=0.3)
    found = figures([sample(), slow, sample(2, tpot_s=0.05)], slo)
    assert found.goodput_per_s == pytest.approx(1 / 0.4)
    assert found.slo_met is False
    assert figures([sample()], slo).slo_met is True
    assert figures([sample(failure=Failure.EMPTY)], slo).slo_met is False


def test_the_length_that_was_asked_for_is_compared_with_what_came() -> None:
    """Mean of the relative differences; unknown when no length was asked for."""
    found = figures([sample(wanted_tokens=10), sample(1, wanted_tokens=20)])
    assert found.output_length_deviation == pytest.approx(0.25)
    assert figures([sample()]).output_length_deviation is None


def test_nothing_measured_has_no_distribution() -> None:
    """None, not a row of zeros."""
    assert distribution([None, None]) is None
    assert figures([]).ttft_s is None


# --- two runs ------------------------------------------------------------------------------------


def run(shift_s: float, *, seed: int, first: int = 0) -> list[Sample]:
    """Sixty requests whose latency depends on the prompt far more than on the run."""
    chance = random.Random(seed)
    return [
        sample(
            first + number,
            ttft_s=0.1 + (number % 20) * 0.05 + shift_s + chance.gauss(0, 0.002),
            tpot_s=None,
            e2e_s=None,
        )
        for number in range(60)
    ]


def compared(a: list[Sample], b: list[Sample]) -> dict[str, Any]:
    """The changes by metric."""
    chance = random.Random(5).random
    comparison = compare(a, b, names=("a", "b"), chance=chance)
    return {"pairs": comparison.pairs, **{each.metric: each for each in comparison.changes}}


def test_pairs_find_a_small_shift_that_unpaired_runs_hide() -> None:
    """20 ms, where prompts differ by a second: seen with the same prompts, lost without."""
    paired = compared(run(0.0, seed=1), run(0.02, seed=2))
    assert paired["pairs"] == 60
    assert paired["ttft_p50"].is_worse is True
    assert paired["ttft_p50"].difference == pytest.approx(0.02, abs=0.01)
    unpaired = compared(run(0.0, seed=1), run(0.02, seed=2, first=100))
    assert unpaired["pairs"] == 0
    assert unpaired["ttft_p50"].is_worse is None


def test_a_run_against_its_like_shows_no_difference() -> None:
    """The interval holds zero; metrics that were not measured are left out."""
    same = compared(run(0.0, seed=1), run(0.0, seed=2))
    assert same["ttft_p50"].is_worse is None
    assert "tpot_p50" not in same


def test_an_improvement_is_one() -> None:
    """Below zero with its whole interval."""
    assert compared(run(0.05, seed=1), run(0.0, seed=2))["ttft_p50"].is_worse is False


def test_a_run_that_fails_more_is_worse_however_fast_the_rest_is() -> None:
    """Half of the requests lost and the others twice as fast: latencies alone would call it better.
    Without a failure anywhere the interval still has a width.
    """
    good = run(0.3, seed=1)
    lossy = [
        replace(each, failure=Failure.STREAM_BROKEN) if number % 2 else each
        for number, each in enumerate(run(0.0, seed=2))
    ]
    comparison = compare(good, lossy, names=("a", "b"), chance=random.Random(5).random)
    assert comparison.errors.is_worse is True
    assert comparison.errors.difference == 0.5
    assert comparison.requests_b.failures == {"stream_broken": 30}
    same = compare(good, good, names=("a", "b"), chance=random.Random(5).random)
    assert same.errors.is_worse is None
    assert same.errors.low < 0 < same.errors.high


def test_runs_of_several_loads_are_compared_where_they_share_one() -> None:
    """Two at once in the one and sixteen in the other are no change of the engine."""
    light = [replace(each, load="closed 2") for each in run(0.0, seed=1)]
    heavy = [replace(each, load="closed 8") for each in run(0.5, seed=1, first=100)]
    heavier = [replace(each, load="closed 16") for each in run(2.0, seed=2)]
    chance = random.Random(5).random
    comparison = compare([*light, *heavy], [*heavy, *heavier], names=("a", "b"), chance=chance)
    assert comparison.loads == ("closed 8",)
    assert (comparison.pairs, comparison.requests_a.ok) == (60, 60)
    assert comparison.changes[0].difference == 0
    alone = compare(light, heavier, names=("a", "b"), chance=chance)
    assert (alone.loads, alone.pairs) == ((), 60)
