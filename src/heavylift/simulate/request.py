"""A request on its way through a fleet, and where requests come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

Segment = tuple[int, int]
"""A part of a prompt: its name and tokens. Equal names are equal text, so a cache may hold them."""


class Request:
    """One request. Sizes in tokens, times in seconds of simulated time.

    `segments` are the parts of the prompt that a prefix cache may know, from its start; the rest of
    the prompt is new. `grows`: the last segment is a conversation's, which the answer extends. The
    other fields are the fleet's: `left` is what prefill still has to compute, `made` are tokens of
    the answer that exist, `reserved` what it holds in the pool beside shared segments, `ready` says
    that another replica has computed the prompt.
    """

    __slots__ = (
        "arrival_s",
        "at",
        "counted",
        "first_s",
        "grows",
        "held",
        "input_tokens",
        "joined_step",
        "left",
        "made",
        "order",
        "output_tokens",
        "ready",
        "reserved",
        "segments",
        "session",
        "turn",
    )

    def __init__(
        self,
        arrival_s: float,
        input_tokens: int,
        output_tokens: int,
        segments: tuple[Segment, ...] = (),
        *,
        session: int = 0,
        turn: int = 0,
        grows: bool = False,
    ) -> None:
        self.arrival_s = arrival_s
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.segments = segments
        self.session = session
        self.turn = turn
        self.grows = grows
        self.first_s = -1.0
        self.joined_step = -1
        self.left = 0
        self.made = 0
        self.held: list[int] = []
        self.reserved = 0
        self.order = 0
        self.ready = False
        self.at = 0
        self.counted = True

    def restart(self) -> None:
        """Back to the start: the replica that held it is gone, and what it had said with it."""
        self.first_s = -1.0
        self.joined_step = -1
        self.left = self.made = self.reserved = 0
        self.held = []
        self.ready = False


class Source(Protocol):
    """Where requests come from."""

    def arrivals(self) -> Iterator[Request]:
        """Requests that come by themselves, in order of arrival."""
        ...

    def follow(self, request: Request, finished_s: float) -> Request | None:
        """What comes because this one was answered: the next turn, or the client's next request."""
        ...
