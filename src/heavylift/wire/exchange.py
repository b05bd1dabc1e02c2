"""One HTTP request and its reply: phases, a clock for each wait, and the class of a failure.

aiohttp's defaults are replaced where they distort: no cap on connections, no total timeout, no
proxy from the environment, no cookies, no compression (it holds events back), no redirects (they
would carry the key elsewhere).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, Final

import aiohttp

from heavylift.errors import HeavyliftError, Params, Scalar
from heavylift.wire.failures import Failure, Phase, TransportFault, classify_transport
from heavylift.wire.timing import Stopwatch

Clock = Callable[[], float]

_IDLE_S: Final = 4.0
"""How long an idle connection is kept: below the 5 s after which common engine front ends close
theirs, so that a request does not meet a connection in the act of closing."""
_READ_BUFFER_BYTES: Final = 256 * 1024
_STALE_S: Final = 1.0
_STALE_TRIES: Final = 3
"""A kept connection that is lost so soon after a request was written to it, before any reply, was
being closed from the other side meanwhile: the request is written again, to another one. Some
engines announce keep-alive and close after every stream. A later loss is not of this kind."""
_LINGER_S: Final = 0.25
"""How long the end of the reply is awaited after `[DONE]`, so that its connection can be reused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How long to wait, in seconds, each with a clock of its own. None = for ever.

    `first_byte_s` covers the queue and the prompt: a million tokens take minutes. `gap_s` is long
    because some tool-call parsers send nothing until the call is whole. There is no total limit
    unless asked for: a client's own limit must not decide what a server can do.
    """

    connect_s: float | None = 10.0
    first_byte_s: float | None = 900.0
    gap_s: float | None = 600.0
    total_s: float | None = None


def open_session(
    *tracing: aiohttp.TraceConfig, limits: Limits | None = None
) -> aiohttp.ClientSession:
    """A pool of connections with the defaults replaced that distort; the caller closes it.

    With `limits` only `connect_s` is set on it: the other clocks belong to the exchange.
    """
    connect_s = None if limits is None else limits.connect_s
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
        timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=connect_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        read_bufsize=_READ_BUFFER_BYTES,
        trace_configs=list(tracing),
    )


def tracing() -> aiohttp.TraceConfig:
    """What tells each exchange of a session when its request was written, and over what."""
    config = aiohttp.TraceConfig()
    config.on_connection_reuseconn.append(_reused)
    config.on_request_headers_sent.append(_headers_written)
    config.on_request_chunk_sent.append(_written)
    return config


class Exchange:
    """One HTTP request and reply, with its phase, its clocks and its failure."""

    def __init__(
        self,
        *,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        body: bytes | None,
        headers: dict[str, str],
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._session = session
        self._method = method
        self._url = url
        self._body = body
        self._headers = headers
        self._limits = limits
        self._clock = clock
        self._scope: asyncio.Timeout | None = None
        self._response: aiohttp.ClientResponse | None = None
        self._give_up_at: float | None = None
        self._phase = Phase.CONNECT
        self._is_reused = False
        self._written_at: float | None = None
        self.failure: Failure | None = None
        self.fault: BaseException | None = None
        self.resent = 0
        self.started_at = 0.0
        self.stopwatch = Stopwatch(0.0)

    @property
    def known_status(self) -> int | None:
        """The HTTP status; None when no reply came."""
        return None if self._response is None else self._response.status

    @property
    def status(self) -> int:
        """The HTTP status of a reply that came."""
        return 0 if self._response is None else self._response.status

    @property
    def content_type(self) -> str:
        """The media type of the reply."""
        return "" if self._response is None else self._response.content_type

    @property
    def is_event_stream(self) -> bool:
        """True when the reply is a success that arrives in events."""
        return self.status == HTTPStatus.OK and self.content_type == "text/event-stream"

    @property
    def has_body(self) -> bool:
        """True when the request has one."""
        return self._body is not None

    def header(self, name: str) -> str | None:
        """A header of the reply."""
        return None if self._response is None else self._response.headers.get(name)

    async def open(self) -> None:
        """Connect, write the request, wait for the headers of the reply."""
        now = asyncio.get_running_loop().time()
        if self._limits.total_s is not None:
            self._give_up_at = now + self._limits.total_s
        self.started_at = self._clock()
        self.stopwatch = Stopwatch(self.started_at)
        await self._try_to_open()
        while self._was_stale() and self.resent < _STALE_TRIES:
            self.resent += 1
            self.failure = None
            self._phase = Phase.CONNECT
            self._is_reused = False
            await self._try_to_open()

    def _was_stale(self) -> bool:
        """True when a kept connection was lost at once: nobody has seen the request."""
        return (
            self.failure is Failure.DISCONNECTED
            and self._is_reused
            and self._written_at is not None
            and asyncio.get_running_loop().time() - self._written_at < _STALE_S
        )

    async def _try_to_open(self) -> None:
        try:
            async with asyncio.timeout_at(self._deadline(self._limits.connect_s)) as self._scope:
                self._response = await self._session.request(
                    self._method,
                    self._url,
                    data=self._body,
                    headers=self._headers,
                    allow_redirects=False,
                    trace_request_ctx=self,
                )
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            self._fail(error)
            return
        finally:
            self._scope = None
        self.stopwatch.first_byte(self._clock())
        self._phase = Phase.READING

    def reused(self) -> None:
        """The request goes over a connection that served another before."""
        self._is_reused = True

    def written(self) -> None:
        """Bytes of the request went out: from here the wait for the first byte counts."""
        if self._scope is None:  # the reply came before the end of the request
            return
        self._written_at = asyncio.get_running_loop().time()
        self.stopwatch.sent(self._clock())
        self._phase = Phase.WAITING
        self._scope.reschedule(self._deadline(self._limits.first_byte_s))

    async def read_some(self) -> bytes:
        """The next bytes of the reply; empty at its end or at a failure, which is then noted."""
        if self._response is None:
            return b""
        content = self._response.content
        try:
            # What is there already needs no timer, which costs as much as the reading.
            there = content.read_nowait(-1)
            if there or content.at_eof():
                return there
            async with asyncio.timeout_at(self._deadline(self._limits.gap_s)):
                return await content.readany()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            self._fail(error)
            return b""

    async def read_all(self, limit_bytes: int) -> bytes:
        """The whole reply; more than the limit is `malformed`."""
        chunks: list[bytes] = []
        size = 0
        while chunk := await self.read_some():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit_bytes:
                self.failure = Failure.MALFORMED
                return b""
        return b"".join(chunks)

    async def linger(self) -> None:
        """Read on to the end of the reply for a moment; what else comes is of no interest."""
        if self._response is None or self._response.content.at_eof():
            return
        try:
            async with asyncio.timeout(_LINGER_S):
                while await self._response.content.readany():
                    pass
        except (TimeoutError, aiohttp.ClientError, OSError):
            self._response.close()

    def close(self) -> None:
        """Give the connection back, or close it when the reply was not read to its end."""
        if self._response is None:
            return
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()

    def _deadline(self, wait_s: float | None) -> float | None:
        if wait_s is None:
            return self._give_up_at
        deadline = asyncio.get_running_loop().time() + wait_s
        return deadline if self._give_up_at is None else min(deadline, self._give_up_at)

    def error(self, failure: Failure) -> HeavyliftError:
        """The error to raise for this failure."""
        return unanswered(
            self._url, failure, status=self.known_status, fault=self.fault, limits=self._limits
        )

    def _fail(self, error: BaseException) -> None:
        self.fault = error
        now = asyncio.get_running_loop().time()
        if not isinstance(error, TimeoutError):
            protocol = isinstance(error, aiohttp.ClientResponseError)
            fault = TransportFault.PROTOCOL if protocol else TransportFault.LOST
            self.failure = classify_transport(fault, self._phase)
        elif self._give_up_at is not None and now >= self._give_up_at:
            self.failure = Failure.TIMEOUT_TOTAL
        else:
            self.failure = classify_transport(TransportFault.TIMEOUT, self._phase)


async def _reused(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _parameters: Any
) -> None:
    exchange: Exchange = context.trace_request_ctx
    exchange.reused()


async def _headers_written(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _parameters: Any
) -> None:
    exchange: Exchange = context.trace_request_ctx
    # A body goes out right behind its headers and is told of by itself.
    if not exchange.has_body:
        exchange.written()


async def _written(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _parameters: Any
) -> None:
    exchange: Exchange = context.trace_request_ctx
    exchange.written()


def unanswered(
    url: str,
    failure: Failure,
    *,
    status: int | None = None,
    fault: BaseException | None = None,
    limits: Limits | None = None,
) -> HeavyliftError:
    """The error of a server that did not answer as it should: a code for each thing to be done.

    WIRE062 nothing listens, WIRE063 no such host, WIRE064 and WIRE070 no connection, WIRE065 and
    WIRE066 too late to connect and to answer, WIRE067 the connection was lost, WIRE068 no such
    route, WIRE069 no valid key, WIRE003 any other answer.
    """
    limits = limits or Limits()
    params: dict[str, Scalar] = {"url": url, "status": status, "failure": failure}
    late = {
        Failure.TIMEOUT_CONNECT: ("WIRE065", limits.connect_s),
        Failure.TIMEOUT_FIRST_BYTE: ("WIRE066", limits.first_byte_s),
        Failure.TIMEOUT_GAP: ("WIRE066", limits.gap_s),
        Failure.TIMEOUT_TOTAL: ("WIRE066", limits.total_s),
    }
    if failure in late:
        code, waited_s = late[failure]
        return HeavyliftError(code, {**params, "seconds": f"{waited_s or 0:g}"})
    if failure is Failure.CONNECT:
        return _unconnected(params, fault)
    if status is None:
        return HeavyliftError("WIRE067", params)
    by_status = {Failure.NOT_FOUND: "WIRE068", Failure.UNAUTHORISED: "WIRE069"}
    return HeavyliftError(by_status.get(failure, "WIRE003"), params)


def _unconnected(params: Params, fault: BaseException | None) -> HeavyliftError:
    if isinstance(fault, aiohttp.ClientConnectorDNSError):
        return HeavyliftError("WIRE063", {**params, "host": fault.host})
    if isinstance(fault, aiohttp.ClientConnectorError) and isinstance(
        fault.os_error, ConnectionRefusedError
    ):
        return HeavyliftError("WIRE062", params)
    if fault is not None:
        return HeavyliftError("WIRE064", {**params, "reason": str(fault)})
    return HeavyliftError("WIRE070", params)
