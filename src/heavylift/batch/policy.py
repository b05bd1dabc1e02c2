"""Policy: when to send, how much at once, when to send again, when to stop. PURE.

No clock and no chance in here: `now` is seconds of a monotonic clock and `chance` a number in
[0, 1), both given. States are frozen records; a transition returns the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from heavylift.wire.failures import Failure

# --- one row: send again, change it, or give it up -----------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryRules:
    """How often a row is tried and how long it waits in between (seconds)."""

    attempts: int = 6
    """Attempts that may have cost the engine work; refusals at the door are not among them."""
    base_s: float = 0.5
    cap_s: float = 60.0
    repairs: int = 2
    """How often an answer that breaks its schema is given back to the model with the defects."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What has been tried for a row since it was claimed."""

    sent: int = 0
    refused: int = 0
    repairs: int = 0
    enlarged: bool = False


class Action(StrEnum):
    """What is done with a row after a failure."""

    AGAIN = "again"
    """Sent again unchanged, after the wait."""
    REQUEUE = "requeue"
    """Back to the front of the queue: the endpoint refused it, so the endpoint waits, not it."""
    ENLARGE = "enlarge"
    """Sent again with twice the token limit."""
    REPAIR = "repair"
    """Sent again with the answer and its defects."""
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What to do, and after how many seconds."""

    action: Action
    wait_s: float = 0.0


def decide(
    failure: Failure, history: History, rules: RetryRules, *, chance: float, can_enlarge: bool
) -> Decision:
    """The decision for a row that has just failed. `history` includes the attempt that failed.

    A timed-out generation is never sent again: unchanged, it would take as long again.
    """
    if is_refusal(failure):
        return Decision(action=Action.REQUEUE)
    if failure is Failure.TRUNCATED_THINKING and can_enlarge and not history.enlarged:
        return Decision(action=Action.ENLARGE)
    if failure is Failure.SCHEMA_INVALID and history.repairs < rules.repairs:
        return Decision(action=Action.REPAIR)
    if failure.retriable and history.sent < rules.attempts:
        wait_s = backoff_s(history.sent, rules.base_s, rules.cap_s, chance=chance)
        return Decision(action=Action.AGAIN, wait_s=wait_s)
    return Decision(action=Action.FAIL)


def is_refusal(failure: Failure) -> bool:
    """True when the endpoint took nothing: nobody was there, there was no room, or the key is
    wrong. It says nothing about the row.
    """
    if failure is Failure.UNAUTHORISED:
        return True
    return failure.retriable and not failure.counts_as_sent


def backoff_s(times: int, base_s: float, cap_s: float, *, chance: float) -> float:
    """Seconds to wait after the `times`-th failure (from 1): doubling, spread over its upper half.

    Formula: min(cap, base 2^(times-1)) (1 + chance) / 2
    """
    # Past 2^60 the cap has long been reached; the bound keeps the power a small number.
    longest = min(cap_s, base_s * 2.0 ** min(max(times, 1) - 1, 60))
    return longest * (1 + chance) / 2


# --- one endpoint: the gate (circuit breaker) ----------------------------------------------------

BREAKER_FAILURES: Final = 5
"""Failures in a row, of requests that were taken, after which the endpoint is thought broken."""
_GATE_BASE_S: Final = 0.5
_GATE_CAP_S: Final = 30.0
_JITTER_RATIO: Final = 0.2
_JITTER_CAP_S: Final = 30.0

_WANT_OF_ROOM: Final = frozenset({Failure.RATE_LIMITED, Failure.OVERLOADED})

# The endpoint's doing, whatever the row. The others are about the row or the model's answer.
_ENDPOINT_FAULTS: Final = frozenset(
    {
        Failure.DISCONNECTED,
        Failure.SERVER_ERROR,
        Failure.GATEWAY_TIMEOUT,
        Failure.NOT_FOUND,
        Failure.STREAM_BROKEN,
        Failure.STREAM_ERROR_EVENT,
        Failure.MALFORMED,
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """Whether an endpoint is sent to. Closed until `opens_at`; then, if `probing`, one at a time.

    A gate that requests have closed by going wrong one after the other `is_broken`: no row is used
    to try it, it is asked how it is, because it may also be the rows that are bad. `failing_since`
    None = the last thing heard of it was good.
    """

    in_a_row: int = 0
    closed_at: float | None = None
    opens_at: float = 0.0
    probing: bool = False
    failing_since: float | None = None
    last_failure: Failure | None = None

    @property
    def is_broken(self) -> bool:
        """True when requests that it took went wrong, so many in a row that it was closed."""
        if self.last_failure is None or is_refusal(self.last_failure):
            return False
        return self.in_a_row >= BREAKER_FAILURES

    def room(self, limit: int, now: float) -> int:
        """How many requests may be in flight."""
        if now < self.opens_at or self.is_broken:
            return 0
        return 1 if self.probing else limit


def succeeded(gate: Gate) -> Gate:
    """The gate after an answer: open."""
    return Gate() if gate.in_a_row or gate.probing else gate


def failed(
    gate: Gate,
    failure: Failure,
    *,
    sent_at: float,
    now: float,
    chance: float,
    retry_after_s: float | None = None,
) -> Gate:
    """The gate after a failure of a request sent at `sent_at`.

    All that was in flight when it closed is one burst: only the first of it counts, so that a
    burst is not answered by a wait per request.
    """
    refusal = is_refusal(failure)
    if not refusal and failure not in _ENDPOINT_FAULTS:
        return succeeded(gate)  # the endpoint did its work
    if gate.closed_at is not None and sent_at < gate.closed_at:
        return gate
    noted = replace(
        gate,
        in_a_row=gate.in_a_row + 1,
        failing_since=now if gate.failing_since is None else gate.failing_since,
        last_failure=failure,
    )
    if noted.is_broken:
        return replace(noted, closed_at=now)
    if not refusal:
        return noted
    wait_s = _gate_wait_s(noted.in_a_row, retry_after_s, chance)
    careful = noted.in_a_row >= BREAKER_FAILURES or failure not in _WANT_OF_ROOM
    return replace(noted, closed_at=now, opens_at=now + wait_s, probing=careful)


def healthy(gate: Gate) -> Gate:
    """The gate of a broken endpoint that says it is well: open, until five more fail in a row."""
    return replace(gate, in_a_row=0)


def _gate_wait_s(times: int, retry_after_s: float | None, chance: float) -> float:
    """Never before the server's wish; spread only after it."""
    if retry_after_s is None:
        return backoff_s(times, _GATE_BASE_S, _GATE_CAP_S, chance=chance)
    return retry_after_s + min(retry_after_s * _JITTER_RATIO, _JITTER_CAP_S) * chance


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long all endpoints may fail before the run stops (seconds): `first_s` while none has
    ever been there, `later_s` after that, long enough for an engine to be started again.
    """

    first_s: float = 60.0
    later_s: float = 3600.0


def hopeless(
    gates: tuple[Gate, ...], patience: Patience, *, now: float, had_success: bool
) -> Failure | None:
    """Why the run should stop: the failure of an endpoint when all have failed for too long, or
    all refuse the key; None = go on.
    """
    if any(gate.failing_since is None for gate in gates):
        return None
    if all(gate.last_failure is Failure.UNAUTHORISED for gate in gates):
        return Failure.UNAUTHORISED
    # A refusal for want of room, or while the model loads, comes from somebody who is there.
    there = had_success or any(gate.last_failure in _WANT_OF_ROOM for gate in gates)
    allowed_s = patience.later_s if there else patience.first_s
    shortest_s = min(now - (gate.failing_since or 0.0) for gate in gates)
    return gates[0].last_failure if shortest_s > allowed_s else None


# --- one endpoint: how many at once --------------------------------------------------------------

START_LIMIT: Final = 4
_CUT: Final = 0.7
_GROWTH: Final = 2.0
_PROBE: Final = 1.25
_GAIN_SHARE: Final = 0.25
"""More in flight is kept when throughput rose by at least this share of the growth: pure queueing
gives none of it, an engine with room gives all."""
_STRETCH: Final = 2.0
"""A request that takes this many times what it took at the same limit: the engine has less room
than it had (other users, a slower batch), so the limit is cut."""
_SAMPLES_MIN: Final = 8
_HOLDS_MAX: Final = 32
_QUEUE_SHARE: Final = 0.1
_QUEUE_MIN: Final = 2


class Phase(StrEnum):
    """What the limiter is about."""

    SLOW_START = "slow_start"
    PROBE = "probe"
    HOLD = "hold"
    PINNED = "pinned"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limiter:
    """How many requests an endpoint gets at once, found from what they take.

    A window collects `slot_s` (seconds that finished requests were in flight) and `units` (tokens
    they generated, or rows where tokens are not told). By Little's law the engine's throughput at
    this limit is limit x units / slot_s. `good` is the best limit so far and `good_rate` the
    throughput there; `windows_left` counts down a hold, `holds` is the length of the next.
    """

    limit: float = START_LIMIT
    ceiling: int = 256
    phase: Phase = Phase.SLOW_START
    good: float = 0.0
    good_rate: float = 0.0
    began_at: float = 0.0
    samples: int = 0
    slot_s: float = 0.0
    units: float = 0.0
    windows_left: int = 0
    holds: int = 2
    cut_at: float | None = None

    @property
    def whole(self) -> int:
        """The limit as a count, at least one."""
        return max(1, int(self.limit))


def pinned(limit: int) -> Limiter:
    """A limiter that never moves."""
    return Limiter(limit=limit, ceiling=limit, phase=Phase.PINNED)


def adaptive(ceiling: int) -> Limiter:
    """A limiter that starts slowly and stays at or below the ceiling."""
    return Limiter(limit=min(START_LIMIT, ceiling), ceiling=ceiling)


def finished(limiter: Limiter, *, sent_at: float, now: float, units: float, busy: bool) -> Limiter:
    """The limiter after an answer with `units` tokens. `busy`: the limit was used to the full.

    Only requests sent since the window began are looked at: the others ran under another limit.
    """
    if limiter.phase is Phase.PINNED or not busy or units <= 0 or sent_at < limiter.began_at:
        return limiter
    seen = replace(
        limiter,
        samples=limiter.samples + 1,
        slot_s=limiter.slot_s + (now - sent_at),
        units=limiter.units + units,
    )
    if seen.samples < max(_SAMPLES_MIN, seen.whole) or seen.slot_s <= 0:
        return seen
    return _judged(seen, seen.limit * seen.units / seen.slot_s, now)


def _judged(limiter: Limiter, rate: float, now: float) -> Limiter:
    """The limiter at the end of a window in which the engine showed this throughput."""
    if limiter.phase is Phase.HOLD:
        return _held(limiter, rate, now)
    growth = limiter.limit / limiter.good if limiter.good else _GROWTH
    needed = limiter.good_rate * (1 + _GAIN_SHARE * (growth - 1))
    if limiter.good and rate < needed:
        back = replace(limiter, phase=Phase.HOLD, windows_left=limiter.holds)
        longer = min(_HOLDS_MAX, limiter.holds * 2)
        return _window(replace(back, limit=limiter.good, holds=longer), now)
    factor = _GROWTH if limiter.phase is Phase.SLOW_START else _PROBE
    kept = replace(limiter, good=limiter.limit, good_rate=rate, holds=2)
    return _raised(kept, factor, now)


def _held(limiter: Limiter, rate: float, now: float) -> Limiter:
    if rate * _STRETCH < limiter.good_rate:
        less = max(1.0, limiter.limit * _CUT)
        return _window(replace(limiter, limit=less, good=less, good_rate=rate), now)
    noted = replace(limiter, good_rate=rate, windows_left=limiter.windows_left - 1)
    if noted.windows_left > 0:
        return _window(noted, now)
    return _raised(replace(noted, phase=Phase.PROBE), _PROBE, now)


def _raised(limiter: Limiter, factor: float, now: float) -> Limiter:
    more = min(float(limiter.ceiling), max(limiter.limit + 1, limiter.limit * factor))
    if more <= limiter.limit:  # the ceiling is reached: watch, do not grow
        held = replace(limiter, phase=Phase.HOLD, windows_left=limiter.holds)
        return _window(held, now)
    return _window(replace(limiter, limit=more), now)


def _window(limiter: Limiter, now: float) -> Limiter:
    return replace(limiter, began_at=now, samples=0, slot_s=0.0, units=0.0)


def wants_room(failure: Failure) -> bool:
    """True when the endpoint refused because it has too much to do."""
    return failure in _WANT_OF_ROOM


def overloaded(limiter: Limiter, *, sent_at: float, now: float) -> Limiter:
    """The limiter after a refusal for want of room: one cut for all that was sent before it."""
    if limiter.phase is Phase.PINNED:
        return limiter
    if limiter.cut_at is not None and sent_at <= limiter.cut_at:
        return limiter
    return _cut_to(limiter, limiter.limit * _CUT, now)


def queued(limiter: Limiter, *, running: float, waiting: float, now: float) -> Limiter:
    """The limiter after a look at the engine's own queue: what waits there does no good there.

    A few may wait, so that the engine never does.
    """
    if limiter.phase is Phase.PINNED or waiting <= max(_QUEUE_MIN, _QUEUE_SHARE * running):
        return limiter
    target = max(float(START_LIMIT), running + max(_QUEUE_MIN, _QUEUE_SHARE * running))
    return _cut_to(limiter, target, now) if target < limiter.limit else limiter


def _cut_to(limiter: Limiter, limit: float, now: float) -> Limiter:
    less = max(1.0, limit)
    held = replace(limiter, limit=less, good=less, good_rate=0.0, cut_at=now)
    return _window(replace(held, phase=Phase.HOLD, windows_left=held.holds), now)


# --- the whole run: rate caps and budgets --------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """A rate cap: `per_s` units flow in, at most `size` are kept. The level may fall below zero,
    because what an answer costs is known only afterwards.
    """

    per_s: float
    size: float
    level: float
    at: float

    def wait_s(self, now: float, units: float = 1.0) -> float:
        """Seconds until `units` may be taken."""
        # A demand larger than the bucket is let through when it is full.
        missing = min(units, self.size) - self._level(now)
        return max(0.0, missing / self.per_s)

    def taken(self, now: float, units: float = 1.0) -> Bucket:
        """The bucket with `units` taken out."""
        return replace(self, level=self._level(now) - units, at=now)

    def _level(self, now: float) -> float:
        return min(self.size, self.level + (now - self.at) * self.per_s)


def per_minute(units: float, now: float) -> Bucket:
    """A cap of so many units a minute; a second's worth (at least one) may come at once."""
    size = max(1.0, units / 60)
    return Bucket(per_s=units / 60, size=size, level=size, at=now)


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What a batch may use; None = no limit. Tokens and money count over all its runs, time over
    this one. Prices are USD per million tokens.
    """

    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    usd_per_million_in: float | None = None
    usd_per_million_out: float | None = None

    def cost_usd(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """What tokens cost; None when a price is not known."""
        if self.usd_per_million_in is None or self.usd_per_million_out is None:
            return None
        inward = prompt_tokens * self.usd_per_million_in
        return (inward + completion_tokens * self.usd_per_million_out) / 1e6

    def exhausted(self, prompt_tokens: int, completion_tokens: int, elapsed_s: float) -> str | None:
        """Which limit has been reached; None = none. What is in flight then is still recorded."""
        if self.seconds is not None and elapsed_s >= self.seconds:
            return "limit_time"
        if self.tokens is not None and prompt_tokens + completion_tokens >= self.tokens:
            return "limit_tokens"
        cost = self.cost_usd(prompt_tokens, completion_tokens)
        if self.usd is not None and cost is not None and cost >= self.usd:
            return "limit_cost"
        return None
