"""Routing: which worker gets a request, and which workers get none. Decides, does not look.

Every method that needs the time gets it as `now_s`, seconds on a clock that never jumps. A worker
is out until a probe has answered for it; from then on it takes traffic until it is drained or
thrown out: at once when nobody listens, after several failures in a row, or when it makes no
progress and probes fail too. An error that a request brought on itself (4xx) never counts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.wire.failures import Failure

FAILURES_IN_A_ROW: Final = 5
"""After this many failures without a success between them a worker is thrown out."""
AFFINITY_BYTES: Final = 1_024
"""Shorter prompts have no home: there is little to compute again."""
AFFINITY_SLACK: Final = 1.25
"""A worker that has seen a prompt's beginning is preferred until its load is so many times that
of the least loaded one, and `AFFINITY_TOKENS` more."""
AFFINITY_TOKENS: Final = 16_384
PREFILL_BYTES_PER_S: Final = 1_000
"""Slowest reading of a prompt that is still taken for progress: its first byte may take as long
as its bytes at this rate."""

_AT_ONCE: Final = frozenset({Failure.CONNECT, Failure.TIMEOUT_CONNECT})
_COUNTS: Final = frozenset(
    {
        Failure.DISCONNECTED,
        Failure.SERVER_ERROR,
        Failure.STREAM_BROKEN,
        Failure.STREAM_ERROR_EVENT,
        Failure.MISSING_FINISH_REASON,
        Failure.MALFORMED,
        Failure.TIMEOUT_FIRST_BYTE,
        Failure.TIMEOUT_GAP,
    }
)
_RETRIED: Final = frozenset({Failure.CONNECT, Failure.TIMEOUT_CONNECT, Failure.DISCONNECTED})
_RETRIED_STATUSES: Final = frozenset({502, 503})


class Lane(StrEnum):
    """Which prompts a worker is kept for."""

    ALL = "all"
    LONG = "long"


class State(StrEnum):
    """Whether a worker gets traffic, and if not, why."""

    UNKNOWN = "unknown"
    """Not probed yet."""
    IN = "in"
    OUT = "out"


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    """A worker as configured. `weight` is its share of the traffic."""

    name: str
    url: str
    weight: float = 1.0
    lane: Lane = Lane.ALL


@dataclass(frozen=True, kw_only=True, slots=True)
class Routes:
    """What is configured of routing. `aliases`: name of a client -> model of a worker.

    `long_from_tokens`: prompts whose bound reaches it go to the long lane, where there is one.
    """

    upstreams: tuple[Upstream, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    long_from_tokens: int = 131_072


@dataclass(slots=True)
class Worker:
    """A worker as it is now. `outstanding_tokens` are the bounds of its open requests, `had` counts
    the requests it ever got, `contexts` are its models' contexts where it states them,
    `progress_at` is when it last sent anything to anybody.
    """

    upstream: Upstream
    state: State = State.UNKNOWN
    reason: str | None = None
    draining: bool = False
    models: tuple[str, ...] = ()
    contexts: Mapping[str, int] = field(default_factory=dict)
    outstanding_tokens: int = 0
    open_requests: int = 0
    had: int = 0
    failures: int = 0
    misses: int = 0
    progress_at: float = 0.0

    @property
    def takes(self) -> bool:
        """True when it gets new requests."""
        return self.state is State.IN and not self.draining

    @property
    def load(self) -> float:
        """Outstanding tokens by weight."""
        return self.outstanding_tokens / self.upstream.weight


class Fleet:
    """All workers of a gateway and what is known of them."""

    def __init__(
        self, routes: Routes, on_change: Callable[[Worker, State], None] | None = None
    ) -> None:
        """`on_change` gets a worker that came in or went out, and what it was before."""
        self.routes = routes
        self._on_change = on_change
        self.workers = {each.name: Worker(each) for each in routes.upstreams}

    def model_of(self, asked: str) -> str:
        """The worker's name of a model that a client asks for."""
        return self.routes.aliases.get(asked, asked)

    def models(self) -> tuple[str, ...]:
        """Every model that some worker takes requests for, and the aliases of these."""
        served = {
            model for worker in self.workers.values() if worker.takes for model in worker.models
        }
        aliases = {alias for alias, model in self.routes.aliases.items() if model in served}
        return tuple(sorted(served | aliases))

    def context_tokens(self, asked: str) -> int | None:
        """The context that every worker of a model has; None when none states it."""
        model = self.model_of(asked)
        stated = [w.contexts[model] for w in self.workers.values() if model in w.contexts]
        return min(stated, default=None)

    def knows(self, model: str) -> bool:
        """True when some worker serves the model, whether or not it takes requests now."""
        return any(model in worker.models for worker in self.workers.values())

    def choose(
        self,
        model: str,
        *,
        prompt_tokens: int,
        prefix: bytes,
        excluded: Collection[str] = (),
    ) -> Worker | None:
        """The worker for a request; None when none can take it.

        Least outstanding tokens by weight, unless the worker to which the prompt's beginning
        belongs is not much busier: it has that part computed already.
        """
        able = [
            worker
            for worker in self.workers.values()
            if worker.takes and model in worker.models and worker.upstream.name not in excluded
        ]
        able = self._in_lane(able, prompt_tokens)
        if not able:
            return None
        # Of idle workers the one that has had the least so far, so that they take turns.
        least = min(able, key=lambda worker: (worker.load, worker.had / worker.upstream.weight))
        if len(prefix) < AFFINITY_BYTES:
            return least
        home = max(able, key=lambda worker: _affinity(prefix, model, worker.upstream))
        bound = least.load * AFFINITY_SLACK + AFFINITY_TOKENS / home.upstream.weight
        return home if home.load <= bound else least

    def _in_lane(self, able: list[Worker], prompt_tokens: int) -> list[Worker]:
        """Those of the lane; all where the lane has none."""
        lane = Lane.LONG if prompt_tokens >= self.routes.long_from_tokens else Lane.ALL
        return [worker for worker in able if worker.upstream.lane is lane] or able

    # --- what happens to requests ----------------------------------------------------------------

    def began(self, worker: Worker, tokens: int, now_s: float) -> None:
        """A request went to the worker."""
        if not worker.open_requests:
            worker.progress_at = now_s  # an idle worker owes no progress
        worker.open_requests += 1
        worker.had += 1
        worker.outstanding_tokens += tokens

    def ended(
        self, worker: Worker, tokens: int, failure: Failure | None, status: int | None
    ) -> None:
        """A request has left the worker. `failure` as the worker is to blame for it."""
        worker.open_requests -= 1
        worker.outstanding_tokens -= tokens
        if failure in _AT_ONCE:
            self.throw_out(worker, str(failure))
        elif counts_against(failure, status):
            worker.failures += 1
            if worker.failures >= FAILURES_IN_A_ROW:
                self.throw_out(worker, str(failure))
        elif failure is None:
            worker.failures = 0

    def stalled(self, worker: Worker, stall_s: float, now_s: float) -> bool:
        """True when the worker has open requests and has sent nothing to anybody for so long."""
        return worker.open_requests > 0 and now_s - worker.progress_at >= stall_s

    # --- probes ----------------------------------------------------------------------------------

    def probe_succeeded(
        self,
        worker: Worker,
        models: tuple[str, ...] | None = None,
        contexts: Mapping[str, int] | None = None,
    ) -> None:
        """The worker answered a probe that a sick one would not have answered, and listed its
        models with their contexts if it was asked for them.
        """
        worker.misses = 0
        if models is not None:
            worker.models, worker.contexts = models, contexts or {}
        if worker.state is not State.IN:
            worker.failures = 0
            self._change(worker, State.IN, None)

    def probe_failed(self, worker: Worker, reason: str, misses_allowed: int) -> None:
        """The worker did not answer a probe; `misses_allowed` in a row throw it out."""
        worker.misses += 1
        if worker.misses >= misses_allowed:
            self.throw_out(worker, reason)

    def throw_out(self, worker: Worker, reason: str) -> None:
        """No new requests until a probe answers."""
        self._change(worker, State.OUT, reason)

    def _change(self, worker: Worker, state: State, reason: str | None) -> None:
        before, worker.state, worker.reason = worker.state, state, reason
        if state is not before and self._on_change is not None:
            self._on_change(worker, before)

    def drain(self, name: str, *, draining: bool) -> bool:
        """Start or stop draining a worker: its open requests go on. False when there is none."""
        worker = self.workers.get(name)
        if worker is None:
            return False
        worker.draining = draining
        return True


