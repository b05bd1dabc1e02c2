"""Gateway processes on one Postgres server, as on several hosts: one quota, one set of keys."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from tests.servers import heavylift, playing, process

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


def gateway(
    folder: Path, upstream: str
) -> AbstractContextManager[tuple[str, subprocess.Popen[str]]]:
    """A gateway process of a host of its own, and where it listens."""
    return process("gateway", "--state", str(folder), "--port", "0", "--upstream", upstream)


def test_one_quota_holds_for_three_hosts(tmp_path: Path, address: str) -> None:
    """However the requests are spread, no more than the day's tokens are admitted; what was not is
    refused with 429, and nothing stays reserved.
    """
    key = heavylift("keys", "create", "me", "--tokens-per-day", "2000")["key"]

    async def ask(url: str) -> Failure | None:
        async with Client(Endpoint(base_url=url, key=key)) as client:
            return (await client.chat(ASK)).failure

    async def main() -> None:
        async with playing("[reply]\ntokens = 4\n") as engine:
            with ExitStack() as stack:
                hosts = [
                    await asyncio.to_thread(
                        stack.enter_context, gateway(tmp_path / str(number), engine.url)
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
        async with playing(WAITS) as slow, playing("[reply]\ntokens = 4\n") as quick:
            with ExitStack() as stack:
                one, process = await asyncio.to_thread(
                    stack.enter_context, gateway(tmp_path / "one", slow.url)
                )
                other, _ = await asyncio.to_thread(
                    stack.enter_context, gateway(tmp_path / "other", quick.url)
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
        async with playing("[reply]\ntokens = 4\n") as engine:
            with ExitStack() as stack:
                url, _ = await asyncio.to_thread(stack.enter_context, gateway(tmp_path, engine.url))
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
