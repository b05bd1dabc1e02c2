"""Latency of one request: its parts, from the times at which things happened."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from heavylift.wire.reply import Delta


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Parts of one request, in seconds. None = that point was not reached.

    All but `connect_s` count from the moment the request was written. `connect_s`: from the call
    to that moment. `first_byte_s`: the reply's headers. `ttft_s`: the first generated piece,
    thinking and tool calls included, a role-only chunk not. `ttfa_s`: the first piece of the
    answer proper. `itl_s`: gaps between chunks that carry something generated (not tokens: a
    chunk may hold several). `e2e_s`: the last byte.
    """

    connect_s: float | None = None
    first_byte_s: float | None = None
    ttft_s: float | None = None
    ttfa_s: float | None = None
    last_token_s: float | None = None
    itl_s: tuple[float, ...] = ()
    e2e_s: float | None = None


class Stopwatch:
    """Collects the times of one request. Every argument is the same clock, in seconds."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._sent_at: float | None = None
        self._first_byte_at: float | None = None
        self._first_answer_at: float | None = None
        self._token_times: list[float] = []
        self._ended_at: float | None = None

    def sent(self, at: float) -> None:
        """Bytes of the request were written. The last call counts."""
        self._sent_at = at

    def first_byte(self, at: float) -> None:
        """The headers of the reply came."""
        self._first_byte_at = at

    def delta(self, delta: Delta, at: float) -> None:
        """A chunk came."""
        if not delta.is_token:
            return
        self._token_times.append(at)
        if self._first_answer_at is None and delta.is_answer:
            self._first_answer_at = at

    def ended(self, at: float) -> None:
        """The last byte came, or the request was given up."""
        self._ended_at = at

    def latency(self) -> Latency:
        """The parts, as far as the request came."""
        times = self._token_times
        return Latency(
            connect_s=None if self._sent_at is None else self._sent_at - self._started_at,
            first_byte_s=self._since_sent(self._first_byte_at),
            ttft_s=self._since_sent(times[0] if times else None),
            ttfa_s=self._since_sent(self._first_answer_at),
            last_token_s=self._since_sent(times[-1] if times else None),
            itl_s=tuple(later - earlier for earlier, later in pairwise(times)),
            e2e_s=self._since_sent(self._ended_at),
        )

    def _since_sent(self, at: float | None) -> float | None:
        return None if at is None or self._sent_at is None else at - self._sent_at
