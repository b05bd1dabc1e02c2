"""The gateway in front of a real engine: its own counts, its own errors, its own pace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from heavylift.gateway.config import Settings, Times
from heavylift.gateway.quota import Limits
from heavylift.gateway.routing import Routes, Upstream
from heavylift.gateway.serve import Running, running
from heavylift.gateway.store import open_store
from heavylift.launch.runner import Served
from heavylift.recipe.engines import embedded
from heavylift.wire.client import Client, Endpoint
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

pytestmark = pytest.mark.e2e

Serve = Callable[[embedded.EmbeddedSettings], AbstractContextManager[Served]]


def chat(text: str, *, stream: bool = True, max_tokens: int | None = 12) -> ChatRequest:
    """A chat with a small, fixed answer."""
    return ChatRequest(
        model="smollm2",
        messages=({"role": "user", "content": text},),
        stream=stream,
        max_tokens=max_tokens,
        extra={"temperature": 0},
    )


def test_a_real_engine_behind_the_gateway(
    start: Serve, smollm2: Path, api_key: str, tmp_path: Path
) -> None:
    """What is charged is what the engine counted, the same for a streamed and a whole reply; the
    bound was never less; a quota that is spent closes the door before the engine.
    """
    settings = embedded.EmbeddedSettings(
        model="smollm2", model_path=str(smollm2), slot_tokens=2048, slots=2
    )
    with start(settings) as served, open_store(tmp_path) as store:
        key = store.create_key("me", now_epoch_s=time.time()).key
        small = store.create_key(
            "small", now_epoch_s=time.time(), limits=Limits(tokens_per_day=300)
        ).key
        upstream = Upstream(name="engine", url=served.address or "")
        configured = Settings(
            folder=tmp_path,
            routes=Routes(upstreams=(upstream,)),
            port=0,
            worker_key=api_key,
            times=Times(probe_s=0.2),
        )

        async def work(gateway: Running) -> None:
            async with Client(Endpoint(base_url=gateway.url, key=key)) as client:
                assert [model.id for model in await client.models()] == ["smollm2"]
                streamed = await client.chat(chat("Name three colours."))
                whole = await client.chat(chat("Name three colours.", stream=False))
                assert (streamed.failure, whole.failure) == (None, None)
                assert streamed.reply.text == whole.reply.text
                gateway.ledger.flush()
                (row,) = gateway.ledger.store.usage("key")
                counted = [outcome.reply.usage for outcome in (streamed, whole)]
                assert row.prompt_tokens == sum(u.prompt_tokens or 0 for u in counted if u)
                assert row.completion_tokens == sum(u.completion_tokens or 0 for u in counted if u)
                assert row.estimated == 0
                tokens = await client.tokenize("smollm2", "hello world")
                assert tokens
                too_long = await client.chat(chat("word " * 6000))
                assert too_long.failure is Failure.CONTEXT_TOO_LONG
                assert gateway.fleet.workers["engine"].takes
            async with Client(Endpoint(base_url=gateway.url, key=small)) as client:
                outcomes = [await client.chat(chat("Hello.")) for _ in range(12)]
                failures = [outcome.failure for outcome in outcomes]
                assert failures[0] is None
                assert failures[-1] is Failure.RATE_LIMITED
                gateway.ledger.flush()
                used = {row.name: row for row in gateway.ledger.store.usage("key")}["small"]
                assert used.prompt_tokens + used.completion_tokens <= 300
                assert gateway.ledger.open_requests() == 0

        async def main() -> None:
            async with running(configured, str) as gateway:
                await work(gateway)

        asyncio.run(main())
