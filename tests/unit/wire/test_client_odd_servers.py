"""The client against servers that are not ours: odd documents, odd ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from aiohttp import web
from tests.servers import answering

from heavylift.errors import HeavyliftError
from heavylift.wire import client as client_module
from heavylift.wire.client import Client, Endpoint, Limits, Outcome
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest
from heavylift.wire.sse import DEFAULT_LIMIT_BYTES

R = TypeVar("R")

HELLO = ChatRequest(model="m", messages=({"role": "user", "content": "hello"},))
GOOD = (
    b'data: {"choices":[{"index":0,"delta":{"content":"4"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
)


def against(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    use: Callable[[Client], Awaitable[R]],
) -> R:
    """The result of `use` with a client of a server that answers everything with `handler`."""

    async def run() -> R:
        async with answering(handler) as url:
            limits = Limits(connect_s=30.0, first_byte_s=30.0, gap_s=30.0)
            async with Client(Endpoint.parse(url), limits=limits) as client:
                return await use(client)

    return asyncio.run(run())


def says(
    body: bytes, content_type: str = "application/json", status: int = 200
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A handler that answers with this body."""

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=content_type, status=status)

    return handler


def streams(
    body: bytes, *, then_wait: bool = False
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A handler that streams these bytes and then ends, or never does."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        await response.prepare(request)
        await response.write(body)
        if then_wait:
            await asyncio.Event().wait()
        await response.write_eof()
        return response

    return handler


def chat(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Outcome:
    """The outcome of a streamed chat with the server."""
    return against(handler, lambda client: client.chat(HELLO))


def failure_of(body: bytes, ask: Callable[[Client], Awaitable[object]]) -> object:
    """The class named by the error that a reply of this body raises."""
    with pytest.raises(HeavyliftError) as caught:
        against(says(body), ask)
    assert caught.value.code == "WIRE003"
    return caught.value.params["failure"]


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"data":[{"name":"x"}]}', b"\xff"])
def test_a_model_list_that_is_none_is_malformed(body: bytes) -> None:
    """A page, an empty object, models without ids."""
    assert failure_of(body, lambda client: client.models()) is Failure.MALFORMED


def test_tokens_that_are_none_are_malformed() -> None:
    """A tokenizer that answers with something else."""
    assert failure_of(b"{}", lambda client: client.tokenize("m", "x")) is Failure.MALFORMED


@pytest.mark.parametrize(
    "ask", [lambda client: client.props(), lambda client: client.tokenize("m", "x")]
)
def test_a_route_that_is_not_there_is_no_error(
    ask: Callable[[Client], Awaitable[object]],
) -> None:
    """404 means that this engine has no such thing; other refusals are errors."""
    assert against(says(b"{}", status=404), ask) is None
    with pytest.raises(HeavyliftError):
        against(says(b"{}", status=500), ask)


def test_props_are_what_the_server_says() -> None:
    """An object is handed on; anything else is nothing."""
    assert against(says(b'{"n_ctx": 5}'), lambda client: client.props()) == {"n_ctx": 5}
    assert against(says(b"[]"), lambda client: client.props()) is None


def test_an_engine_that_answers_health_with_anything_is_healthy() -> None:
    """Some send an empty body."""
    assert against(says(b""), lambda client: client.health()) is None


def test_done_ends_the_chat_even_if_the_server_keeps_the_connection() -> None:
    """What comes after `[DONE]` is not waited for beyond a moment, and does not count as time."""
    began = time.perf_counter()
    outcome = chat(streams(GOOD + b"data: [DONE]\n\n", then_wait=True))
    assert outcome.failure is None
    assert outcome.latency.e2e_s is not None
    # The wait for the end of the connection lies after the last event and is not counted.
    assert outcome.latency.e2e_s < time.perf_counter() - began


def test_words_after_done_are_not_part_of_the_reply() -> None:
    """The reply ends at `[DONE]`."""
    outcome = chat(streams(GOOD + b"data: [DONE]\n\n" + GOOD))
    assert (outcome.reply.text, outcome.failure) == ("4", None)


def test_a_finished_stream_without_done_is_a_success() -> None:
    """The finish reason decides, not `[DONE]`."""
    outcome = chat(streams(GOOD))
    assert (outcome.failure, outcome.reply.saw_done) == (None, False)


def test_a_stream_that_ends_inside_an_event_is_broken() -> None:
    """HTTP ended well, the event did not."""
    assert chat(streams(GOOD[:-80])).failure is Failure.STREAM_BROKEN


def test_an_event_that_is_too_large_is_malformed() -> None:
    """A server cannot fill the client's memory with one event."""
    outcome = chat(streams(b"data: " + b"x" * (DEFAULT_LIMIT_BYTES + 1)))
    assert outcome.failure is Failure.MALFORMED
    assert outcome.reply.error is not None
    assert outcome.reply.error.type == "WIRE001"


def test_a_reply_that_is_too_large_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor with a reply that is not streamed."""
    monkeypatch.setattr(client_module, "_REPLY_BYTES", 1024)
    assert chat(says(b" " * 4096)).failure is Failure.MALFORMED


def test_an_error_with_status_200_is_an_error() -> None:
    """A gateway that answers 200 with an error object instead of a stream."""
    outcome = chat(says(b'{"error":{"message":"worker gone"}}'))
    assert outcome.failure is Failure.STREAM_ERROR_EVENT
    assert outcome.reply.error is not None
    assert outcome.reply.error.message == "worker gone"


def with_closing_server(
    wait_s: float, use: Callable[[Client], Awaitable[R]]
) -> tuple[R, list[int]]:
    """The result with a server that promises to keep its connections, answers one request on each
    and, `wait_s` after the next, closes; and the number of requests on each connection.
    """
    counts: list[int] = []
    answer = b'{"choices":[{"index":0,"message":{"content":"4"},"finish_reason":"stop"}]}'
    headers = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nKeep-Alive: timeout=5\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = len(counts)
        counts.append(0)
        while await reader.read(65536):
            counts[mine] += 1
            if counts[mine] > 1:
                await asyncio.sleep(wait_s)
                break
            writer.write(headers + b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer))
        writer.close()

    async def run() -> R:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with Client(Endpoint.parse(url)) as client:
                return await use(client)

    return asyncio.run(run()), counts


async def _twice(client: Client) -> Outcome:
    whole = ChatRequest(model="m", messages=HELLO.messages, stream=False)
    first = await client.chat(whole)
    assert (first.failure, first.resent) == (None, 0)
    return await client.chat(whole)


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced() -> None:
    """The second request is written again to a fresh connection, and the outcome says so."""
    outcome, counts = with_closing_server(0.0, _twice)
    assert (outcome.failure, outcome.resent) == (None, 1)
    assert counts == [2, 1]


def test_a_loss_that_comes_later_is_not_repaired() -> None:
    """A server that had the request for a while may have worked on it: that is for the caller."""
    outcome, counts = with_closing_server(1.2, _twice)
    assert (outcome.failure, outcome.resent) == (Failure.DISCONNECTED, 0)
    assert counts == [2]


def test_the_request_id_of_the_server_is_kept() -> None:
    """What support will ask for."""

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(status=500, headers={"x-request-id": "req-7"})

    assert chat(handler).request_id == "req-7"
