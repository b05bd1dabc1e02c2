"""A client of model servers: one small interface over aiohttp.

Failures of a chat do not raise: they are part of the outcome, with their class, because a batch,
a benchmark and a verification each have their own mind about them. The clock is an argument.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec

from heavylift.errors import HeavyliftError
from heavylift.wire import openai, sse
from heavylift.wire.exchange import Clock, Exchange, Limits, open_session, tracing, unanswered
from heavylift.wire.failures import (
    UNDECODABLE,
    ErrorBody,
    Failure,
    classify_status,
    decode_error,
    retry_after_s,
)
from heavylift.wire.protocols import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Protocol
from heavylift.wire.reply import Accumulator, ChatRequest, Delta, Reply
from heavylift.wire.timing import Latency

__all__ = [
    "CHAT",
    "COMPLETIONS",
    "MESSAGES",
    "RESPONSES",
    "ChatStream",
    "Client",
    "Endpoint",
    "Identity",
    "Limits",
    "ModelCard",
    "Outcome",
    "Protocol",
    "Timed",
    "WholeReply",
    "ask",
    "is_address",
    "list_models",
    "open_session",
    "unanswered",
]

_ERROR_BODY_BYTES: Final = 64 * 1024
_REPLY_BYTES: Final = 256 * 2**20
_LOOK_S: Final = 30.0
"""The longest wait for what a server says of itself: no generation is in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """A model server: `base_url` without the `/v1`. The key is kept out of every text."""

    base_url: str
    key: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, key: str | None = None) -> Endpoint:
        """An endpoint from a URL as typed, with or without `/v1`. Raises USE021 for another thing,
        USE022 for a host or port that cannot be.

        A URL that holds a user name or password is refused: it would end up in logs.
        """
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError as problem:
            raise HeavyliftError("USE022", {"detail": str(problem).partition(" as ")[0]}) from None
        if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
            meant = f"http://{url}" if is_address(url) else None
            raise HeavyliftError("USE021", {"suggestion": meant})
        base = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        return cls(base_url=base.removesuffix("/v1").rstrip("/"), key=key)


def is_address(words: str) -> bool:
    """True for a host with its port, as in a URL whose `http://` was left out."""
    return re.match(r"([\w.-]+|\[[0-9a-fA-F:]+\]):\d{1,5}(/|$)", words) is not None


