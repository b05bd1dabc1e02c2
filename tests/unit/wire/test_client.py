"""The client against scripted servers: real sockets, every failure class, all clocks."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from heavylift.devserver.conductor import Ending
from heavylift.devserver.library import load
from heavylift.devserver.scenario import Scenario, Then, decode
from heavylift.devserver.server import ScriptedServer
from heavylift.errors import HeavyliftError
from heavylift.wire.client import (
    CHAT,
    MESSAGES,
    Client,
    Endpoint,
    Limits,
    ModelCard,
    Outcome,
    Protocol,
    Timed,
    ask,
    list_models,
)
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest, ToolCall, Usage, judge

R = TypeVar("R")

HELLO = ({"role": "user", "content": "hello there"},)
STREAMED = ChatRequest(model="scripted", messages=HELLO)
WHOLE = ChatRequest(model="scripted", messages=HELLO, stream=False)
PATIENT = Limits(connect_s=30.0, first_byte_s=30.0, gap_s=30.0, total_s=60.0)
"""Guards against a hang, for replies that come: no busy machine takes this long."""


def limits_for(failure: Failure | None) -> Limits:
    """Limits that only the clock of this failure can run out under."""
    return Limits(
        connect_s=30.0,
        first_byte_s=0.3 if failure is Failure.TIMEOUT_FIRST_BYTE else 30.0,
        gap_s=0.3 if failure is Failure.TIMEOUT_GAP else 30.0,
    )


def scripted(text: str) -> Scenario:
    """A scenario of this test."""
    return decode(text, "test")


def with_server(
    scenario: Scenario,
    use: Callable[[ScriptedServer, Client], Awaitable[R]],
    *,
    limits: Limits = PATIENT,
    key: str | None = None,
) -> R:
    """The result of `use` with a server that plays the scenario and a client of it."""

    async def run() -> R:
        async with ScriptedServer(scenario) as server:
            assert await server.until(Then.READY)
            endpoint = Endpoint.parse(server.url, key)
            async with Client(endpoint, limits=limits) as client:
                return await use(server, client)

    return asyncio.run(run())


def chat(
    scenario: Scenario,
    request: ChatRequest = STREAMED,
    *,
    limits: Limits = PATIENT,
    protocol: Protocol = CHAT,
    key: str | None = None,
) -> Outcome:
    """The outcome of one chat with a server that plays the scenario."""
    return with_server(
        scenario, lambda _, client: client.chat(request, protocol), limits=limits, key=key
    )


@pytest.mark.parametrize(
    ("name", "streamed", "whole"),
    [
        ("healthy", None, None),
        ("paced", None, None),
        ("unstamped", None, None),
        ("tools", None, None),
        ("split-utf8", None, None),
        ("slow-headers", Failure.TIMEOUT_FIRST_BYTE, Failure.TIMEOUT_FIRST_BYTE),
        ("silent", Failure.TIMEOUT_FIRST_BYTE, Failure.TIMEOUT_FIRST_BYTE),
        ("hangs", Failure.TIMEOUT_GAP, Failure.TIMEOUT_FIRST_BYTE),
        ("drops", Failure.DISCONNECTED, Failure.DISCONNECTED),
        ("breaks-mid-stream", Failure.STREAM_BROKEN, Failure.STREAM_BROKEN),
        ("garbage", Failure.MALFORMED, Failure.MALFORMED),
        ("truncated-json", Failure.STREAM_BROKEN, Failure.MALFORMED),
        ("no-finish-reason", Failure.MISSING_FINISH_REASON, Failure.MISSING_FINISH_REASON),
        ("error-event", Failure.STREAM_ERROR_EVENT, Failure.STREAM_ERROR_EVENT),
        ("web-page", Failure.MALFORMED, Failure.MALFORMED),
        ("context-too-long", Failure.CONTEXT_TOO_LONG, Failure.CONTEXT_TOO_LONG),
        ("server-error", Failure.SERVER_ERROR, Failure.SERVER_ERROR),
        ("rate-limited", Failure.RATE_LIMITED, Failure.RATE_LIMITED),
        ("overloaded", Failure.OVERLOADED, Failure.OVERLOADED),
        ("flaky", Failure.SERVER_ERROR, Failure.SERVER_ERROR),
        ("truncated-thinking", Failure.TRUNCATED_THINKING, Failure.TRUNCATED_THINKING),
        ("empty", Failure.EMPTY, Failure.EMPTY),
        ("aborted", Failure.ABORTED, Failure.ABORTED),
        ("lost-tool-calls", Failure.TOOL_CALLS_LOST, Failure.TOOL_CALLS_LOST),
        ("bad-tool-arguments", Failure.TOOL_ARGUMENTS_INVALID, Failure.TOOL_ARGUMENTS_INVALID),
    ],
)
def test_every_shipped_scenario_is_recognised(
    name: str, streamed: Failure | None, whole: Failure | None
) -> None:
    """Each scenario of a bad server has its failure class, streamed and not, and no other has."""
    assert chat(load(name), STREAMED, limits=limits_for(streamed)).failure is streamed
    assert chat(load(name), WHOLE, limits=limits_for(whole)).failure is whole


def test_a_leaked_marker_is_found_by_who_knows_the_markers() -> None:
    """The format's markers are a fact of the model: the client alone cannot know them."""
    reply = chat(load("marker-leak")).reply
    assert reply.failure is None
    assert judge(reply, markers=("<|close|>",)) is Failure.MARKER_LEAK


