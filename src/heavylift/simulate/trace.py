"""Recorded traffic as requests, and what a trace holds in all.

A trace is never held whole. Names of equal prompt blocks (`hash_ids`) are kept, so a prefix cache
meets what it would have met.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.simulate.request import Request, Segment
from heavylift.traffic.trace import FORMATS, Arrival, block_tokens, unreadable, without_size

_NAMES_PER_PASS: Final = 1 << 40
"""Further than any name of a trace: a repeated trace shares no prefix with itself."""


def requests_of(arrivals: Iterable[Arrival], path: str) -> Iterator[Request]:
    """The requests of a trace, in order; times are seconds after the first.

    A line that is earlier than the one before counts at the time of that one. Raises USE090 for a
    trace whose first line says no time, prompt or answer, USE061 for another line that does not,
    USE076 for conversations, whose tokens nobody counted.
    """
    start: float | None = None
    latest = 0.0
    block: int | None = None
    for arrival in arrivals:
        at_s, size, answer = arrival.at_s, arrival.input_tokens, arrival.output_tokens
        if size is None and arrival.turns:
            raise without_size(path, arrival.line)
        if at_s is None or size is None or answer is None:
            if start is None:
                raise HeavyliftError("USE090", {"path": path, "formats": FORMATS})
            raise unreadable(path, arrival.line, FORMATS)
        start = at_s if start is None else start
        latest = max(latest, at_s - start)
        names = arrival.blocks
        if len(names) > 1 and block is None:
            block = block_tokens(size, len(names))
        segments: tuple[Segment, ...] = ()
        if block is not None:
            segments = tuple((name, block) for name in names[: size // block])
        yield Request(latest, size, answer, segments)


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceFigures:
    """What a trace holds in all."""

    requests: int
    span_s: float
    input_tokens: float
    output_tokens: float
    longest_tokens: int

    @property
    def rate_per_s(self) -> float:
        """Requests per second as recorded."""
        return (self.requests - 1) / self.span_s if self.span_s > 0 else 0.0


def figures_of(requests: Iterable[Request]) -> TraceFigures:
    """Counts and means of a trace, in one pass."""
    count, given, made, longest, last = 0, 0, 0, 0, 0.0
    for request in requests:
        count += 1
        given += request.input_tokens
        made += request.output_tokens
        longest = max(longest, request.input_tokens + request.output_tokens)
        last = request.arrival_s
    return TraceFigures(
        requests=count,
        span_s=last,
        input_tokens=given / max(1, count),
        output_tokens=made / max(1, count),
        longest_tokens=longest,
    )


class Replay:
    """A trace `times` as fast as recorded, again from its start when it is over.

    `opened()` gives its requests anew.
    """

    def __init__(
        self, opened: Callable[[], Iterable[Request]], figures: TraceFigures, times: float
    ) -> None:
        self._opened = opened
        self._figures = figures
        self._times = times

    def arrivals(self) -> Iterator[Request]:
        """The requests, endless."""
        whole = self._figures.span_s + 1 / (self._figures.rate_per_s or 1.0)
        for turn in itertools.count():
            for request in self._opened():
                request.arrival_s = (request.arrival_s + turn * whole) / self._times
                if turn:
                    shift = turn * _NAMES_PER_PASS
                    request.segments = tuple((n + shift, size) for n, size in request.segments)
                yield request

    def follow(self, request: Request, finished_s: float) -> Request | None:  # noqa: ARG002
        """Nothing: what was recorded comes when it came."""
        return None
