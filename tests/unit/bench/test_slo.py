"""Goals and the search for the most that meets them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.bench.slo import Search, Slo
from heavylift.errors import HeavyliftError
from heavylift.slo import Goal


def test_goals_are_read_in_seconds() -> None:
    """Both units, several goals."""
    slo = Slo.parse("ttft_p99=2s, tpot_p50=50ms")
    assert slo.goals == (
        Goal(metric="ttft", statistic="p99", limit_s=2.0),
        Goal(metric="tpot", statistic="p50", limit_s=0.05),
    )


@pytest.mark.parametrize(
    "text", ["", "ttft=2s", "ttft_p99=2", "ttft_p42=2s", "speed_p99=2s", "ttft_p99=1.2.3s"]
)
def test_what_is_no_goal_is_refused(text: str) -> None:
    """A unit is needed, a known metric, a known statistic, a number."""
    with pytest.raises(HeavyliftError, match="USE060"):
        Slo.parse(text)


@given(st.integers(0, 300), st.integers(1, 300))
def test_the_search_finds_the_most_within_a_tenth(truth: int, highest: int) -> None:
    """Whatever the true limit: the best found meets it, and a tenth more does not, or is barred."""
    search = Search(highest=highest)
    tried: list[int] = []
    while (concurrency := search.next()) is not None:
        assert concurrency not in tried
        assert 1 <= concurrency <= highest
        tried.append(concurrency)
        search.note(concurrency, met=concurrency <= truth, valid=True)
    if truth == 0:
        assert search.best is None
        assert search.ended_by == "slo"
    elif truth >= highest:
        assert search.best == highest
        assert search.ended_by == "limit"
    else:
        assert search.best is not None
        assert search.best <= truth
        assert truth <= search.best + max(1, int(0.1 * search.best))
        assert search.ended_by == "slo"
    assert len(tried) <= 18


def test_the_search_ends_where_the_client_cannot_measure() -> None:
    """Twice at the same load: once may be a moment's business of its machine. What was found before
    stands, and the reason is said.
    """
    search = Search(highest=100)
    for met in (True, True):
        concurrency = search.next()
        assert concurrency is not None
        search.note(concurrency, met=met, valid=True)
    concurrency = search.next()
    assert concurrency == 4
    search.note(concurrency, met=True, valid=False)
    assert search.next() == 4
    search.note(4, met=True, valid=True)
    assert search.next() == 8
    for _ in range(2):
        search.note(8, met=True, valid=False)
    assert search.next() is None
    assert (search.best, search.ended_by) == (4, "invalid")