def test_a_streamed_reply_arrives_whole_and_in_order() -> None:
    """Thinking, answer, usage, finish and `[DONE]` of the healthy scenario."""
    outcome = chat(load("healthy"))
    reply = outcome.reply
    assert reply.reasoning == "Two and two make four."
    assert reply.text == "The answer is 4."
    assert (reply.finish_reason, reply.saw_done, outcome.status) == ("stop", True, 200)
    assert reply.usage == Usage(prompt_tokens=2, completion_tokens=9, reasoning_tokens=5)
    assert outcome.body is None


@pytest.mark.parametrize("protocol", [CHAT, MESSAGES])
def test_streaming_and_not_streaming_agree(protocol: Protocol) -> None:
    """Both ways and both protocols give the same thinking, answer and calls."""
    for name in ("healthy", "tools", "split-utf8"):
        streamed = chat(load(name), STREAMED, protocol=protocol).reply
        whole = chat(load(name), WHOLE, protocol=protocol).reply
        assert streamed.failure is None
        assert (streamed.text, streamed.reasoning) == (whole.text, whole.reasoning)
        assert streamed.finish_reason == whole.finish_reason
        names = [call.name for call in whole.tool_calls]
        assert [call.name for call in streamed.tool_calls] == names


def test_tool_calls_come_with_unicode_arguments() -> None:
    """Arguments sent in pieces are joined to the JSON that was meant."""
    reply = chat(load("tools")).reply
    assert reply.tool_calls == (
        ToolCall(id="call-0", name="get_weather", arguments='{"city": "Zürich", "unit": "C"}'),
        ToolCall(id="call-1", name="get_time", arguments='{"zone": "CET"}'),
    )


def test_characters_cut_between_packets_survive() -> None:
    """Chinese text and emoji whose bytes arrive apart are what was sent."""
    reply = chat(load("split-utf8")).reply
    assert reply.text == "Zürich 有四个字 🏗️ 完。"
    assert reply.reasoning == "先想一想。"


def test_a_whole_reply_keeps_its_document_and_has_no_first_token() -> None:
    """The body is there for who needs all of it; what cannot be seen is not invented."""
    outcome = chat(load("healthy"), WHOLE)
    assert outcome.body is not None
    assert b"chat.completion" in outcome.body
    assert outcome.latency.ttft_s is None
    assert outcome.latency.e2e_s is not None


