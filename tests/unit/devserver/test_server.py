"""The scripted engine as a server: start scripts, records, and being a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from heavylift.devserver.conductor import Ending
from heavylift.devserver.library import load
from heavylift.devserver.scenario import Scenario, Then, decode
from heavylift.devserver.server import ScriptedServer
from heavylift.wire.client import Client, Endpoint, Limits
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

HELLO = ChatRequest(model="scripted", messages=({"role": "user", "content": "hello"},))


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`heavylift dev engine …` as a child; killed at the end if it is still there."""
    child = subprocess.Popen(
        [sys.executable, "-m", "heavylift", "dev", "engine", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def listening_url(child: subprocess.Popen[str]) -> str:
    """The address, once the child has said that it listens."""
    assert child.stderr is not None
    return child.stderr.readline().strip().removeprefix("listening on ")


def test_a_start_goes_through_its_steps_in_order() -> None:
    """Lines, then the port, then readiness; the lines go to the stream the step names."""
    said: list[tuple[str, str]] = []
    scenario = decode(
        '[[start]]\nline = "one"\n'
        '[[start]]\nline = "two"\nstream = "stderr"\nthen = "listen"\n'
        '[[start]]\nafter_s = 0.1\nline = "three"\nthen = "ready"\n',
        "x.toml",
    )

    async def run() -> None:
        async with ScriptedServer(scenario, emit=lambda *line: said.append(line)) as server:
            with pytest.raises(RuntimeError):
                _ = server.port
            assert await server.until(Then.LISTEN)
            assert said == [("stdout", "one"), ("stderr", "two")]
            async with Client(Endpoint.parse(server.url)) as client:
                assert await client.health() is Failure.OVERLOADED
                assert await server.until(Then.READY)
                assert await client.health() is None
        assert said[-1] == ("stdout", "three")

    asyncio.run(run())


def test_waiting_for_what_never_comes_ends_with_the_script() -> None:
    """A start that exits never listens, and says so."""

    async def run() -> None:
        async with ScriptedServer(load("dies-while-loading"), emit=lambda *_: None) as server:
            assert not await server.until(Then.LISTEN)
            assert server.exit_status == 1

    asyncio.run(run())


def test_a_server_must_be_entered() -> None:
    """Waiting on one that was not is a mistake of the program."""
    with pytest.raises(RuntimeError):
        asyncio.run(ScriptedServer(Scenario()).until(Then.READY))


def test_every_send_is_recorded_with_its_time() -> None:
    """The record of a request has a time per event, in order, on the clock of the stamps."""

    async def run() -> None:
        before = time.perf_counter()
        async with ScriptedServer(load("paced")) as server:
            await server.until(Then.READY)
            async with Client(Endpoint.parse(server.url)) as client:
                await client.chat(HELLO)
            record = server.records[0]
        assert (record.number, record.path, record.model) == (1, "/v1/chat/completions", "scripted")
        assert (record.stream, record.fault, record.ending) == (True, None, Ending.FINISHED)
        assert len(record.sends) == 1 + 64 + 2 + 1  # role, tokens, finish and usage, [DONE]
        assert record.sends == sorted(record.sends)
        assert before < record.came_at < record.sends[0] < time.perf_counter()

    asyncio.run(run())


def test_no_token_is_early() -> None:
    """Measured from before the request is sent, no token is out before it is due."""

    async def run() -> list[float]:
        async with ScriptedServer(load("paced")) as server:
            await server.until(Then.READY)
            async with Client(Endpoint.parse(server.url)) as client:
                started_at = (await client.chat(HELLO)).started_at
            return [
                at - started_at - (0.2 + 0.02 * number)
                for number, at in enumerate(server.records[0].sends[1:65])
            ]

    assert min(asyncio.run(run())) > -0.001  # the loop takes what is due within its resolution


def test_requests_that_are_none_get_400() -> None:
    """The server is no more patient than an engine."""

    async def run() -> Failure | None:
        async with ScriptedServer(load("healthy")) as server:
            await server.until(Then.READY)
            async with Client(Endpoint.parse(server.url)) as client:
                bad = ChatRequest(model="scripted", messages=(), extra={"messages": 5})
                return (await client.chat(bad)).failure

    assert asyncio.run(run()) is Failure.BAD_REQUEST


def test_the_process_prints_its_script_and_serves() -> None:
    """Standard output is the script's alone; the address is on standard error; SIGTERM ends it."""
    with process("slow-start") as child:
        url = listening_url(child)
        assert url.startswith("http://127.0.0.1:")
        assert child.stdout is not None
        lines = [child.stdout.readline().strip() for _ in range(5)]
        assert lines == [
            "starting",
            "loading weights: 1 of 2",
            "loading weights: 2 of 2",
            "memory for the cache: 1024 MiB",
            "ready",
        ]
        assert _get(url, "/dev/requests") == []
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 0


def _get(url: str, path: str) -> Any:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return json.load(connection.getresponse())


def test_the_process_ends_with_the_status_of_its_script() -> None:
    """A start that fails exits as an engine does, with its last words on standard error."""
    with process("dies-while-loading") as child:
        out, err = child.communicate(timeout=30)
        assert child.returncode == 1
        assert out.splitlines() == ["starting", "loading weights: 1 of 2"]
        assert err.splitlines() == ["out of memory: tried to allocate 2.00 GiB"]


def test_a_request_that_kills_the_engine_ends_the_process() -> None:
    """`die` is the end of the process, as of an engine killed for memory."""
    with process("dies-mid-stream") as child:
        url = listening_url(child)

        async def three() -> list[Failure | None]:
            async with Client(Endpoint.parse(url), limits=Limits(gap_s=30.0)) as client:
                running = [asyncio.create_task(client.chat(HELLO)) for _ in range(2)]
                while len(await asyncio.to_thread(_get, url, "/dev/requests")) < 2:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
                await client.chat(HELLO)
                return [outcome.failure for outcome in await asyncio.gather(*running)]

        assert asyncio.run(three()) == [Failure.STREAM_BROKEN] * 2
        assert child.wait(timeout=30) == 1


def test_a_taken_port_is_an_error_with_its_number() -> None:
    """DEV004, exit status 3, no traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with process("healthy", "--port", str(port)) as child:
            _, err = child.communicate(timeout=30)
            assert child.returncode == 3
            assert err.startswith(f"error[DEV004]: port {port} cannot be opened")


def test_an_interrupt_ends_with_130() -> None:
    """Ctrl-C is an interruption, without a traceback."""
    with process("healthy") as child:
        listening_url(child)
        os.kill(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=30)
        assert child.returncode == 130
        assert err.strip() == "interrupted"
