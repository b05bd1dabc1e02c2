"""Files and batches through the gateway: passed on to a batch server for keys that may."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.servers import playing

from heavylift.batch import api
from heavylift.batch.records import Settings

MakeKey = Callable[..., str]
Start = Callable[..., Any]
ROW = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]},
}


@contextlib.asynccontextmanager
async def batch_server(home: Path, url: str) -> AsyncIterator[str]:
    """A batch server that asks for the key `store-key`."""
    server = api.Server(home, Settings(endpoints=(url,)), client_key="store-key")
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(api.serve(server, 0, listening.set_result))
    try:
        yield (await listening).rstrip("/")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ask(
    session: aiohttp.ClientSession, method: str, url: str, key: str, **given: Any
) -> tuple[int, bytes]:
    """Status and body of a reply."""
    headers = {"Authorization": f"Bearer {key}"}
    async with session.request(method, url, headers=headers, **given) as reply:
        return reply.status, await reply.read()


def test_a_batch_from_upload_to_result(start: Start, make_key: MakeKey, tmp_path: Path) -> None:
    """The client's key opens the gateway only; the batch server gets its own."""
    key = make_key(batches=True)
    rows = msgspec.json.encode(ROW) + b"\n"

    async def work() -> None:
        async with (
            playing("[reply]\ntokens = 3\n") as engine,
            batch_server(tmp_path / "home", engine.url) as batches,
            start(engine.url, batches=batches, batch_key="store-key") as gateway,
            aiohttp.ClientSession() as session,
        ):
            form = aiohttp.FormData({"purpose": "batch"})
            form.add_field("file", rows, filename="in.jsonl")
            status, body = await ask(session, "POST", f"{gateway.url}/v1/files", key, data=form)
            assert status == 200, body
            file_id = msgspec.json.decode(body)["id"]
            wish = {
                "input_file_id": file_id,
                "endpoint": "/v1/chat/completions",
                "completion_window": "24h",
            }
            _, body = await ask(session, "POST", f"{gateway.url}/v1/batches", key, json=wish)
            there = f"{gateway.url}/v1/batches/{msgspec.json.decode(body)['id']}"
            record: dict[str, Any] = {"status": ""}
            while record["status"] not in ("completed", "failed"):
                await asyncio.sleep(0.02)
                record = msgspec.json.decode((await ask(session, "GET", there, key))[1])
            assert record["status"] == "completed", record
            output = f"{gateway.url}/v1/files/{record['output_file_id']}/content"
            _, content = await ask(session, "GET", output, key)
            assert msgspec.json.decode(content.splitlines()[0])["custom_id"] == "a"
            listed = await ask(session, "GET", f"{gateway.url}/v1/files?limit=1", key)
            assert len(msgspec.json.decode(listed[1])["data"]) == 1
            gateway.ledger.flush()
            assert gateway.ledger.open_requests() == 0

    asyncio.run(work())


def test_files_are_for_keys_that_may(start: Start, make_key: MakeKey, tmp_path: Path) -> None:
    """All such keys share one store, so a usual key does not see it; no path leads elsewhere."""
    usual, allowed = make_key(), make_key(batches=True)

    async def work() -> None:
        async with (
            playing("[reply]\ntokens = 3\n") as engine,
            batch_server(tmp_path / "home", engine.url) as batches,
            start(engine.url, batches=batches, batch_key="store-key") as gateway,
            aiohttp.ClientSession() as session,
        ):
            assert (await ask(session, "GET", f"{gateway.url}/v1/files", usual))[0] == 403
            assert (await ask(session, "GET", f"{gateway.url}/v1/files", "none"))[0] == 401
            for path in ("/v1/files/a/b/c", "/v1/files/%2e%2e", "/v1/files/a%2fcontent%2f.."):
                assert (await ask(session, "GET", f"{gateway.url}{path}", allowed))[0] == 404, path
            assert (await ask(session, "PUT", f"{gateway.url}/v1/files", allowed))[0] == 405
            assert (await ask(session, "GET", f"{gateway.url}/v1/files/none", allowed))[0] == 404

    asyncio.run(work())


def test_a_batch_server_that_is_gone_is_said(start: Start, make_key: MakeKey) -> None:
    """502, and nothing stays reserved; without one the routes are not there."""
    key = make_key(batches=True, concurrent=1)

    async def work() -> None:
        async with playing("[reply]\ntokens = 3\n") as engine, aiohttp.ClientSession() as session:
            async with start(engine.url, batches="http://127.0.0.1:1") as gateway:
                for _ in range(2):
                    status, _ = await ask(session, "GET", f"{gateway.url}/v1/batches", key)
                    assert status == 502
                    gateway.ledger.flush()
            async with start(engine.url) as gateway:
                status, _ = await ask(session, "GET", f"{gateway.url}/v1/batches", key)
                assert status == 404

    asyncio.run(work())


@pytest.mark.parametrize("path", ["/v1/filesystem", "/v1/batches2"])
def test_other_paths_are_not_the_batch_servers(start: Start, make_key: MakeKey, path: str) -> None:
    """Only whole names count."""
    key = make_key(batches=True)

    async def work() -> None:
        async with (
            playing("[reply]\ntokens = 3\n") as engine,
            aiohttp.ClientSession() as session,
            start(engine.url, batches="http://127.0.0.1:1") as gateway,
        ):
            assert (await ask(session, "GET", f"{gateway.url}{path}", key))[0] == 404

    asyncio.run(work())