def test_latencies_are_those_of_the_pace() -> None:
    """200 ms to the first token and 20 ms between tokens, as the scenario says.

    The role-only chunk comes at once and does not stop the clock. Nothing can be faster than the
    pace; how much slower it is, is the machine's.
    """

    async def use(server: ScriptedServer, client: Client) -> tuple[Outcome, list[float]]:
        return await client.chat(STREAMED), server.records[0].sends

    outcome, sends = with_server(load("paced"), use, limits=Limits())
    latency = outcome.latency
    assert latency.ttft_s is not None
    assert latency.first_byte_s is not None
    assert latency.first_byte_s <= latency.ttft_s
    assert latency.connect_s is not None
    written_at = outcome.started_at + latency.connect_s
    assert written_at + latency.ttft_s > sends[1] - 1e-6
    assert sends[1] - outcome.started_at > 0.199
    assert latency.ttfa_s == latency.ttft_s
    assert len(latency.itl_s) == 63
    assert latency.last_token_s is not None
    assert latency.last_token_s == pytest.approx(latency.ttft_s + sum(latency.itl_s))
    assert written_at + latency.last_token_s > sends[64] - 1e-6
    assert sends[64] - outcome.started_at > 0.199 + 63 * 0.02
    assert latency.e2e_s is not None
    assert latency.e2e_s >= latency.last_token_s


def test_thinking_counts_as_tokens_and_the_answer_has_its_own_clock() -> None:
    """The first thought stops the clock of the first token; the first answer comes later."""
    scenario = scripted(
        "[pace]\nttft_s = 0.05\ninterval_s = 0.02\n[reply]\nreasoning_tokens = 5\ntokens = 2\n"
    )
    latency = chat(scenario).latency
    assert latency.ttft_s is not None
    assert latency.ttfa_s is not None
    assert latency.connect_s is not None
    assert latency.connect_s + latency.ttft_s > 0.049
    assert latency.connect_s + latency.ttfa_s > 0.149
    assert len(latency.itl_s) == 6
    # Six gaps lie behind the first of seven tokens, five of them before the answer.
    assert latency.last_token_s == pytest.approx(latency.ttft_s + sum(latency.itl_s))
    assert latency.ttfa_s == pytest.approx(latency.ttft_s + sum(latency.itl_s[:5]))


def test_receive_follows_send_by_the_servers_own_stamp() -> None:
    """Stamps and the client's clock can be compared: no event is received before it is sent."""

    async def lags(_: ScriptedServer, client: Client) -> list[float]:
        async with client.open_chat(STREAMED) as stream:
            return [
                timed.at - timed.delta.sent_at
                async for timed in stream
                if timed.delta.sent_at is not None
            ]

    measured = with_server(load("paced"), lags, limits=Limits())
    assert len(measured) == 67  # 64 tokens, role, finish, usage
    assert min(measured) > -1e-5  # the stamp has microseconds
    assert max(measured) < 30  # one clock, not two with different beginnings


def test_the_clock_is_an_argument() -> None:
    """With a clock that stands still every latency is zero."""

    async def run() -> Outcome:
        async with ScriptedServer(load("healthy")) as server:
            await server.until(Then.READY)
            async with Client(Endpoint.parse(server.url), clock=lambda: 7.0) as client:
                return await client.chat(STREAMED)

    outcome = asyncio.run(run())
    assert outcome.started_at == 7.0
    assert outcome.latency.e2e_s == 0.0
    assert set(outcome.latency.itl_s) == {0.0}


def test_the_total_clock_runs_beside_the_others() -> None:
    """A stream that never pauses for long still ends at the total limit."""
    scenario = scripted("[pace]\ninterval_s = 0.05\n[reply]\ntokens = 2000\n")
    outcome = chat(scenario, limits=Limits(gap_s=30.0, total_s=1.0))
    assert outcome.failure is Failure.TIMEOUT_TOTAL
    assert outcome.latency.e2e_s is not None
    assert outcome.latency.connect_s is not None
    assert 0.99 < outcome.latency.connect_s + outcome.latency.e2e_s < 30
    assert outcome.reply.text.startswith("lift the load")
    waiting = chat(load("silent"), limits=Limits(total_s=0.2))
    assert waiting.failure is Failure.TIMEOUT_TOTAL