class Timed(msgspec.Struct, frozen=True, gc=False):
    """A delta and when it was received (the client's clock, seconds)."""

    at: float
    delta: Delta


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one chat request.

    `started_at` is the client's clock. `resent` counts how often the request was written again
    because a kept connection turned out to be closed. `body` is the whole document of a reply
    that was not streamed. `retry_after_s` is the server's wish.
    """

    reply: Reply
    latency: Latency
    started_at: float
    status: int | None = None
    retry_after_s: float | None = None
    request_id: str | None = None
    resent: int = 0
    body: bytes | None = None

    @property
    def failure(self) -> Failure | None:
        """The failure class; None = a finished, well-formed answer."""
        return self.reply.failure


class WholeReply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of one document posted to any route; the reply's body is unread.

    `failure` None = a 2xx whose body came in full. `error` is what the server said otherwise.
    """

    latency: Latency
    started_at: float
    body: bytes = b""
    failure: Failure | None = None
    error: ErrorBody | None = None
    status: int | None = None
    retry_after_s: float | None = None
    request_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCard:
    """A model as the server lists it. `context_tokens` None = it did not say.

    `owned_by` is most engines' way to say which they are.
    """

    id: str
    context_tokens: int | None = None
    owned_by: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Which engine answers, in its own words. None = it does not say."""

    engine: str | None = None
    version: str | None = None


class Client:
    """A pool of connections to one endpoint. An async context manager: it must be closed."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        limits: Limits | None = None,
        clock: Clock = time.perf_counter,
        wall_clock: Clock = time.time,
    ) -> None:
        """`wall_clock` is only for a `Retry-After` that is a date."""
        self.endpoint = endpoint
        self.limits = limits or Limits()
        self.clock = clock
        self.wall_clock = wall_clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = open_session(tracing())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def open_chat(self, request: ChatRequest, protocol: Protocol = CHAT) -> ChatStream:
        """A chat to be iterated inside `async with`. Leaving it early closes the socket, so that
        the engine stops generating.
        """
        return ChatStream(self, request, protocol)

    async def chat(self, request: ChatRequest, protocol: Protocol = CHAT) -> Outcome:
        """The outcome of one chat, read to its end."""
        async with self.open_chat(request, protocol) as stream:
            async for _ in stream:
                pass
            return stream.outcome()

    async def post(self, path: str, body: bytes) -> WholeReply:
        """The whole reply to a document sent as it is. Cancelling it closes the socket."""
        exchange = self._exchange("POST", path, body)
        try:
            await exchange.open()
            content = await exchange.read_all(_REPLY_BYTES)
        finally:
            exchange.close()
        exchange.stopwatch.ended(self.clock())
        failure, error = exchange.failure, None
        if failure is None and exchange.status != HTTPStatus.OK:
            error = decode_error(content)
            failure = classify_status(exchange.status, error)
        wish = exchange.header("Retry-After")
        return WholeReply(
            latency=exchange.stopwatch.latency(),
            started_at=exchange.started_at,
            body=content,
            failure=failure,
            error=error,
            status=exchange.known_status,
            retry_after_s=retry_after_s(wish, now_epoch_s=self.wall_clock()),
            request_id=exchange.header("x-request-id"),
        )

    async def models(self) -> tuple[ModelCard, ...]:
        """The models the server lists. Raises as `unanswered` says when it does not answer."""
        document = await self._get_json("/v1/models")
        try:
            listed = msgspec.convert(document, _ModelList)
        except msgspec.ValidationError as problem:
            raise self._refused("/v1/models") from problem
        return tuple(
            ModelCard(id=model.id, context_tokens=model.max_model_len, owned_by=model.owned_by)
            for model in listed.data
        )

    async def first_model(self) -> ModelCard:
        """The first model the server lists. Raises as `models`, WIRE061 for no model."""
        listed = await self.models()
        if not listed:
            raise HeavyliftError("WIRE061", {"url": self.endpoint.base_url})
        return listed[0]

    async def identity(self) -> Identity:
        """Which engine answers and its version, from the routes on which engines say so."""
        engine = version = None
        with suppress(HeavyliftError):
            engine = next((card.owned_by for card in await self.models()), None)
        with suppress(HeavyliftError):
            document = await self._get_json("/version")
            version = document.get("version") if isinstance(document, dict) else None
        if version is None:
            with suppress(HeavyliftError):
                version = (await self.props() or {}).get("build_info")
        return Identity(engine=engine, version=None if version is None else str(version))

    async def health(self) -> Failure | None:
        """None when `/health` says yes, else the class of its no (`overloaded` = still loading)."""
        exchange = self._exchange("GET", "/health")
        await exchange.open()
        await exchange.read_all(_ERROR_BODY_BYTES)
        exchange.close()
        return exchange.failure or classify_status(exchange.status)

    async def props(self) -> dict[str, Any] | None:
        """What the server says of itself at `/props`; None where there is no such route."""
        try:
            document = await self._get_json("/props")
        except HeavyliftError as error:
            if error.params.get("failure") == Failure.NOT_FOUND:
                return None
            raise
        return document if isinstance(document, dict) else None

    async def tokenize(self, model: str, text: str) -> tuple[int, ...] | None:
        """The tokens of `text` by the server's `/tokenize`; None where there is no such route."""
        # Engines name the text `prompt` or `content`; each ignores the other name.
        body = msgspec.json.encode({"model": model, "prompt": text, "content": text})
        try:
            document = await self._get_json("/tokenize", body)
        except HeavyliftError as error:
            if error.params.get("failure") == Failure.NOT_FOUND:
                return None
            raise
        try:
            return msgspec.convert(document, _Tokens).tokens
        except msgspec.ValidationError as problem:
            raise self._refused("/tokenize") from problem

    async def page(self, path: str) -> str | None:
        """The text at a path (metrics, for one); None where there is no such route.

        Raises as `unanswered` says when the server answers with another error, or not at all.
        """
        exchange = self._exchange("GET", path)
        await exchange.open()
        content = await exchange.read_all(_REPLY_BYTES)
        exchange.close()
        failure = exchange.failure or classify_status(exchange.status)
        if failure is Failure.NOT_FOUND:
            return None
        if failure is not None:
            raise exchange.error(failure)
        return content.decode("utf-8", "replace")

    async def _get_json(self, path: str, body: bytes | None = None) -> Any:
        exchange = self._exchange("GET" if body is None else "POST", path, body)
        await exchange.open()
        content = await exchange.read_all(_REPLY_BYTES)
        exchange.close()
        failure = exchange.failure or classify_status(exchange.status, decode_error(content))
        if failure is not None:
            raise exchange.error(failure)
        try:
            return msgspec.json.decode(content)
        except UNDECODABLE as problem:
            raise exchange.error(Failure.MALFORMED) from problem

    def _refused(self, path: str) -> HeavyliftError:
        return unanswered(
            f"{self.endpoint.base_url}{path}", Failure.MALFORMED, status=HTTPStatus.OK
        )

    def _exchange(
        self, method: str, path: str, body: bytes | None = None, protocol: Protocol = CHAT
    ) -> Exchange:
        if self._session is None:
            message = "the client is not open"
            raise RuntimeError(message)
        limits = self.limits
        if method == "GET":
            brief_s = min(_LOOK_S, limits.first_byte_s or _LOOK_S)
            limits = replace(limits, first_byte_s=brief_s)
        return Exchange(
            session=self._session,
            method=method,
            url=f"{self.endpoint.base_url}{path}",
            body=body,
            headers=protocol.all_headers(self.endpoint.key),
            limits=limits,
            clock=self.clock,
        )


