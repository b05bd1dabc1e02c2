"""The carrier: takes a request to a worker and its reply back, without holding an event back.

Every open exchange is a flight. Flights are watched by one sweep per second rather than by a timer
each, because a timer per chunk costs more than the chunk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Protocol, Self

import aiohttp

from heavylift.errors import HeavyliftError
from heavylift.gateway import quota, relay, routing
from heavylift.gateway.config import Times
from heavylift.gateway.quota import Bound, Cost
from heavylift.gateway.relay import Relay
from heavylift.gateway.request import Asked, Style
from heavylift.gateway.routing import Fleet, Worker
from heavylift.wire.client import Limits, open_session
from heavylift.wire.failures import Failure, classify_status, decode_error
from heavylift.wire.reply import Usage

REPLY_BYTES: Final = 256 * 2**20
_TIMEOUTS: Final = frozenset({Failure.TIMEOUT_FIRST_BYTE, Failure.TIMEOUT_GAP})
_SUCCESS: Final = range(200, 300)


class ClientGone(Exception):  # noqa: N818 - not an error: an event
    """The client closed its side."""


class Failed(Exception):  # noqa: N818 - the outcome of an attempt; whether it is an error is open
    """An attempt that brought nothing that could be passed on."""

    def __init__(self, failure: Failure, answer: Answer | None = None) -> None:
        super().__init__(failure)
        self.failure = failure
        self.answer = answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A whole reply of a worker."""

    status: int
    content_type: str
    body: bytes
    retry_after: str | None = None


@dataclass(kw_only=True, slots=True, eq=False)
class Flight:
    """One exchange with a worker. Times are the monotonic clock.

    `failure` is set by whoever ends it from outside; `writing_since` is when a write to the client
    began that has not ended.
    """

    worker: Worker
    allowed_s: float
    last_at: float
    failure: Failure | None = None
    scope: asyncio.Timeout | None = None
    upstream: aiohttp.ClientResponse | None = None
    writing_since: float | None = None
    drop_client: Callable[[], None] = field(default=lambda: None)

    def end(self, failure: Failure) -> None:
        """Make the exchange fail, wherever it waits."""
        self.failure = self.failure or failure
        if self.upstream is not None:
            self.upstream.close()
        elif self.scope is not None:
            self.scope.reschedule(0)


@dataclass(kw_only=True, slots=True)
class Job:
    """A request under way and what is known of it, for the ledger and the audit."""

    asked: Asked
    model: str
    bound: Bound
    began_at: float
    worker: Worker | None = None
    attempts: int = 0
    generating: bool = False
    """An engine has the request, and nothing says that it refused it."""
    failure: Failure | None = None
    status: int | None = None
    tokens_seen: int = 0
    usage: Usage | None = None
    first_token_at: float | None = None
    bytes_out: int = 0

    def cost(self) -> Cost:
        """What the request is charged as things stand."""
        if not self.generating:
            return quota.NOTHING
        usage = self.usage or Usage()
        return quota.cost(
            self.bound,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=(
                usage.completion_tokens if self.asked.route.caps else usage.completion_tokens or 0
            ),
            seen_tokens=self.tokens_seen,
            cached_tokens=usage.cached_tokens or 0,
        )


Send = Callable[[bytes], Awaitable[None]]


