"""The files and batches routes: as the protocol has them, and through the vendor's own client."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, FormData

from heavylift.batch import api
from heavylift.batch.policy import RetryRules
from heavylift.batch.records import Settings


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test, run on an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


WriteInput = Callable[..., Path]
Engine = Callable[[str], Any]
Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """`serve(endpoint)`: the routes over that endpoint, on a thread; the address."""
    stops: list[Callable[[], Any]] = []
    threads: list[threading.Thread] = []

    def start(endpoint: str, **given: Any) -> str:
        ready = threading.Event()
        found: list[str] = []

        def listening(url: str) -> None:
            found.append(url)
            ready.set()

        async def main() -> None:
            settings = Settings(endpoints=(endpoint,), drain_s=1, retry=RetryRules(base_s=0.01))
            server = api.Server(tmp_path / "home", settings, **given)
            task = asyncio.ensure_future(api.serve(server, 0, listening))
            loop = asyncio.get_running_loop()
            stops.append(lambda: loop.call_soon_threadsafe(task.cancel))
            await asyncio.gather(task, return_exceptions=True)

        thread = threading.Thread(target=asyncio.run, args=(main(),))
        thread.start()
        threads.append(thread)
        assert ready.wait(10)
        return found[0]

    def stop() -> None:
        for each, thread in zip(stops, threads, strict=True):
            each()
            thread.join()
        stops.clear()
        threads.clear()

    start.stop = stop  # type: ignore[attr-defined] # a restart is part of what is tested
    yield start
    stop()


async def upload(session: ClientSession, url: str, source: Path) -> str:
    """The id of an uploaded file."""
    content = await asyncio.to_thread(source.read_bytes)
    form = FormData()
    form.add_field("purpose", "batch")
    form.add_field("file", content, filename=source.name)
    async with session.post(f"{url}/v1/files", data=form) as reply:
        document = await reply.json()
        assert reply.status == 200, document
        file_id: str = document["id"]
        return file_id


async def create(session: ClientSession, url: str, file_id: str, **given: Any) -> dict[str, Any]:
    """The batch of an uploaded file."""
    wanted = {"input_file_id": file_id, "endpoint": "/v1/chat/completions"}
    body = {**wanted, "completion_window": "24h", **given}
    async with session.post(f"{url}/v1/batches", json=body) as reply:
        document: dict[str, Any] = await reply.json()
        return document


async def ended(session: ClientSession, url: str, batch_id: str, *until: str) -> dict[str, Any]:
    """The batch once it has one of these statuses."""
    end = time.monotonic() + 30
    while True:
        async with session.get(f"{url}/v1/batches/{batch_id}") as reply:
            document: dict[str, Any] = await reply.json()
        if document["status"] in until:
            return document
        assert time.monotonic() < end, document
        await asyncio.sleep(0.02)


def test_the_vendors_client_works_unchanged(
    serve: Serve, engine: Engine, write_input: WriteInput
) -> None:
    """Upload, create, poll, download, list, delete, with the real `openai` package."""
    openai = pytest.importorskip("openai")
    with engine("healthy") as server:
        url = serve(server.url)
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            with write_input(25).open("rb") as file:
                uploaded = client.files.create(file=file, purpose="batch")
            batch = client.batches.create(
                input_file_id=uploaded.id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
                metadata={"for": "test"},
            )
            end = time.monotonic() + 30
            while batch.status != "completed":
                assert time.monotonic() < end
                time.sleep(0.02)
                batch = client.batches.retrieve(batch.id)
            counts = batch.request_counts
            assert (counts.total, counts.completed, counts.failed) == (25, 25, 0)
            assert batch.error_file_id is None
            assert batch.metadata == {"for": "test"}
            text = client.files.content(batch.output_file_id).text
            rows = [json.loads(line) for line in text.splitlines()]
            assert {row["custom_id"] for row in rows} == {f"r{number}" for number in range(25)}
            answer = rows[0]["response"]["body"]["choices"][0]["message"]["content"]
            assert answer == "The answer is 4."
            assert [found.id for found in client.batches.list()] == [batch.id]
            assert client.files.retrieve(uploaded.id).filename == "input.jsonl"
            assert client.files.content(uploaded.id).text.count("\n") == 25
            assert client.files.delete(uploaded.id).deleted
            assert list(client.files.list()) == []


@in_loop
async def test_a_defective_file_fails_its_batch(
    serve: Serve, engine: Engine, write_input: WriteInput
) -> None:
    """Every defect with its line, and nothing is sent."""
    source = write_input(3)
    source.write_text(source.read_text() + "{\n" + source.read_text().splitlines()[0] + "\n")
    with engine("healthy") as server:
        url = serve(server.url)
        async with ClientSession() as session:
            file_id = await upload(session, url, source)
            batch = await create(session, url, file_id)
            failed = await ended(session, url, batch["id"], "failed")
            assert [(e["line"], e["code"]) for e in failed["errors"]["data"]] == [
                (4, "not_json"),
                (5, "duplicate"),
            ]
            other = await create(session, url, file_id, endpoint="/v1/embeddings")
            failed = await ended(session, url, other["id"], "failed")
            assert {e["code"] for e in failed["errors"]["data"]} == {"url", "not_json"}
        assert server.records == []


@in_loop
async def test_a_batch_of_failures_is_completed_without_an_output(
    serve: Serve, engine: Engine, write_input: WriteInput
) -> None:
    """As the protocol has it: completed, no output file, the error file has the rows."""
    with engine("context-too-long") as server:
        url = serve(server.url)
        async with ClientSession() as session:
            batch = await create(session, url, await upload(session, url, write_input(3)))
            done = await ended(session, url, batch["id"], "completed")
            assert (done["output_file_id"], done["request_counts"]["failed"]) == (None, 3)
            async with session.get(f"{url}/v1/files/{done['error_file_id']}/content") as reply:
                rows = [json.loads(line) for line in (await reply.text()).splitlines()]
            assert {row["error"]["code"] for row in rows} == {"context_too_long"}


@in_loop
async def test_a_cancelled_batch_frees_the_engine(
    serve: Serve, engine: Engine, write_input: WriteInput
) -> None:
    """Its sockets are closed and its status says so."""
    with engine("silent") as server:
        url = serve(server.url)
        async with ClientSession() as session:
            batch = await create(session, url, await upload(session, url, write_input(3)))
            while server.open_chats == 0:  # noqa: ASYNC110 - another thread's
                await asyncio.sleep(0.01)
            async with session.post(f"{url}/v1/batches/{batch['id']}/cancel") as reply:
                assert (await reply.json())["status"] == "cancelling"
            await ended(session, url, batch["id"], "cancelled")
            while server.open_chats:  # noqa: ASYNC110 - another thread's
                await asyncio.sleep(0.01)
            async with session.post(f"{url}/v1/batches/{batch['id']}/cancel") as reply:
                assert reply.status == 409


@in_loop
async def test_batches_go_on_after_a_restart(
    serve: Serve, engine: Engine, write_input: WriteInput
) -> None:
    """Stopped in the middle, started again: the batch completes and no row is lost or doubled."""
    slow = """
        [pace]
        ttft_s = 0.05
    """
    with engine(slow) as server:
        url = serve(server.url)
        async with ClientSession() as session:
            batch = await create(session, url, await upload(session, url, write_input(150)))
            while len(server.records) < 20:  # noqa: ASYNC110 - another thread's
                await asyncio.sleep(0.01)
            await asyncio.to_thread(serve.stop)  # type: ignore[attr-defined] # see the fixture
            url = serve(server.url)
            done = await ended(session, url, batch["id"], "completed")
        assert done["request_counts"] == {"total": 150, "completed": 150, "failed": 0}
        assert len(server.records) == 150


@in_loop
async def test_clients_need_the_key_where_there_is_one(
    serve: Serve, write_input: WriteInput
) -> None:
    """401 without it, service with it."""
    url = serve("http://127.0.0.1:9", client_key="right")
    async with ClientSession() as session, session.get(f"{url}/v1/batches") as reply:
        assert reply.status == 401
        assert (await reply.json())["error"]["code"] == "invalid_api_key"
    async with ClientSession(headers={"Authorization": "Bearer right"}) as session:
        assert await upload(session, url, write_input(1))


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"endpoint": "/v1/images"}, "invalid_endpoint"),
        ({"completion_window": "1h"}, "invalid_completion_window"),
        ({"input_file_id": "file-none"}, "not_found"),
        ({"input_file_id": 3}, "invalid_request"),
    ],
)
@in_loop
async def test_bad_requests_are_told(
    serve: Serve, write_input: WriteInput, given: dict[str, Any], code: str
) -> None:
    """In the protocol's shape of an error."""
    url = serve("http://127.0.0.1:9")
    async with ClientSession() as session:
        file_id = await upload(session, url, write_input(1))
        assert (await create(session, url, file_id, **given))["error"]["code"] == code
