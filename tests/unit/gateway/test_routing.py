"""Routing: who gets a request, who gets none, and why."""

from __future__ import annotations

from collections import Counter

import pytest

from heavylift.gateway.routing import (
    AFFINITY_BYTES,
    FAILURES_IN_A_ROW,
    Fleet,
    Lane,
    Routes,
    State,
    Upstream,
    Worker,
    counts_against,
    may_retry,
    patience_s,
)
from heavylift.wire.failures import Failure

LONG_PREFIX = b"x" * AFFINITY_BYTES


def fleet(*upstreams: Upstream, **aliases: str) -> Fleet:
    """A fleet whose workers are all in and serve the model `m`."""
    made = Fleet(Routes(upstreams=upstreams, aliases=aliases, long_from_tokens=1000))
    for worker in made.workers.values():
        made.probe_succeeded(worker, ("m",))
    return made


def up(name: str, weight: float = 1.0, lane: Lane = Lane.ALL) -> Upstream:
    """A worker's configuration."""
    return Upstream(name=name, url=f"http://{name}", weight=weight, lane=lane)


def choose(
    fleet: Fleet, prefix: bytes = b"", tokens: int = 10, excluded: tuple[str, ...] = ()
) -> str | None:
    """The name of the chosen worker."""
    worker = fleet.choose("m", prompt_tokens=tokens, prefix=prefix, excluded=excluded)
    return None if worker is None else worker.upstream.name


def fail(fleet: Fleet, worker: Worker, failure: Failure | None, status: int | None = None) -> None:
    """A request that begins and ends so."""
    fleet.began(worker, 10, 0.0)
    fleet.ended(worker, 10, failure, status)


def test_the_least_loaded_worker_gets_it() -> None:
    """Load is what open requests may still cost, not how many there are."""
    two = fleet(up("a"), up("b"))
    two.began(two.workers["a"], 100, 0.0)
    for _ in range(3):
        two.began(two.workers["b"], 10, 0.0)
    assert choose(two) == "b"


def test_weights_share_out_the_load() -> None:
    """A worker of weight three carries three times as much."""
    two = fleet(up("a", weight=3.0), up("b"))
    carried = Counter[str]()
    for _ in range(400):
        name = choose(two)
        assert name is not None
        two.began(two.workers[name], 10, 0.0)
        carried[name] += 1
    assert carried["a"] == pytest.approx(300, abs=2)


def test_idle_workers_take_turns() -> None:
    """One request after the other goes round."""
    two = fleet(up("a"), up("b"))
    names = []
    for _ in range(4):
        name = choose(two)
        assert name is not None
        names.append(name)
        fail(two, two.workers[name], None, 200)
    assert Counter(names) == {"a": 2, "b": 2}


def test_the_same_beginning_goes_to_the_same_worker() -> None:
    """Until that one is much busier than the least busy."""
    four = fleet(*(up(name) for name in "abcd"))
    home = choose(four, LONG_PREFIX)
    assert home is not None
    four.began(four.workers[home], 10_000, 0.0)
    assert choose(four, LONG_PREFIX) == home
    four.began(four.workers[home], 100_000, 0.0)
    assert choose(four, LONG_PREFIX) != home


def test_different_beginnings_spread_by_weight() -> None:
    """Homes are shared out in proportion; short prompts have none."""
    three = fleet(up("a", weight=2.0), up("b"), up("c"))
    homes = Counter(choose(three, b"%05d" % number + LONG_PREFIX) for number in range(4000))
    assert homes["a"] == pytest.approx(2000, rel=0.1)
    assert homes["b"] == pytest.approx(1000, rel=0.15)


def test_when_a_worker_goes_only_its_own_prompts_move() -> None:
    """All other homes stay where their cache is."""
    three = fleet(up("a"), up("b"), up("c"))
    prompts = [b"%05d" % number + LONG_PREFIX for number in range(300)]
    before = [choose(three, prompt) for prompt in prompts]
    three.throw_out(three.workers["b"], "gone")
    after = [choose(three, prompt) for prompt in prompts]
    moved = [was for was, now in zip(before, after, strict=True) if was != now]
    assert set(moved) == {"b"}
    assert "b" not in after


def test_long_prompts_have_a_lane() -> None:
    """Short ones stay out of it, and both go elsewhere when theirs has nobody."""
    two = fleet(up("short"), up("long", lane=Lane.LONG))
    assert choose(two, tokens=999) == "short"
    assert choose(two, tokens=1000) == "long"
    two.throw_out(two.workers["long"], "gone")
    assert choose(two, tokens=1000) == "short"


def test_a_request_goes_only_where_its_model_is() -> None:
    """Unknown models have no worker; aliases lead to the worker's own name."""
    one = fleet(up("a"), nick="m", orphan="none")
    assert one.choose("other", prompt_tokens=1, prefix=b"") is None
    assert (one.model_of("nick"), one.model_of("m")) == ("m", "m")
    assert one.models() == ("m", "nick")
    assert one.knows("m")
    assert not one.knows("none")