class Carrier:
    """The connections to all workers. An async context manager."""

    def __init__(self, fleet: Fleet, times: Times, worker_key: str | None) -> None:
        self._fleet = fleet
        self._times = times
        self._key = worker_key
        self._session: aiohttp.ClientSession | None = None
        self.flights: set[Flight] = set()

    async def __aenter__(self) -> Self:
        self._session = open_session(limits=Limits(connect_s=self._times.connect_s))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The pool of connections; only while the carrier is open."""
        if self._session is None:
            message = "the carrier is not open"
            raise RuntimeError(message)
        return self._session

    async def carry(self, job: Job, headers: dict[str, str], client: Downstream) -> Answer | None:
        """The worker's whole reply, or None when it was streamed to the client.

        Tries one other worker where that is safe. Raises GW060 when no worker can take it, `Failed`
        when none brought anything, `ClientGone`.
        """
        excluded: list[str] = []
        last: Failed | None = None
        while True:
            worker = self._choose(job, excluded, last)
            if worker is None:
                if last is not None:
                    raise last
                raise HeavyliftError("GW060", {"model": job.asked.model})
            try:
                return await self._attempt(job, worker, headers, client)
            except Failed as failed:
                last = failed
                excluded.append(worker.upstream.name)
                stateless = job.asked.route.stateless
                if job.attempts > 1 or not routing.may_retry(
                    failed.failure, job.status, stateless=stateless
                ):
                    raise

    def _choose(self, job: Job, excluded: list[str], last: Failed | None) -> Worker | None:
        prompt, prefix = job.bound.prompt_tokens, job.asked.prefix
        other = self._fleet.choose(
            job.model, prompt_tokens=prompt, prefix=prefix, excluded=excluded
        )
        if other is None and last is not None and last.failure is Failure.DISCONNECTED:
            # An idle connection that the worker closed just then looks the same as its end.
            return self._fleet.choose(job.model, prompt_tokens=prompt, prefix=prefix)
        return other

    async def _attempt(
        self, job: Job, worker: Worker, headers: dict[str, str], client: Downstream
    ) -> Answer | None:
        now = time.monotonic()
        job.attempts += 1
        job.worker, job.status, job.failure = worker, None, None
        allowed_s = routing.patience_s(self._times.first_byte_s, job.bound.prompt_tokens)
        flight = Flight(worker=worker, allowed_s=allowed_s, last_at=now, drop_client=client.drop)
        self._fleet.began(worker, job.bound.tokens, now)
        self.flights.add(flight)
        try:
            return await self._exchange(job, flight, headers, client)
        except Failed as failed:
            job.failure = failed.failure
            raise
        finally:
            self.flights.discard(flight)
            if flight.upstream is not None:
                flight.upstream.close()  # no more than a release when it was read to its end
            # Blame is for what the worker did: a client that went away is nobody's failure.
            self._fleet.ended(worker, job.bound.tokens, job.failure, job.status)

    async def _exchange(
        self, job: Job, flight: Flight, headers: dict[str, str], client: Downstream
    ) -> Answer | None:
        upstream = await self._open(job, flight, headers)
        job.status = upstream.status
        flight.upstream = upstream
        self._progress(flight)
        if upstream.status == HTTPStatus.OK and upstream.content_type == "text/event-stream":
            flight.allowed_s = max(flight.allowed_s, self._times.gap_s)
            await self._stream(job, flight, upstream, client)
            return None
        answer = await self._whole(flight, upstream)
        return self._judged(job, answer)

    async def _open(
        self, job: Job, flight: Flight, headers: dict[str, str]
    ) -> aiohttp.ClientResponse:
        route = job.asked.route
        body = job.asked.body(job.model, job.bound)
        allowed_s = flight.allowed_s
        if not job.asked.stream and route.caps:
            # Nothing comes before the answer is complete; five tokens a second is slow.
            allowed_s += job.bound.output_tokens / 5
        job.generating = True
        # How much of a reply that is not streamed was generated shows only at its end.
        job.tokens_seen = 0 if job.asked.stream else job.bound.output_tokens
        try:
            async with asyncio.timeout(allowed_s) as flight.scope:
                return await self.session.post(
                    f"{flight.worker.upstream.url}{route.path}",
                    data=body,
                    headers=headers | self._key_headers(route.style),
                    allow_redirects=False,
                )
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            job.generating = False
            raise Failed(flight.failure or _open_failure(error)) from error
        finally:
            flight.scope = None

    def _key_headers(self, style: Style) -> dict[str, str]:
        """The worker's own key. What the client sent as its key never gets here."""
        if self._key is None:
            return {}
        keyed = {"Authorization": f"Bearer {self._key}"}
        return keyed | {"x-api-key": self._key} if style is Style.ANTHROPIC else keyed

    def _progress(self, flight: Flight) -> None:
        flight.last_at = flight.worker.progress_at = time.monotonic()

    async def _whole(self, flight: Flight, upstream: aiohttp.ClientResponse) -> Answer:
        chunks: list[bytes] = []
        size = 0
        try:
            while chunk := await upstream.content.readany():
                self._progress(flight)
                chunks.append(chunk)
                size += len(chunk)
                if size > REPLY_BYTES:
                    raise Failed(Failure.MALFORMED)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Failed(flight.failure or Failure.STREAM_BROKEN) from error
        return Answer(
            status=upstream.status,
            content_type=upstream.headers.get("Content-Type", "application/json"),
            body=b"".join(chunks),
            retry_after=upstream.headers.get("Retry-After"),
        )

    def _judged(self, job: Job, answer: Answer) -> Answer:
        if answer.status not in _SUCCESS:
            job.generating = False
            failure = classify_status(answer.status, decode_error(answer.body))
            raise Failed(failure or Failure.MALFORMED, answer)
        try:
            job.usage = relay.usage_of(answer.body)
        except HeavyliftError as problem:
            job.generating = False
            raise Failed(Failure.MALFORMED) from problem
        job.tokens_seen = len(answer.body)  # where usage is missing: no token without a byte
        return answer

    async def _stream(
        self, job: Job, flight: Flight, upstream: aiohttp.ClientResponse, client: Downstream
    ) -> None:
        """Pass a stream on. Once something was passed on, a failure becomes its last event."""
        reading = Relay(job.asked.route.dialect, wants_usage=job.asked.wants_usage)
        clock = time.monotonic
        failure: Failure | None = None
        read, worker = upstream.content.readany, flight.worker
        try:
            while chunk := await read():
                flight.last_at = worker.progress_at = now = clock()
                events = reading.feed(chunk)
                if job.first_token_at is None and reading.tokens:
                    job.first_token_at = now
                if events and not client.push(events):
                    flight.writing_since = now
                    await client.send(events)
                    flight.writing_since = None
                if reading.malformed:
                    break
            failure = reading.failure()
        except (aiohttp.ClientError, OSError):
            # Before anything was passed on it is as if there had been no reply.
            broken = Failure.STREAM_BROKEN if client.began else Failure.DISCONNECTED
            failure = flight.failure or broken
        finally:
            job.tokens_seen, job.usage = reading.tokens, reading.usage
        if failure is None:
            return
        if not client.began:
            job.generating = False
            raise Failed(failure)
        job.failure = failure
        if not reading.failed:  # the worker said so itself
            await client.send(client.error_event(failure))

    async def watch(self) -> None:
        """End the flights that have waited too long. Runs until it is cancelled."""
        period_s = min(1.0, self._times.gap_s / 4, self._times.slow_client_s / 4)
        while True:
            await asyncio.sleep(period_s)
            now = time.monotonic()
            for flight in tuple(self.flights):
                self._watch_one(flight, now)

    def _watch_one(self, flight: Flight, now: float) -> None:
        if flight.writing_since is not None:
            if now - flight.writing_since > self._times.slow_client_s:
                flight.drop_client()
        elif flight.upstream is not None and now - flight.last_at > flight.allowed_s:
            flight.end(Failure.TIMEOUT_GAP)

    def end_silent(self, worker: Worker, silent_s: float) -> None:
        """End the flights of a worker that was thrown out for want of progress."""
        now = time.monotonic()
        for flight in tuple(self.flights):
            if flight.worker is worker and now - flight.last_at >= silent_s:
                waiting = flight.upstream is None
                flight.end(Failure.TIMEOUT_FIRST_BYTE if waiting else Failure.TIMEOUT_GAP)

    def end_all(self) -> None:
        """End every flight: the gateway goes."""
        for flight in tuple(self.flights):
            flight.end(Failure.ABORTED)


class Downstream(Protocol):
    """The client's side of a stream, as the carrier needs it."""

    began: bool

    def push(self, events: bytes) -> bool:
        """Write events to the client if that takes no waiting; False when it does."""

    async def send(self, events: bytes) -> None:
        """Write events to the client; the first write begins the reply. Raises `ClientGone`."""

    def error_event(self, failure: Failure) -> bytes:
        """The event that tells the client of a failure."""

    def drop(self) -> None:
        """Cut the client off."""


def status_of(failure: Failure) -> HTTPStatus:
    """The status that tells a client of a failed attempt without an answer."""
    return HTTPStatus.GATEWAY_TIMEOUT if failure in _TIMEOUTS else HTTPStatus.BAD_GATEWAY


def _open_failure(error: BaseException) -> Failure:
    """The failure class of a request to which no headers came."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Failure.TIMEOUT_CONNECT
    if isinstance(error, aiohttp.ClientConnectorError):
        return Failure.CONNECT
    if isinstance(error, TimeoutError):
        return Failure.TIMEOUT_FIRST_BYTE
    if isinstance(error, aiohttp.ClientResponseError):
        return Failure.MALFORMED
    return Failure.DISCONNECTED
