"""Batches against servers that are not the scripted one: other routes, metrics, rate caps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from tests.servers import answering, on_a_thread

from heavylift.batch import lane
from heavylift.batch.export import export
from heavylift.batch.records import Ended
from heavylift.wire.client import Client, Endpoint
from heavylift.wire.failures import Failure

RunBatch = Callable[..., Ended]
ReadLines = Callable[[Path], list[dict[str, Any]]]

EMBEDDING = {"object": "list", "data": [{"index": 0, "embedding": [0.5, 1.0]}], "model": "e"}
USAGE = {"prompt_tokens": 3, "total_tokens": 3}
METRICS = """\
vllm:num_requests_running 8
vllm:num_requests_waiting 100
vllm:kv_cache_usage_perc 0.875
"""


def embeddings(path: Path, rows: int) -> Path:
    """An input of embeddings."""
    body = {"model": "e", "input": "text"}
    line = {"method": "POST", "url": "/v1/embeddings", "body": body}
    documents = (msgspec.json.encode({"custom_id": f"e{n}", **line}) for n in range(rows))
    path.write_bytes(b"\n".join(documents))
    return path


async def answer_embeddings(request: web.Request) -> web.Response:
    """A vector, pretty-printed as some servers do; the queue on the metrics page."""
    if request.path == "/metrics":
        return web.Response(text=METRICS)
    if request.path != "/v1/embeddings":
        return web.Response(status=404)
    document = msgspec.json.encode({**EMBEDDING, "usage": USAGE})
    return web.Response(
        body=msgspec.json.format(document, indent=2), content_type="application/json"
    )


def test_embeddings_are_batched_and_exported(
    run_batch: RunBatch, read_lines: ReadLines, tmp_path: Path
) -> None:
    """Line breaks in the server's document do not break the lines of the output."""
    with on_a_thread(answering(answer_embeddings)) as url:
        ended = run_batch(embeddings(tmp_path / "in.jsonl", 5), url)
    assert (ended.audit.ok, ended.audit.sound, ended.prompt_tokens) == (5, True, 15)
    rows = read_lines(tmp_path / "out" / "output.jsonl")
    assert len(rows) == 5
    assert rows[0]["response"]["body"]["data"] == EMBEDDING["data"]
    assert export(tmp_path / "out", tmp_path / "vectors.csv") == 5
    assert '"[[0.5,1.0]]"' in (tmp_path / "vectors.csv").read_text()


def test_the_engines_queue_holds_the_worker_back(
    run_batch: RunBatch, read_lines: ReadLines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred waiting in the engine: no more is sent at once than it has running and a few, but
    for a short try of a quarter more; its KV use is in the log.
    """
    monkeypatch.setattr(lane, "_METRICS_S", 0.02)
    at_once = []
    now = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal now
        if request.path == "/v1/embeddings":
            now += 1
            at_once.append(now)
            await asyncio.sleep(0.01)
            now -= 1
        return await answer_embeddings(request)

    with on_a_thread(answering(answer)) as url:
        ended = run_batch(embeddings(tmp_path / "in.jsonl", 400), url)
    assert ended.audit.ok == 400
    assert max(at_once[200:]) <= 1.25 * (8 + 2)
    log = read_lines(tmp_path / "out" / "requests.jsonl")
    assert log[-1]["kv_use_ratio"] == 0.875


@pytest.mark.parametrize("cap", [{"requests_per_minute": 1200}, {"tokens_per_minute": 3600}])
def test_a_rate_cap_holds_in_a_run(
    run_batch: RunBatch, tmp_path: Path, cap: dict[str, float]
) -> None:
    """Twenty requests, or sixty tokens, a second: forty rows of three tokens take a second at
    least.
    """
    with on_a_thread(answering(answer_embeddings)) as url:
        began = time.monotonic()
        ended = run_batch(embeddings(tmp_path / "in.jsonl", 40), url, concurrency=2, **cap)
        took = time.monotonic() - began
    assert ended.audit.ok == 40
    assert took >= 0.9


def test_a_posted_document_comes_back_whole() -> None:
    """The body as it is, its latency, and the class of a refusal with the server's wish."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/full":
            refusal = msgspec.json.encode({"error": {"message": "later"}})
            return web.Response(status=429, body=refusal, headers={"Retry-After": "7"})
        return web.Response(body=await request.read(), headers={"x-request-id": "r1"})

    async def ask() -> None:
        async with answering(answer) as url, Client(Endpoint.parse(url)) as client:
            echoed = await client.post("/echo", b'{"a": 1}')
            assert (echoed.failure, echoed.body) == (None, b'{"a": 1}')
            assert (echoed.status, echoed.request_id) == (200, "r1")
            assert echoed.latency.e2e_s is not None
            refused = await client.post("/full", b"{}")
            assert (refused.failure, refused.retry_after_s) == (Failure.RATE_LIMITED, 7)
            assert refused.error is not None
            assert refused.error.message == "later"

    asyncio.run(ask())


def test_a_cancelled_post_closes_its_socket() -> None:
    """The server notices at once: an engine stops generating."""

    async def check() -> None:
        came, gone = asyncio.Event(), asyncio.Event()

        async def hang(request: web.Request) -> web.Response:
            await request.read()
            came.set()
            try:
                await asyncio.Event().wait()
            finally:
                gone.set()
            return web.Response()

        async with answering(hang) as url, Client(Endpoint.parse(url)) as client:
            task = asyncio.create_task(client.post("/v1/chat/completions", b"{}"))
            await came.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with asyncio.timeout(5):
                await gone.wait()

    asyncio.run(check())