def test_nobody_at_the_port_is_a_failure_to_connect() -> None:
    """A refused connection is of the class that costs no attempt."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    outcome = ask(Endpoint.parse(url), STREAMED, limits=PATIENT)
    assert outcome.failure is Failure.CONNECT
    assert (outcome.status, outcome.latency.ttft_s, outcome.latency.connect_s) == (None, None, None)


def test_a_port_that_accepts_nothing_times_out_in_the_connect_phase() -> None:
    """A full backlog leaves the handshake open: the connect clock ends it."""
    with socket.socket() as listening, contextmanager(_fill_backlog)(listening):
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        limits = Limits(connect_s=0.2, first_byte_s=5.0)
        outcome = ask(Endpoint.parse(url), STREAMED, limits=limits)
    assert outcome.failure is Failure.TIMEOUT_CONNECT


def _fill_backlog(listening: socket.socket) -> Iterator[None]:
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    waiting = []
    for _ in range(4):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(listening.getsockname())
        waiting.append(client)
    yield
    for client in waiting:
        client.close()


def test_bytes_that_are_not_http_are_malformed() -> None:
    """A server of another protocol answers nonsense."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        outcome = ask(Endpoint.parse(url), STREAMED, limits=PATIENT)
        thread.join()
    assert outcome.failure is Failure.MALFORMED


def test_a_wish_to_wait_is_handed_on() -> None:
    """`Retry-After` of a 429 arrives as seconds, with the server's message."""
    outcome = chat(load("rate-limited"))
    assert outcome.retry_after_s == 0.2
    assert outcome.status == 429
    assert outcome.reply.error is not None
    assert outcome.reply.error.message == "slow down"


def test_a_failure_without_json_keeps_the_servers_words() -> None:
    """A refusal that is no document of the protocol is still quoted."""

    async def wrong_path(server: ScriptedServer, _: Client) -> Outcome:
        endpoint = Endpoint(base_url=f"{server.url}/nothing/here")
        async with Client(endpoint) as client:
            return await client.chat(STREAMED)

    outcome = with_server(load("healthy"), wrong_path)
    assert outcome.failure is Failure.NOT_FOUND
    assert outcome.reply.error is not None
    assert "404" in outcome.reply.error.message


def test_leaving_a_stream_closes_its_socket() -> None:
    """A client that stops reading frees the engine at once: the server sees it go."""

    async def leave(server: ScriptedServer, client: Client) -> Ending | None:
        async with client.open_chat(STREAMED) as stream:
            async for _ in stream:
                break
        return await _ending(server)

    scenario = scripted("[pace]\ninterval_s = 0.02\n[reply]\ntokens = 1000\n")
    assert with_server(scenario, leave) is Ending.DISCONNECTED


