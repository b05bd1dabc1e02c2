"""Requests made up from a few parameters: conversations that come at a rate and go on by turns.

Sizes and pauses are drawn when a conversation begins, so runs at different speeds serve the same
conversations, whatever comes first in each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from heavylift.simulate.request import Request, Segment
from heavylift.stats import Chance
from heavylift.traffic.draws import gamma, lognormal
from heavylift.traffic.shape import TrafficShape


@dataclass(slots=True)
class _Talk:
    """A conversation under way: what its further turns add, answer with, and wait for."""

    turns: list[tuple[int, int, float]]
    context: int


class Conversations:
    """Requests of a shape at `rate_per_s`, all turns counted."""

    def __init__(self, shape: TrafficShape, rate_per_s: float, chance: Chance) -> None:
        self._shape = shape
        self._rate = rate_per_s
        self._chance = chance
        self._talks: dict[int, _Talk] = {}

    def arrivals(self) -> Iterator[Request]:
        """First turns, endless."""
        shape, chance = self._shape, self._chance
        gap_s = shape.turns_mean / self._rate
        at_s, session = 0.0, 0
        while True:
            at_s += gamma(gap_s, shape.burstiness, chance)
            session += 1
            yield self._begin(at_s, session)

    def _begin(self, at_s: float, session: int) -> Request:
        shape, chance = self._shape, self._chance
        first = lognormal(shape.first_tokens, shape.first_spread, chance)
        answer = lognormal(shape.output_tokens, shape.output_spread, chance)
        # A first prompt leaves room for its answer; further turns end where the context does.
        room = shape.context_tokens_most - shape.shared_tokens - answer
        first = max(1, min(first, room))
        group = 0
        if shape.groups > 1 and shape.shared_tokens:
            group = int(chance() * shape.groups)
        if shape.turns_mean > 1:
            turns = []
            more = 1 - 1 / shape.turns_mean
            size = shape.shared_tokens + first + answer
            while chance() < more:
                asked = lognormal(shape.turn_tokens, shape.turn_spread, chance)
                said = lognormal(shape.output_tokens, shape.output_spread, chance)
                pause = -shape.pause_s * math.log1p(-chance())
                size += asked + said
                if size > shape.context_tokens_most:
                    break
                turns.append((asked, said, pause))
            if turns:
                turns.reverse()
                self._talks[session] = _Talk(turns, shape.shared_tokens + first + answer)
        shared = ((-1 - group, shape.shared_tokens),) if shape.shared_tokens else ()
        return self._request(at_s, session, 0, shape.shared_tokens + first, answer, shared)

    def _request(  # noqa: PLR0917 - the fields of a request
        self,
        at_s: float,
        session: int,
        turn: int,
        size: int,
        answer: int,
        segments: tuple[Segment, ...],
    ) -> Request:
        own = size - sum(tokens for _, tokens in segments)
        return Request(
            at_s,
            size,
            answer,
            (*segments, (session, own)),
            session=session,
            turn=turn,
            grows=True,
        )

    def follow(self, request: Request, finished_s: float) -> Request | None:
        """The next turn of the conversation, after its pause."""
        talk = self._talks.get(request.session)
        if talk is None:
            return None
        asked, said, pause = talk.turns.pop()
        size = talk.context + asked
        talk.context = size + said
        if not talk.turns:
            del self._talks[request.session]
        shared = request.segments[:-1]
        return self._request(
            finished_s + pause, request.session, request.turn + 1, size, said, shared
        )


class Closed:
    """Clients that each send the next request when the last is answered: `requests` of one size."""

    def __init__(self, clients: int, input_tokens: int, output_tokens: int) -> None:
        self._clients, self._input, self._output = clients, input_tokens, output_tokens

    def arrivals(self) -> Iterator[Request]:
        """Every client's first request, at once."""
        for _ in range(self._clients):
            yield Request(0.0, self._input, self._output)

    def follow(self, request: Request, finished_s: float) -> Request | None:  # noqa: ARG002
        """The same client's next request."""
        return Request(finished_s, self._input, self._output)


def scaled(shape: TrafficShape, factor: float) -> TrafficShape:
    """The shape with all sizes `factor` times as large."""
    return replace(
        shape,
        first_tokens=shape.first_tokens * factor,
        turn_tokens=shape.turn_tokens * factor,
        output_tokens=shape.output_tokens * factor,
    )


def sizes_of(shape: TrafficShape) -> tuple[float, float]:
    """Mean tokens of a prompt and of an answer, roughly: for planning, not for figures.

    Formula: mean of a log-normal = median × exp(sigma² / 2); the mean turn of a
    geometric number of them has as many before it as there are turns, less one.
    """

    def mean(median: float, sigma: float) -> float:
        return median * math.exp(sigma * sigma / 2)

    answer = mean(shape.output_tokens, shape.output_spread)
    first = shape.shared_tokens + mean(shape.first_tokens, shape.first_spread)
    before = shape.turns_mean - 1
    grown = first + before * (mean(shape.turn_tokens, shape.turn_spread) + answer)
    return min(grown, shape.context_tokens_most), answer