def test_nobody_listening_throws_a_worker_out_at_once() -> None:
    """And a probe that answers lets it in again."""
    one = fleet(up("a"))
    worker = one.workers["a"]
    fail(one, worker, Failure.CONNECT)
    assert (worker.state, worker.reason, choose(one)) == (State.OUT, "connect", None)
    assert one.models() == ()
    one.probe_succeeded(worker, ("m",))
    assert choose(one) == "a"


def test_failures_in_a_row_trip_the_breaker() -> None:
    """A success between them begins the count anew."""
    one = fleet(up("a"))
    worker = one.workers["a"]
    for _ in range(FAILURES_IN_A_ROW - 1):
        fail(one, worker, Failure.SERVER_ERROR, 500)
    fail(one, worker, None, 200)
    for _ in range(FAILURES_IN_A_ROW - 1):
        fail(one, worker, Failure.SERVER_ERROR, 500)
    assert worker.takes
    fail(one, worker, Failure.SERVER_ERROR, 500)
    assert not worker.takes


@pytest.mark.parametrize("status", [400, 401, 404, 408, 413, 422, 429, 499])
@pytest.mark.parametrize("failure", list(Failure))
def test_no_4xx_ever_counts(status: int, failure: Failure) -> None:
    """Whatever it is called: such an error the request brought on itself."""
    assert not counts_against(failure, status)


def test_many_4xx_leave_a_worker_in() -> None:
    """A thousand over-long prompts are no reason."""
    one = fleet(up("a"))
    for _ in range(1000):
        fail(one, one.workers["a"], Failure.CONTEXT_TOO_LONG, 400)
    assert choose(one) == "a"


def test_probes_that_fail_in_a_row_throw_a_worker_out() -> None:
    """One that succeeds between them begins the count anew."""
    one = fleet(up("a"))
    worker = one.workers["a"]
    for _ in range(2):
        one.probe_failed(worker, "no_progress", 3)
    one.probe_succeeded(worker)
    for _ in range(2):
        one.probe_failed(worker, "no_progress", 3)
    assert worker.takes
    one.probe_failed(worker, "no_progress", 3)
    assert (worker.takes, worker.reason) == (False, "no_progress")


def test_silence_counts_only_with_open_requests() -> None:
    """An idle worker owes no progress, and its clock starts with its first request."""
    one = fleet(up("a"))
    worker = one.workers["a"]
    assert not one.stalled(worker, 30.0, 1e9)
    one.began(worker, 10, 100.0)
    assert not one.stalled(worker, 30.0, 129.0)
    assert one.stalled(worker, 30.0, 130.0)
    worker.progress_at = 125.0
    assert not one.stalled(worker, 30.0, 154.0)


def test_a_draining_worker_finishes_and_gets_nothing_new() -> None:
    """And it comes back when the draining ends."""
    one = fleet(up("a"))
    assert one.drain("a", draining=True)
    assert choose(one) is None
    assert one.drain("a", draining=False)
    assert choose(one) == "a"
    assert not one.drain("nobody", draining=True)


def test_a_second_try_goes_elsewhere() -> None:
    """Excluded workers are not chosen."""
    two = fleet(up("a"), up("b"))
    assert {choose(two, excluded=("a",)), choose(two, excluded=("b",))} == {"a", "b"}
    assert choose(two, excluded=("a", "b")) is None


@pytest.mark.parametrize(
    ("failure", "status", "stateless", "retried"),
    [
        (Failure.CONNECT, None, True, True),
        (Failure.CONNECT, None, False, True),
        (Failure.TIMEOUT_CONNECT, None, False, True),
        (Failure.DISCONNECTED, None, True, True),
        (Failure.DISCONNECTED, None, False, False),
        (Failure.OVERLOADED, 503, True, True),
        (Failure.SERVER_ERROR, 502, True, True),
        (Failure.OVERLOADED, 503, False, False),
        (Failure.SERVER_ERROR, 500, True, False),
        (Failure.RATE_LIMITED, 429, True, False),
        (Failure.BAD_REQUEST, 400, True, False),
        (Failure.TIMEOUT_FIRST_BYTE, None, True, False),
        (Failure.GATEWAY_TIMEOUT, 504, True, False),
    ],
)
def test_only_what_leaves_nothing_behind_is_tried_again(
    failure: Failure, status: int | None, stateless: bool, retried: bool
) -> None:
    """Never a 4xx, never a 500 that a request produced, never a generation that took too long."""
    assert may_retry(failure, status, stateless=stateless) is retried


def test_a_long_prompt_gets_time_to_be_read() -> None:
    """A million bytes at a thousand per second are a thousand seconds more."""
    assert patience_s(900.0, 1_000_000) == 1900.0


def test_who_watches_hears_of_every_change_once() -> None:
    """Out and in again, with what it was before; another reason to be out is no change."""
    heard: list[tuple[State, State, str | None]] = []
    one = Fleet(
        Routes(upstreams=(up("a"),)),
        lambda worker, before: heard.append((before, worker.state, worker.reason)),
    )
    worker = one.workers["a"]
    one.throw_out(worker, "connect")
    one.throw_out(worker, "not_ready")
    one.probe_succeeded(worker, ("m",))
    one.probe_succeeded(worker, ("m",))
    assert heard == [(State.UNKNOWN, State.OUT, "connect"), (State.OUT, State.IN, None)]
