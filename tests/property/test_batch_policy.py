"""Batch policy: rules that hold whatever happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavylift.batch import policy
from heavylift.batch.policy import Action, Gate, History, Limiter, Patience, RetryRules
from heavylift.wire.failures import Failure

FAILURES = st.sampled_from(list(Failure))
CHANCE = st.floats(0, 1, exclude_max=True)
SECONDS = st.floats(0, 1e6)
RULES = RetryRules()
TIMEOUTS = (Failure.TIMEOUT_FIRST_BYTE, Failure.TIMEOUT_GAP, Failure.TIMEOUT_TOTAL)
REFUSALS = (
    Failure.CONNECT,
    Failure.TIMEOUT_CONNECT,
    Failure.RATE_LIMITED,
    Failure.OVERLOADED,
    Failure.UNAUTHORISED,
)


# --- rows ----------------------------------------------------------------------------------------


@given(FAILURES, CHANCE, st.booleans())
def test_a_row_is_given_up_in_the_end(failure: Failure, chance: float, can_enlarge: bool) -> None:
    """A row that the engine works on and spoils each time ends after a bounded number of tries."""
    history = History()
    for tries in range(1, 50):
        history = replace(history, sent=history.sent + 1)
        decision = policy.decide(failure, history, RULES, chance=chance, can_enlarge=can_enlarge)
        if decision.action is Action.FAIL:
            assert tries <= RULES.attempts
            return
        if decision.action is Action.ENLARGE:
            history = replace(history, enlarged=True)
        if decision.action is Action.REPAIR:
            history = replace(history, repairs=history.repairs + 1)
        if decision.action is Action.REQUEUE:
            assert failure in REFUSALS
            return
    pytest.fail("never given up")


@pytest.mark.parametrize("failure", TIMEOUTS)
@given(chance=CHANCE)
def test_a_timed_out_generation_is_never_sent_again(failure: Failure, chance: float) -> None:
    """Unchanged, it would take as long again."""
    decision = policy.decide(failure, History(sent=1), RULES, chance=chance, can_enlarge=True)
    assert decision.action is Action.FAIL


@pytest.mark.parametrize("failure", REFUSALS)
@given(refused=st.integers(0, 10**6), chance=CHANCE)
def test_a_refusal_costs_a_row_nothing(failure: Failure, refused: int, chance: float) -> None:
    """However often the door was shut, the row keeps its tries."""
    history = History(sent=RULES.attempts, refused=refused)
    decision = policy.decide(failure, history, RULES, chance=chance, can_enlarge=False)
    assert decision.action is Action.REQUEUE


def test_truncated_thinking_gets_more_tokens_once() -> None:
    """Twice the limit the first time, no third time, and nothing where no limit is stated."""
    failure = Failure.TRUNCATED_THINKING
    first, second = History(sent=1), History(sent=2, enlarged=True)

    def action(history: History, *, can: bool) -> Action:
        return policy.decide(failure, history, RULES, chance=0.0, can_enlarge=can).action

    assert action(first, can=True) is Action.ENLARGE
    assert action(second, can=True) is Action.FAIL
    assert action(first, can=False) is Action.FAIL


@given(st.integers(1, 10_000), SECONDS, SECONDS, CHANCE)
def test_backoff_is_bounded_and_spread(times: int, base: float, cap: float, chance: float) -> None:
    """Between half of the doubled base and the cap, whatever the chance."""
    longest = min(cap, base * 2 ** min(times - 1, 60))
    assert longest / 2 <= policy.backoff_s(times, base, cap, chance=chance) <= longest


# --- gates ---------------------------------------------------------------------------------------


@given(st.floats(0, 3600), CHANCE, SECONDS)
def test_nothing_is_sent_before_retry_after(wish: float, chance: float, now: float) -> None:
    """The gate stays shut as long as the server asked, and not much longer."""
    gate = policy.failed(
        Gate(), Failure.RATE_LIMITED, sent_at=now, now=now, chance=chance, retry_after_s=wish
    )
    assert now + wish <= gate.opens_at <= now + wish + min(0.2 * wish, 30) + 1e-6 * (1 + now)


@given(st.integers(2, 64), CHANCE)
def test_a_burst_of_refusals_is_one(size: int, chance: float) -> None:
    """Requests that were in flight together shut the gate once, not longer for each."""
    gate = Gate()
    for number in range(size):
        gate = policy.failed(
            gate, Failure.RATE_LIMITED, sent_at=1.0, now=2.0 + number / 100, chance=chance
        )
    assert gate.in_a_row == 1
    assert gate.opens_at <= 2.5


@given(st.lists(st.sampled_from([Failure.SERVER_ERROR, Failure.DISCONNECTED]), max_size=9))
def test_a_broken_endpoint_gets_no_rows(failures: list[Failure]) -> None:
    """From the fifth failure in a row it gets nothing until it says that it is well."""
    gate = Gate()
    for now, failure in enumerate(failures):
        gate = policy.failed(gate, failure, sent_at=now, now=now, chance=0.5)
    broken = len(failures) >= policy.BREAKER_FAILURES
    assert gate.is_broken is broken
    assert gate.room(100, 1e9) == (0 if broken else 100)
    assert policy.healthy(gate).room(100, 0) == 100
    assert policy.succeeded(gate).room(100, 0) == 100


@given(FAILURES)
def test_a_row_of_bad_rows_does_not_eject_an_endpoint(failure: Failure) -> None:
    """What is the row's fault or the model's leaves the gate open."""
    if failure in policy._ENDPOINT_FAULTS or policy.is_refusal(failure):
        return
    gate = Gate()
    for now in range(20):
        gate = policy.failed(gate, failure, sent_at=now, now=now, chance=0.0)
    assert gate == Gate()


def test_a_run_waits_for_an_engine_that_answered_once() -> None:
    """All gone: a minute if none ever answered, an hour otherwise; not at all with a wrong key."""
    patience = Patience(first_s=60, later_s=3600)
    gone = policy.failed(Gate(), Failure.CONNECT, sent_at=0, now=0, chance=0)
    good = Gate()

    def stopped(*gates: Gate, now: float, had: bool) -> Failure | None:
        return policy.hopeless(gates, patience, now=now, had_success=had)

    assert stopped(gone, now=59, had=False) is None
    assert stopped(gone, now=61, had=False) is Failure.CONNECT
    assert stopped(gone, now=61, had=True) is None
    assert stopped(gone, now=3601, had=True) is Failure.CONNECT
    assert stopped(gone, good, now=9999, had=True) is None
    shut = policy.failed(Gate(), Failure.UNAUTHORISED, sent_at=0, now=0, chance=0)
    assert stopped(shut, now=0, had=True) is Failure.UNAUTHORISED


# --- limiters ------------------------------------------------------------------------------------


def simulate(limiter: Limiter, slots: int, service_s: float, windows: int) -> Limiter:
    """The limiter after so many windows at an engine that serves `slots` at once and queues the
    rest: a request takes its service and its share of the queue.
    """
    now = 0.0
    for _ in range(windows):
        taken = service_s * max(1.0, limiter.whole / slots)
        for _ in range(max(8, limiter.whole)):
            limiter = policy.finished(limiter, sent_at=now, now=now + taken, units=100, busy=True)
        now += taken
    return limiter


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 200), st.floats(0.01, 100))
def test_the_limit_finds_the_engine(slots: int, service_s: float) -> None:
    """The limit it keeps fills half the engine at least; a doubling that helps by a quarter may
    overshoot by 2 / 1.25 = 1.6.
    """
    found = simulate(policy.adaptive(1024), slots, service_s, 40)
    assert min(0.5 * slots, slots - 1) <= found.good <= max(1.6 * slots, 4) + 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["ok", "slow", "429", "queue"]), st.floats(0, 100)), max_size=200
    ),
    st.integers(1, 512),
)
def test_the_limit_stays_in_its_bounds(events: list[tuple[str, float]], ceiling: int) -> None:
    """Between one and the ceiling, whatever comes."""
    limiter, now = policy.adaptive(ceiling), 0.0
    for kind, step in events:
        now += step
        if kind == "429":
            limiter = policy.overloaded(limiter, sent_at=now, now=now)
        elif kind == "queue":
            limiter = policy.queued(limiter, running=step, waiting=10 * step, now=now)
        else:
            took = step * (10 if kind == "slow" else 1)
            limiter = policy.finished(limiter, sent_at=now - took, now=now, units=1, busy=True)
        assert 1 <= limiter.whole <= max(ceiling, 1)


@given(st.integers(2, 64))
def test_a_burst_is_one_cut(size: int) -> None:
    """Thirty-two refusals at once cut as one does."""
    limiter = replace(policy.adaptive(256), limit=100.0)
    once = policy.overloaded(limiter, sent_at=5.0, now=6.0)
    many = once
    for number in range(size):
        many = policy.overloaded(many, sent_at=5.0, now=6.0 + number / 1000)
    assert many == once
    assert once.limit == pytest.approx(70)


def test_a_queue_in_the_engine_brings_the_limit_down() -> None:
    """What waits in the engine is not sent to it; a few may wait."""
    limiter = replace(policy.adaptive(256), limit=200.0)
    assert policy.queued(limiter, running=100, waiting=9, now=1).limit == 200
    assert policy.queued(limiter, running=100, waiting=100, now=1).limit == pytest.approx(110)


@given(st.integers(1, 512))
def test_a_pinned_limit_never_moves(limit: int) -> None:
    """Neither answers nor refusals nor queues move it."""
    limiter = policy.pinned(limit)
    moved = policy.overloaded(limiter, sent_at=1, now=1)
    moved = policy.queued(moved, running=1, waiting=999, now=2)
    moved = policy.finished(moved, sent_at=1, now=99, units=1, busy=True)
    assert moved == limiter


# --- rates and budgets ---------------------------------------------------------------------------


@given(st.floats(1, 1e5), st.integers(1, 300))
def test_a_rate_cap_holds(per_minute: float, demands: int) -> None:
    """However eagerly asked, a minute brings no more than its units and the first burst."""
    bucket, now, taken = policy.per_minute(per_minute, 0.0), 0.0, 0
    for _ in range(demands):
        now += bucket.wait_s(now)
        if now > 60:
            break
        bucket = bucket.taken(now)
        taken += 1
    assert taken <= per_minute + max(1, per_minute / 60) + 1


def test_budgets_end_a_run_when_they_are_reached() -> None:
    """Tokens, money and time each by itself; no limit, no end."""
    priced = policy.Budget(usd=3.0, usd_per_million_in=1.0, usd_per_million_out=2.0)
    assert policy.Budget().exhausted(10**12, 10**12, 10**9) is None
    assert policy.Budget(tokens=100).exhausted(60, 39, 0) is None
    assert policy.Budget(tokens=100).exhausted(60, 40, 0) == "limit_tokens"
    assert priced.exhausted(10**6, 999_999, 0) is None
    assert priced.exhausted(10**6, 10**6, 0) == "limit_cost"
    assert policy.Budget(seconds=5).exhausted(0, 0, 5) == "limit_time"