class ChatStream:
    """One chat: an async context manager and iterator of timed deltas. See `Client.open_chat`."""

    def __init__(self, client: Client, request: ChatRequest, protocol: Protocol) -> None:
        self._client = client
        self._request = request
        self._protocol = protocol
        self._exchange = client._exchange(  # noqa: SLF001 - two halves of one module
            "POST", protocol.path, protocol.encode(request), protocol
        )
        self._accumulator = Accumulator()
        self._parser = sse.Parser()
        self._ready: deque[Timed] = deque()
        self._over = False
        self._failure: Failure | None = None
        self._error: ErrorBody | None = None
        self._body: bytes | None = None
        self._outcome: Outcome | None = None

    async def __aenter__(self) -> Self:
        await self._exchange.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exchange.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Timed:
        while not self._ready:
            if self._over:
                await self._finish()
                raise StopAsyncIteration
            await self._read()
        return self._ready.popleft()

    def outcome(self) -> Outcome:
        """What became of it; only after the iteration has ended."""
        if self._outcome is None:
            message = "the chat has not been read to its end"
            raise RuntimeError(message)
        return self._outcome

    def abandoned(self) -> Outcome:
        """What had come of a reply that is being left in its middle; its failure is that of any
        unfinished reply.
        """
        return self._make_outcome()

    async def _read(self) -> None:
        exchange = self._exchange
        if exchange.failure is None:
            if exchange.is_event_stream:
                await self._read_events()
            else:
                await self._read_whole()
                self._over = True
        if self._over or exchange.failure is not None:
            self._over = True
            exchange.stopwatch.ended(self._client.clock())

    async def _read_events(self) -> None:
        chunk = await self._exchange.read_some()
        if not chunk:
            self._over = True
            return
        # One time for all events of a read: they arrived together.
        at = self._client.clock()
        try:
            for event in self._parser.feed(chunk):
                if event.data == openai.DONE:
                    self._accumulator.done()
                    self._over = True
                    return
                self._take(at, self._protocol.event(event.data))
        except HeavyliftError as problem:
            self._note_malformed(problem)

    def _take(self, at: float, delta: Delta) -> None:
        self._exchange.stopwatch.delta(delta, at)
        self._accumulator.add(delta)
        self._ready.append(Timed(at, delta))

    async def _read_whole(self) -> None:
        exchange = self._exchange
        body = await exchange.read_all(_REPLY_BYTES)
        if exchange.failure is not None:
            return
        self._error = decode_error(body)
        self._failure = classify_status(exchange.status, self._error)
        if self._failure is not None:
            self._error = self._error or ErrorBody(message=body[:500].decode("utf-8", "replace"))
            return
        if self._request.stream and self._error is None:
            self._failure = Failure.MALFORMED
            self._error = ErrorBody(message=exchange.content_type, type="content_type")
            return
        self._body = body
        try:
            delta = self._protocol.reply(body)
        except HeavyliftError as problem:
            self._note_malformed(problem)
            return
        # Not shown to the stopwatch: a whole reply has no first token to be seen.
        self._accumulator.add(delta)
        self._ready.append(Timed(self._client.clock(), delta))

    async def _finish(self) -> None:
        if self._outcome is not None:
            return
        if self._failure is None:
            await self._exchange.linger()
        self._exchange.close()
        self._outcome = self._make_outcome()

    def _note_malformed(self, problem: HeavyliftError) -> None:
        self._over = True
        self._failure = Failure.MALFORMED
        self._error = ErrorBody(message=str(problem), type=problem.code)

    def _make_outcome(self) -> Outcome:
        exchange = self._exchange
        failure = exchange.failure or self._failure
        reply = self._accumulator.reply(failure, self._error)
        if reply.failure is Failure.MISSING_FINISH_REASON and self._parser.pending:
            # Ended in good order as far as HTTP can tell, but inside an event.
            reply = self._accumulator.reply(Failure.STREAM_BROKEN, self._error)
        return Outcome(
            reply=reply,
            latency=exchange.stopwatch.latency(),
            started_at=exchange.started_at,
            status=exchange.known_status,
            retry_after_s=retry_after_s(
                exchange.header("Retry-After"), now_epoch_s=self._client.wall_clock()
            ),
            request_id=exchange.header("x-request-id"),
            resent=exchange.resent,
            body=self._body,
        )


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    owned_by: str | None = None


class _ModelList(msgspec.Struct):
    data: list[_Model]


class _Tokens(msgspec.Struct):
    tokens: tuple[int, ...]


def ask(
    endpoint: Endpoint,
    request: ChatRequest,
    *,
    limits: Limits | None = None,
    protocol: Protocol = CHAT,
) -> Outcome:
    """The outcome of one chat, for code without an event loop."""

    async def once() -> Outcome:
        async with Client(endpoint, limits=limits) as client:
            return await client.chat(request, protocol)

    return asyncio.run(once())


def list_models(endpoint: Endpoint, *, limits: Limits | None = None) -> tuple[ModelCard, ...]:
    """The models of a server, for code without an event loop. Raises as `Client.models`."""

    async def once() -> tuple[ModelCard, ...]:
        async with Client(endpoint, limits=limits) as client:
            return await client.models()

    return asyncio.run(once())
