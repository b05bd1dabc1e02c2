"""Servers that tests talk to: scripted engines, servers with one odd handler, our own processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from threading import Event, Thread
from typing import Any, TypeVar

from aiohttp import web

from heavylift.devserver.scenario import Scenario, Then, decode
from heavylift.devserver.server import ScriptedServer

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def playing(scenario: Scenario | str = "", *, port: int = 0) -> AsyncIterator[ScriptedServer]:
    """A scripted engine that listens; its scenario may be the TOML text of one."""
    decoded = decode(scenario, "test.toml") if isinstance(scenario, str) else scenario
    async with ScriptedServer(decoded, port=port, emit=lambda *_: None) as server:
        await server.until(Then.LISTEN)
        yield server


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[str]:
    """The address of a server that answers everything with `handler`."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(
        application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextmanager
def on_a_thread(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """What a server gives that runs in an event loop on a thread of its own."""
    ready, over = Event(), Event()
    given: list[T] = []

    async def serve() -> None:
        async with server as here:
            given.append(here)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30), "the server did not come up"
        yield given[0]
    finally:
        over.set()
        thread.join()


def heavylift(*arguments: str) -> Any:
    """What a command says in JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "heavylift", *arguments, "--json"], check=True, capture_output=True
    )
    return json.loads(done.stdout)


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Where a heavylift process listens, and the process; killed at the end if it is still there.

    Fails with what it said when it ends before it listens.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "heavylift", *arguments], stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stderr is not None
        said = []
        for line in child.stderr:
            said.append(line)
            if line.startswith("listening on "):
                break
        else:
            raise AssertionError("".join(said))
        yield line.removeprefix("listening on ").strip(), child
    finally:
        child.kill()
        child.communicate()