def counts_against(failure: Failure | None, status: int | None) -> bool:
    """True when a worker is to blame for a failure. A 4xx is the request's own fault, always."""
    if status is not None and 400 <= status < 500:  # noqa: PLR2004 - the 4xx class
        return False
    return failure in _COUNTS


def may_retry(failure: Failure | None, status: int | None, *, stateless: bool) -> bool:
    """True when the request may go to another worker, before any byte of a reply was passed on.

    Nobody was there, or the door was shut, or the worker went without a word: then nothing of the
    first attempt is left to be duplicated. Where the server keeps something of a request, only
    when nobody was there.
    """
    if failure in _AT_ONCE:
        return True
    return stateless and (failure in _RETRIED or status in _RETRIED_STATUSES)


def patience_s(base_s: float, prompt_tokens: int) -> float:
    """How long the first byte may take: a base and the time a long prompt takes to be read."""
    return base_s + prompt_tokens / PREFILL_BYTES_PER_S


def _affinity(prefix: bytes, model: str, upstream: Upstream) -> float:
    """Rendezvous hashing: the worker with the highest score is the prompt's home.

    Formula: weight ÷ −ln(u) is the weighted form; with u uniform in (0, 1) it shares prompts out
    by weight, and a worker that goes moves only the prompts it had.
    Source: Schindelhauer and Schomaker, "Weighted distributed hash tables", 2005.
    """
    data = b"\0".join((upstream.name.encode(), model.encode(), prefix))
    number = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())
    return -upstream.weight / math.log((number + 1) / (2**64 + 1))
