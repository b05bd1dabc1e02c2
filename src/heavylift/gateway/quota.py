"""Quotas: whether a request may be admitted, from what has been taken. Decides, does not look.

What has been taken is what finished requests cost plus what open ones may still cost at most. A
request is admitted only when that and its own bound stay within every limit, so no order of
events can spend more than a limit, as long as no request costs more than its bound.

Minutes are counted in slices of a clock that never jumps. All slices that touch the last 60
seconds count in full, so in any 60 seconds at most the limit is admitted; the price is that room
comes back up to one slice late. Days are UTC days of the wall clock, and their counts are kept:
setting the clock back gives nothing back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SLICE_S: Final = 5
"""Length of a slice, in seconds."""
WINDOW_SLICES: Final = 60 // SLICE_S
DAY_S: Final = 86_400
SOON_S: Final = 1.0
"""The wait proposed when room depends on requests that are still open: nobody knows how long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of a key or a team. None = no limit of that kind."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    concurrent: int | None = None

    @property
    def by_minute(self) -> bool:
        """True when the minute has to be counted."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    @property
    def any(self) -> bool:
        """True when there is a limit at all."""
        return self != NO_LIMITS


NO_LIMITS: Final = Limits()


class Limit(StrEnum):
    """The kinds of limit."""

    REQUESTS_PER_MINUTE = "requests_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    TOKENS_PER_DAY = "tokens_per_day"
    CONCURRENT = "concurrent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """What was taken in one slice: requests, and tokens of finished and of open requests."""

    number: int
    requests: int = 0
    settled_tokens: int = 0
    open_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens, whichever way they are held."""
        return self.settled_tokens + self.open_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """What a key or team has taken: slices of the last minute, the day, and what is open now."""

    slices: tuple[Slice, ...] = ()
    day_settled_tokens: int = 0
    day_open_tokens: int = 0
    open_requests: int = 0

    def with_one_more(self, tokens: int, now: Moment) -> Taken:
        """What is taken once a request of at most `tokens` has been admitted."""
        number = now.slice
        last = self.slices[-1] if self.slices else None
        before = self.slices
        requests, still_open, settled = 1, tokens, 0
        if last is not None and last.number == number:
            before = self.slices[:-1]
            requests += last.requests
            still_open += last.open_tokens
            settled = last.settled_tokens
        grown = Slice(
            number=number, requests=requests, settled_tokens=settled, open_tokens=still_open
        )
        return Taken(
            slices=(*before, grown),
            day_settled_tokens=self.day_settled_tokens,
            day_open_tokens=self.day_open_tokens + tokens,
            open_requests=self.open_requests + 1,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """Now: `steady_s` on a clock that never jumps, `epoch_s` on the wall clock."""

    steady_s: float
    epoch_s: float

    @property
    def slice(self) -> int:
        """The slice that runs now."""
        return int(self.steady_s // SLICE_S)

    @property
    def first_slice(self) -> int:
        """The oldest slice that still counts: it may touch the last 60 seconds."""
        return self.slice - WINDOW_SLICES

    @property
    def day(self) -> int:
        """The UTC day, as days since the epoch."""
        return int(self.epoch_s // DAY_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a request is not admitted. `left` is what the limit still has.

    `retry_after_s` None = waiting will not help: the request is larger than the limit itself.
    """

    limit: Limit
    allowed: int
    left: int
    wanted: int
    retry_after_s: float | None


def judge(limits: Limits, taken: Taken, tokens: int, now: Moment) -> Refusal | None:
    """The refusal of a request that costs at most `tokens`; None when it may be admitted."""
    concurrent = limits.concurrent
    if concurrent is not None and taken.open_requests >= concurrent:
        return Refusal(
            limit=Limit.CONCURRENT,
            allowed=concurrent,
            left=0,
            wanted=1,
            retry_after_s=SOON_S if concurrent else None,
        )
    return (
        _judge_minute(
            Limit.REQUESTS_PER_MINUTE,
            limits.requests_per_minute,
            1,
            lambda: [(part.number, part.requests, 0) for part in taken.slices],
            now,
        )
        or _judge_minute(
            Limit.TOKENS_PER_MINUTE,
            limits.tokens_per_minute,
            tokens,
            lambda: [(p.number, p.settled_tokens, p.open_tokens) for p in taken.slices],
            now,
        )
        or _judge_day(limits.tokens_per_day, taken, tokens, now)
    )


def tokens_left(limits: Limits, taken: Taken, now: Moment) -> int | None:
    """Tokens that the tightest token limit still has; None when there is none."""
    minute = 0
    if limits.tokens_per_minute is not None:
        first = now.first_slice
        for part in taken.slices:
            if part.number >= first:
                minute += part.settled_tokens + part.open_tokens
    day = taken.day_settled_tokens + taken.day_open_tokens
    return _least(
        None if limits.tokens_per_minute is None else max(0, limits.tokens_per_minute - minute),
        None if limits.tokens_per_day is None else max(0, limits.tokens_per_day - day),
    )


def requests_left(limits: Limits, taken: Taken, now: Moment) -> int | None:
    """Requests that this minute still has; None when they are not limited."""
    if limits.requests_per_minute is None:
        return None
    first = now.first_slice
    used = sum([part.requests for part in taken.slices if part.number >= first])
    return max(0, limits.requests_per_minute - used)


def _least(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def _judge_minute(
    limit: Limit,
    allowed: int | None,
    wanted: int,
    slices: Callable[[], Iterable[tuple[int, int, int]]],
    now: Moment,
) -> Refusal | None:
    """`slices`: number, taken for good, taken by open requests; asked for only with a limit."""
    if allowed is None:
        return None
    first = now.first_slice
    counting = [part for part in slices() if part[0] >= first]
    used = sum([settled + still_open for _, settled, still_open in counting])
    if used + wanted <= allowed:
        return None
    counting.sort()
    return Refusal(
        limit=limit,
        allowed=allowed,
        left=max(0, allowed - used),
        wanted=wanted,
        retry_after_s=_minute_wait(allowed, used, wanted, counting, now),
    )


def _minute_wait(
    allowed: int, used: int, wanted: int, counting: list[tuple[int, int, int]], now: Moment
) -> float | None:
    """Seconds until enough slices have passed."""
    if wanted > allowed:
        return None
    for number, settled, still_open in counting:
        used -= settled + still_open
        if used + wanted <= allowed:
            # The slice stops counting when the window's first slice is the one after it.
            passes_at = (number + 1 + WINDOW_SLICES) * SLICE_S
            wait = max(SOON_S, passes_at - now.steady_s)
            return SOON_S if any(part[2] for part in counting) else wait
    return SOON_S


def _judge_day(allowed: int | None, taken: Taken, tokens: int, now: Moment) -> Refusal | None:
    if allowed is None:
        return None
    used = taken.day_settled_tokens + taken.day_open_tokens
    if used + tokens <= allowed:
        return None
    retry_after_s: float | None
    if tokens > allowed:
        retry_after_s = None
    elif taken.day_settled_tokens + tokens <= allowed:
        retry_after_s = SOON_S
    else:
        retry_after_s = (now.day + 1) * DAY_S - now.epoch_s
    return Refusal(
        limit=Limit.TOKENS_PER_DAY,
        allowed=allowed,
        left=max(0, allowed - used),
        wanted=tokens,
        retry_after_s=retry_after_s,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The most a request can cost, in tokens. `output_tokens` is of all its answers together.

    `elastic` is true when the client left the length open: then it may be shortened to what the
    quota still has, because the gateway states the length anyway.
    """

    prompt_tokens: int
    output_tokens: int
    elastic: bool = False

    @property
    def tokens(self) -> int:
        """Prompt and answers."""
        return self.prompt_tokens + self.output_tokens

    def shortened(self, left: int | None, least: int) -> int:
        """Output tokens that fit into `left`, at least `least`; unchanged when not elastic."""
        if not self.elastic or left is None:
            return self.output_tokens
        return min(self.output_tokens, max(least, left - self.prompt_tokens))


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What a request came to. `estimated` is true when the engine did not say."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """Prompt and answer."""
        return self.prompt_tokens + self.completion_tokens


NOTHING: Final = Cost(prompt_tokens=0, completion_tokens=0)
"""The cost of a request that no engine worked on."""


def cost(
    bound: Bound,
    *,
    prompt_tokens: int | None,
    completion_tokens: int | None,
    seen_tokens: int,
    cached_tokens: int = 0,
) -> Cost:
    """What a request that an engine worked on is charged.

    What the engine did not say is taken from what is known: the bound for the prompt, the pieces
    seen (`seen_tokens`, at most the bound) for the answer.
    """
    estimated = prompt_tokens is None or completion_tokens is None
    return Cost(
        prompt_tokens=bound.prompt_tokens if prompt_tokens is None else prompt_tokens,
        completion_tokens=(
            min(seen_tokens, bound.output_tokens)
            if completion_tokens is None
            else completion_tokens
        ),
        cached_tokens=cached_tokens,
        estimated=estimated,
    )


def lost(bound: Bound) -> Cost:
    """What a request is charged whose gateway died: the bound, because nobody knows better."""
    return Cost(
        prompt_tokens=bound.prompt_tokens, completion_tokens=bound.output_tokens, estimated=True
    )