@pytest.mark.parametrize("name", ["hangs", "silent"])
def test_cancelling_a_chat_closes_its_socket(name: str) -> None:
    """Cancelled while waiting, before or inside the reply, the connection does not linger."""

    async def cancel(server: ScriptedServer, client: Client) -> Ending | None:
        task = asyncio.create_task(client.chat(STREAMED))
        await _until(lambda: server.open_chats == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await _ending(server)

    assert with_server(load(name), cancel, limits=Limits()) is Ending.DISCONNECTED


async def _ending(server: ScriptedServer) -> Ending | None:
    """How the first request ended, once the server has noticed."""
    await _until(lambda: server.records[0].ending is not None)
    return server.records[0].ending


async def _until(condition: Callable[[], bool]) -> None:
    """Wait until the server, which runs in the same loop, has come that far."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - it has no event for every state
            await asyncio.sleep(0.01)


def test_connections_are_used_again_after_good_and_bad_ends() -> None:
    """Requests one after another share a connection, except where one was broken."""

    async def many(server: ScriptedServer, client: Client) -> int:
        for _ in range(5):
            assert (await client.chat(STREAMED)).failure is None
            assert (await client.chat(WHOLE)).failure is None
        return server.connections

    assert with_server(load("healthy"), many) == 1


def test_abandoned_streams_leak_no_connections() -> None:
    """After 200 cancelled streams, the client holds none open and the next chat works."""

    async def abandon(server: ScriptedServer, client: Client) -> None:
        for _ in range(200):
            async with client.open_chat(STREAMED) as stream:
                async for _ in stream:
                    break
        await _until(lambda: server.open_chats == 0)
        assert (await client.chat(STREAMED)).failure is None

    with_server(scripted("[pace]\ninterval_s = 0.01\n[reply]\ntokens = 20\n"), abandon)


def test_many_streams_run_at_once_without_a_hidden_cap() -> None:
    """150 chats are open at the same time; a common default stops at 100."""

    async def crowd(server: ScriptedServer, client: Client) -> None:
        chats = [asyncio.create_task(client.chat(STREAMED)) for _ in range(150)]
        await _until(lambda: server.open_chats == 150)
        for task in chats:
            task.cancel()
        await asyncio.gather(*chats, return_exceptions=True)

    with_server(load("silent"), crowd, limits=Limits())


def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy variable of the shell does not divert a request."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert chat(load("healthy")).failure is None


def test_the_key_goes_by_header_and_into_no_text(caplog: pytest.LogCaptureFixture) -> None:
    """Each protocol's header carries the key; reprs, errors and logs do not."""
    key = "sk-very-secret"
    scenario = scripted('[server]\nkey = "sk-very-secret"\n')
    with caplog.at_level(logging.DEBUG):
        assert chat(scenario, key=key).failure is None
        assert chat(scenario, key=key, protocol=MESSAGES).failure is None
        wrong = chat(scenario, key="sk-other-secret")
        missing = chat(scenario)
    assert wrong.failure is missing.failure is Failure.UNAUTHORISED
    for said in (repr(Endpoint.parse("http://h", key)), repr(wrong), repr(missing), caplog.text):
        assert "secret" not in said


def test_redirects_are_not_followed() -> None:
    """The key would follow a redirect; the failure is plain."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(
                    b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:9/\r\n"
                    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
                )

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        outcome = ask(Endpoint.parse(url), STREAMED, limits=PATIENT)
        thread.join()
    assert (outcome.status, outcome.failure) == (307, Failure.MALFORMED)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://host:8000", "http://host:8000"),
        ("http://host:8000/", "http://host:8000"),
        ("http://host:8000/v1", "http://host:8000"),
        ("https://host/api/v1/", "https://host/api"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_endpoints_are_taken_with_or_without_v1(url: str, base: str) -> None:
    """What people paste is understood."""
    assert Endpoint.parse(url).base_url == base


@pytest.mark.parametrize("url", ["host:8000", "ftp://host", "http://", "http://me:pw@host"])
def test_other_urls_are_refused_without_repeating_them(url: str) -> None:
    """USE021; a password in the URL is not printed."""
    with pytest.raises(HeavyliftError) as caught:
        Endpoint.parse(url)
    assert caught.value.code == "USE021"
    assert "pw" not in str(caught.value)


def test_models_health_and_tokens_are_asked_for() -> None:
    """The small routes: models with their context, health, tokenize; props where there is none."""
    scenario = scripted('[server]\nmodels = ["a", "b"]\ncontext_tokens = 99\n')

    async def probe(_: ScriptedServer, client: Client) -> None:
        assert await client.models() == (
            ModelCard(id="a", context_tokens=99),
            ModelCard(id="b", context_tokens=99),
        )
        assert await client.health() is None
        assert await client.tokenize("a", "one two three") == (0, 1, 2)
        assert await client.props() is None

    with_server(scenario, probe)


def test_an_engine_that_is_loading_says_so() -> None:
    """Before it is ready, health and chats are `overloaded`, which is worth waiting for."""

    async def run() -> tuple[Failure | None, Failure | None]:
        async with ScriptedServer(load("never-ready")) as server:
            assert await server.until(Then.LISTEN)
            async with Client(Endpoint.parse(server.url), limits=PATIENT) as client:
                return await client.health(), (await client.chat(STREAMED)).failure

    assert asyncio.run(run()) == (Failure.OVERLOADED, Failure.OVERLOADED)


def test_a_model_list_that_cannot_be_had_is_an_error_with_its_reason() -> None:
    """WIRE069 names address, status and class."""

    async def refused(_: ScriptedServer, client: Client) -> HeavyliftError:
        with pytest.raises(HeavyliftError) as caught:
            await client.models()
        return caught.value

    error = with_server(scripted('[server]\nkey = "k"\n'), refused)
    assert error.code == "WIRE069"
    assert (error.params["status"], error.params["failure"]) == (401, "unauthorised")


def test_an_unknown_model_and_a_long_prompt_are_told_apart() -> None:
    """404 for the model, the context class for the prompt."""
    unknown = ChatRequest(model="other", messages=HELLO)
    assert chat(load("healthy"), unknown).failure is Failure.NOT_FOUND
    small = scripted("[server]\ncontext_tokens = 2\n")
    assert chat(small).failure is Failure.CONTEXT_TOO_LONG


def test_a_server_killed_under_streams_breaks_them_and_then_refuses() -> None:
    """The third request kills the engine: two streams break, the next finds nobody."""

    async def kill(server: ScriptedServer, client: Client) -> list[Failure | None]:
        streams = [asyncio.create_task(client.chat(STREAMED)) for _ in range(2)]
        await _until(lambda: sum(bool(record.sends) for record in server.records) == 2)
        killer = await client.chat(STREAMED)
        after = await client.chat(STREAMED)
        broken = await asyncio.gather(*streams)
        return [outcome.failure for outcome in (*broken, killer, after)]

    assert with_server(load("dies-mid-stream"), kill, limits=Limits()) == [
        Failure.STREAM_BROKEN,
        Failure.STREAM_BROKEN,
        Failure.DISCONNECTED,
        Failure.CONNECT,
    ]


def test_a_token_limit_cuts_the_reply_as_an_engine_does() -> None:
    """`max_tokens` in the middle of the thinking is truncated thinking."""
    short = ChatRequest(model="scripted", messages=HELLO, max_tokens=3)
    outcome = chat(load("healthy"), short)
    assert outcome.failure is Failure.TRUNCATED_THINKING
    assert outcome.reply.usage is not None
    assert outcome.reply.usage.completion_tokens == 3


def test_an_outcome_exists_only_at_the_end() -> None:
    """Asking for it before the stream was read is a mistake of the program."""

    async def early(_: ScriptedServer, client: Client) -> list[Timed]:
        async with client.open_chat(STREAMED) as stream:
            with pytest.raises(RuntimeError):
                stream.outcome()
            return [timed async for timed in stream]

    assert with_server(load("healthy"), early)
    with pytest.raises(RuntimeError):
        Client(Endpoint(base_url="http://127.0.0.1:9")).open_chat(STREAMED)


def test_code_without_an_event_loop_has_a_door() -> None:
    """`ask` and `list_models` work from a plain thread."""
    found: list[object] = []

    async def run() -> None:
        async with ScriptedServer(load("healthy")) as server:
            await server.until(Then.READY)
            endpoint = Endpoint.parse(server.url)
            found.append(await asyncio.to_thread(ask, endpoint, STREAMED))
            found.append(await asyncio.to_thread(list_models, endpoint))

    asyncio.run(run())
    outcome, models = found
    assert isinstance(outcome, Outcome)
    assert outcome.failure is None
    assert models == (ModelCard(id="scripted", context_tokens=8192),)
