"""The client and a real engine: what scripted servers were made to imitate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import pytest

from heavylift.launch.runner import Served
from heavylift.recipe.engines.embedded import EmbeddedSettings
from heavylift.wire.client import MESSAGES, Client, Endpoint
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

pytestmark = pytest.mark.e2e

R = TypeVar("R")
Serve = Callable[[EmbeddedSettings], AbstractContextManager[Served]]

SLOT_TOKENS = 1024
QUESTION = ({"role": "user", "content": "What is the capital of France? One word. 中文 🏗️"},)
GREEDY = {"temperature": 0, "seed": 1}


def ask(*, stream: bool = True, tokens: int = 12) -> ChatRequest:
    """The question, answered in the same words every time."""
    return ChatRequest(
        model="smollm2", messages=QUESTION, stream=stream, max_tokens=tokens, extra=GREEDY
    )


@pytest.fixture
def with_client(
    start: Serve, smollm2: Path, api_key: str
) -> Callable[[Callable[[Client], Awaitable[R]]], R]:
    """Runs a use of a client of SmolLM2, served in two slots."""

    def run(use: Callable[[Client], Awaitable[R]]) -> R:
        settings = EmbeddedSettings(
            model_path=str(smollm2), model="smollm2", slot_tokens=SLOT_TOKENS, slots=2
        )
        with start(settings) as served:

            async def once() -> R:
                async with Client(Endpoint.parse(served.address, api_key)) as client:
                    return await use(client)

            return asyncio.run(once())

    return run


def test_the_client_understands_a_real_engine(
    with_client: Callable[[Callable[[Client], Awaitable[None]]], None],
) -> None:
    """Models, tokens, props, both ways of answering with equal words, and both protocols."""

    async def use(client: Client) -> None:
        assert await client.health() is None
        assert "smollm2" in [model.id for model in await client.models()]
        tokens = await client.tokenize("smollm2", "The capital of France is")
        assert tokens is not None
        assert len(tokens) == 5
        assert await client.props() is not None

        streamed = await client.chat(ask())
        whole = await client.chat(ask(stream=False))
        assert (streamed.failure, whole.failure) == (None, None)
        assert streamed.reply.text == whole.reply.text
        assert streamed.reply.finish_reason == whole.reply.finish_reason
        usage = streamed.reply.usage
        assert usage is not None
        # The token that ends the answer is counted and has no text.
        assert usage.completion_tokens == len(streamed.latency.itl_s) + 1 + 1
        assert streamed.latency.ttft_s is not None
        assert streamed.latency.ttft_s > 0

        messages = await client.chat(ask(), MESSAGES)
        assert messages.failure is None
        assert messages.reply.text == streamed.reply.text

    with_client(use)


def test_a_real_engines_refusals_have_their_classes(
    with_client: Callable[[Callable[[Client], Awaitable[None]]], None],
) -> None:
    """A prompt over the context, a request without sense, and a wrong key."""

    async def use(client: Client) -> None:
        long = ({"role": "user", "content": "word " * (SLOT_TOKENS + 100)},)
        too_long = await client.chat(ChatRequest(model="smollm2", messages=long))
        assert too_long.failure is Failure.CONTEXT_TOO_LONG
        nonsense = ChatRequest(model="smollm2", messages=(), extra={"messages": "no list"})
        assert (await client.chat(nonsense)).failure in (Failure.BAD_REQUEST, Failure.SERVER_ERROR)
        async with Client(Endpoint(base_url=client.endpoint.base_url, key="wrong")) as stranger:
            assert (await stranger.chat(ask())).failure is Failure.UNAUTHORISED

    with_client(use)


def test_leaving_a_real_stream_frees_its_slot(
    with_client: Callable[[Callable[[Client], Awaitable[None]]], None],
) -> None:
    """After more abandoned long generations than slots, a short one is answered at once."""

    async def use(client: Client) -> None:
        for _ in range(4):
            async with client.open_chat(ask(tokens=900)) as stream:
                async for timed in stream:
                    if timed.delta.is_token:
                        break
        async with asyncio.timeout(10):
            assert (await client.chat(ask(tokens=2))).failure is None

    with_client(use)
