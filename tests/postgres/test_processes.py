"""Gateway processes on one Postgres server, as on several hosts: one quota, one set of keys."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from heavylift.devserver.scenario import decode
from heavylift.devserver.server import ScriptedServer
from heavylift.gateway.config import DATABASE_URL
from heavylift.gateway.postgres import open_remote_store
from heavylift.wire.client import Client, Endpoint
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif("HEAVYLIFT_POSTGRES" not in os.environ, reason="make test-postgres runs it"),
]

ASK = ChatRequest(model="scripted", messages=({"role": "user", "content": "hello"},), max_tokens=20)
WAITS = "[pace]\ninterval_s = 60.0\n[reply]\ntokens = 20\n"


class Server(Protocol):
    """What the tests need of the server."""

    def start(self) -> None:
        """Start it."""

    def stop(self) -> None:
        """Stop it at once."""


@pytest.fixture(autouse=True)
def environment(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command finds the database where its address should be: in the environment."""
    monkeypatch.setenv(DATABASE_URL, address)


def heavylift(*arguments: str) -> Any:
    """What a command says in JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "heavylift", *arguments, "--json"], check=True, capture_output=True
    )
    return json.loads(done.stdout)


@contextmanager
def gateway(folder: Path, upstream: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A gateway process of a host of its own, and where it listens."""
    state = ("--state", str(folder), "--port", "0", "--upstream", upstream)
    child = subprocess.Popen(
        [sys.executable, "-m", "heavylift", "gateway", *state], stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stderr is not None
        for line in child.stderr:
            if line.startswith("listening on "):
                break
        yield line.removeprefix("listening on ").strip(), child
    finally:
        child.kill()
        child.communicate()


@contextlib.asynccontextmanager
async def worker(toml: str) -> AsyncIterator[ScriptedServer]:
    """A scripted engine whose port is open."""
    async with ScriptedServer(decode(toml, "test.toml"), emit=lambda *_: None) as server:
        while True:
            with contextlib.suppress(RuntimeError):
                server.port  # noqa: B018 - raises until the port is open
                break
            await asyncio.sleep(0.005)
        yield server


def url_of(engine: ScriptedServer) -> str:
    """Where an engine listens."""
    return f"http://127.0.0.1:{engine.port}"


def test_one_quota_holds_for_three_hosts(tmp_path: Path, address: str) -> None:
    """However the requests are spread, no more than the day's tokens are admitted; what was not is
    refused with 429, and nothing stays reserved.
    """
    key = heavylift("keys", "create", "me", "--tokens-per-day", "2000")["key"]

    async def ask(url: str) -> Failure | None:
        async with Client(Endpoint(base_url=url, key=key)) as client:
            return (await client.chat(ASK)).failure

    async def main() -> None:
        async with worker("[reply]\ntokens = 4\n") as engine:
            with ExitStack() as stack:
                hosts = [
                    await asyncio.to_thread(
                        stack.enter_context, gateway(tmp_path / str(number), url_of(engine))
                    )
                    for number in range(3)
                ]
                failures = Counter(
                    await asyncio.gather(*(ask(hosts[n % 3][0]) for n in range(150)))
                )
                assert set(failures) == {None, Failure.RATE_LIMITED}
                with open_remote_store(address) as store:
                    while store.open_requests():  # noqa: ASYNC110 - another process
                        await asyncio.sleep(0.01)
                (row,) = heavylift("usage")
                assert row["requests"] == failures[None]
                assert row["prompt_tokens"] + row["completion_tokens"] <= 2000

    asyncio.run(main())


def test_a_killed_gateway_is_charged_by_another_host(tmp_path: Path, address: str) -> None:
    """SIGKILL with a request open: the other host charges its bound, and its room is not lost."""
    key = heavylift("keys", "create", "me", "--concurrent", "1")["key"]

    async def ask(url: str) -> Failure | None:
        async with Client(Endpoint(base_url=url, key=key)) as client:
            return (await client.chat(ASK)).failure

    async def main() -> None:
        async with worker(WAITS) as slow, worker("[reply]\ntokens = 4\n") as quick:
            with ExitStack() as stack:
                one, process = await asyncio.to_thread(
                    stack.enter_context, gateway(tmp_path / "one", url_of(slow))
                )
                other, _ = await asyncio.to_thread(
                    stack.enter_context, gateway(tmp_path / "other", url_of(quick))
                )
                waiting = asyncio.create_task(ask(one))
                with open_remote_store(address) as store:
                    while not store.open_requests():  # noqa: ASYNC110 - another process
                        await asyncio.sleep(0.01)
                    assert await ask(other) is Failure.RATE_LIMITED
                    process.kill()
                    assert await waiting is not None
                    while store.open_requests():  # noqa: ASYNC110 - the other one looks every five seconds
                        await asyncio.sleep(0.05)
                assert await ask(other) is None
                (row,) = heavylift("usage")
                assert row["estimated"] == 1

    asyncio.run(main())


def test_a_database_that_goes_away_closes_the_door_and_opens_it_again(
    tmp_path: Path, server: Server
) -> None:
    """Without a ledger nothing is admitted: 503, not a pass. When it is back, so is the service."""
    key = heavylift("keys", "create", "me")["key"]

    async def ask(url: str) -> tuple[Failure | None, str]:
        async with Client(Endpoint(base_url=url, key=key)) as client:
            outcome = await client.chat(ASK)
            return outcome.failure, str(outcome.reply.error)

    async def main() -> None:
        async with worker("[reply]\ntokens = 4\n") as engine:
            with ExitStack() as stack:
                url, _ = await asyncio.to_thread(
                    stack.enter_context, gateway(tmp_path, url_of(engine))
                )
                assert (await ask(url))[0] is None
                await asyncio.to_thread(server.stop)
                try:
                    failure, error = await ask(url)
                    assert failure is Failure.OVERLOADED
                    assert os.environ[DATABASE_URL].rpartition("=")[2] not in error
                finally:
                    await asyncio.to_thread(server.start)
                while (await ask(url))[0] is not None:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)

    asyncio.run(main())
