"""Quotas: what is admitted, what is refused, and when to come back."""

from __future__ import annotations

import pytest

from heavylift.gateway.quota import (
    DAY_S,
    NO_LIMITS,
    Bound,
    Cost,
    Limit,
    Limits,
    Moment,
    Slice,
    Taken,
    cost,
    judge,
    lost,
    requests_left,
    tokens_left,
)

NOON = Moment(steady_s=1000.0, epoch_s=20_000 * DAY_S + DAY_S / 2)
"""Slice 200 on the steady clock, noon of day 20,000 on the wall clock."""


def test_the_moment_knows_its_slice_and_day() -> None:
    """Slices are five seconds; thirteen of them may touch the last sixty."""
    assert (NOON.slice, NOON.first_slice, NOON.day) == (200, 188, 20_000)


def test_without_limits_everything_is_admitted() -> None:
    """No limit, no refusal, nothing left to tell."""
    taken = Taken(day_settled_tokens=10**12, open_requests=10**6)
    assert judge(NO_LIMITS, taken, 10**12, NOON) is None
    assert tokens_left(NO_LIMITS, taken, NOON) is None
    assert requests_left(NO_LIMITS, taken, NOON) is None
    assert not NO_LIMITS.any


def test_a_limit_is_reached_exactly() -> None:
    """What fits to the last token is admitted; one token more is not."""
    limits = Limits(tokens_per_day=100)
    taken = Taken(day_settled_tokens=40, day_open_tokens=30)
    assert judge(limits, taken, 30, NOON) is None
    refusal = judge(limits, taken, 31, NOON)
    assert refusal is not None
    assert (refusal.limit, refusal.allowed, refusal.left) == (Limit.TOKENS_PER_DAY, 100, 30)


def test_a_spent_day_ends_at_midnight() -> None:
    """What finished requests took comes back when the UTC day ends."""
    refusal = judge(Limits(tokens_per_day=100), Taken(day_settled_tokens=90), 20, NOON)
    assert refusal is not None
    assert refusal.retry_after_s == DAY_S / 2


def test_what_open_requests_hold_may_come_back_soon() -> None:
    """A day that is only held, not spent, is worth another try at once."""
    taken = Taken(day_settled_tokens=10, day_open_tokens=85)
    refusal = judge(Limits(tokens_per_day=100), taken, 20, NOON)
    assert refusal is not None
    assert refusal.retry_after_s == 1.0


@pytest.mark.parametrize("limits", [Limits(tokens_per_day=10), Limits(tokens_per_minute=10)])
def test_a_request_larger_than_the_limit_never_fits(limits: Limits) -> None:
    """Waiting will not help it, so no wait is named."""
    refusal = judge(limits, Taken(), 11, NOON)
    assert refusal is not None
    assert refusal.retry_after_s is None


def test_requests_at_once_are_counted() -> None:
    """As many as allowed are open; the next one is refused until one ends."""
    limits = Limits(concurrent=2)
    assert judge(limits, Taken(open_requests=1), 5, NOON) is None
    refusal = judge(limits, Taken(open_requests=2), 5, NOON)
    assert refusal is not None
    assert (refusal.limit, refusal.retry_after_s) == (Limit.CONCURRENT, 1.0)


def test_a_key_that_may_do_nothing_is_told_so() -> None:
    """A limit of nothing at once is a refusal for ever."""
    refusal = judge(Limits(concurrent=0), Taken(), 1, NOON)
    assert refusal is not None
    assert refusal.retry_after_s is None


def test_the_minute_counts_every_slice_that_touches_it() -> None:
    """A slice 60 to 65 seconds old still counts, one older does not."""
    limits = Limits(tokens_per_minute=100)
    touching = Taken(slices=(Slice(number=188, requests=1, settled_tokens=100),))
    passed = Taken(slices=(Slice(number=187, requests=1, settled_tokens=100),))
    assert judge(limits, touching, 1, NOON) is not None
    assert judge(limits, passed, 100, NOON) is None


def test_the_wait_of_the_minute_is_that_of_the_slices_in_the_way() -> None:
    """It names the moment at which enough has passed, not a whole minute.

    Slice 190 began at 950 s and counts until slice 203 begins, at 1,015 s: 15 s from now.
    """
    taken = Taken(
        slices=(
            Slice(number=190, requests=1, settled_tokens=60),
            Slice(number=199, requests=1, settled_tokens=40),
        )
    )
    refusal = judge(Limits(tokens_per_minute=100), taken, 50, NOON)
    assert refusal is not None
    assert refusal.retry_after_s == pytest.approx(15.0)


def test_requests_per_minute_count_open_and_finished_ones() -> None:
    """Two requests, whatever they cost, leave one of three."""
    limits = Limits(requests_per_minute=3)
    taken = Taken(
        slices=(
            Slice(number=200, requests=1, open_tokens=9),
            Slice(number=198, requests=1, settled_tokens=5),
        )
    )
    assert requests_left(limits, taken, NOON) == 1
    assert judge(limits, taken, 10**9, NOON) is None
    more = Taken(slices=(*taken.slices, Slice(number=199, requests=1)))
    refusal = judge(limits, more, 1, NOON)
    assert refusal is not None
    assert refusal.limit is Limit.REQUESTS_PER_MINUTE


def test_the_tightest_token_limit_says_what_is_left() -> None:
    """Of minute and day the smaller rest counts, and it is never negative."""
    limits = Limits(tokens_per_minute=100, tokens_per_day=1000)
    taken = Taken(
        slices=(Slice(number=200, requests=1, settled_tokens=30),), day_settled_tokens=950
    )
    assert tokens_left(limits, taken, NOON) == 50
    assert tokens_left(limits, Taken(day_settled_tokens=2000), NOON) == 0


def test_an_open_length_is_shortened_to_what_is_left() -> None:
    """Only where the client left it open, and never below the least worth having."""
    open_ended = Bound(prompt_tokens=10, output_tokens=1000, elastic=True)
    stated = Bound(prompt_tokens=10, output_tokens=1000)
    assert open_ended.shortened(100, 16) == 90
    assert open_ended.shortened(20, 16) == 16
    assert open_ended.shortened(None, 16) == 1000
    assert stated.shortened(100, 16) == 1000


def test_the_engine_s_count_is_what_is_charged() -> None:
    """Where it says all, the bound plays no part."""
    charged = cost(
        Bound(prompt_tokens=50, output_tokens=100),
        prompt_tokens=7,
        completion_tokens=3,
        seen_tokens=99,
        cached_tokens=4,
    )
    assert charged == Cost(prompt_tokens=7, completion_tokens=3, cached_tokens=4)
    assert charged.tokens == 10


def test_what_the_engine_did_not_say_is_taken_from_what_is_known() -> None:
    """The bound for the prompt, the pieces seen for the answer; and it is marked."""
    bound = Bound(prompt_tokens=50, output_tokens=100)
    charged = cost(bound, prompt_tokens=None, completion_tokens=None, seen_tokens=12)
    assert charged == Cost(prompt_tokens=50, completion_tokens=12, estimated=True)
    most = cost(bound, prompt_tokens=None, completion_tokens=None, seen_tokens=500)
    assert most.completion_tokens == 100


def test_a_lost_request_is_charged_its_bound() -> None:
    """Nobody knows what an engine did for a gateway that died."""
    assert lost(Bound(prompt_tokens=5, output_tokens=6)) == Cost(
        prompt_tokens=5, completion_tokens=6, estimated=True
    )
