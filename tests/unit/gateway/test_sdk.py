"""The official client library against the gateway: it raises where it should."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from tests.servers import playing

from heavylift.gateway.serve import Running

openai = pytest.importorskip("openai", reason="the official client library is not installed")

Start = Callable[..., contextlib.AbstractAsyncContextManager[Running]]
MakeKey = Callable[..., str]

HELLO = [{"role": "user", "content": "hello"}]


async def streamed(gateway: Running, key: str) -> list[str]:
    """The words of a streamed chat."""
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        stream: Any = await client.chat.completions.create(
            model="scripted", messages=HELLO, stream=True
        )
        return [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]


def test_a_whole_stream_is_a_success(start: Start, make_key: MakeKey) -> None:
    """Word by word."""
    key = make_key()

    async def work() -> None:
        async with playing("[reply]\ntokens = 8\n") as engine, start(engine.url) as gateway:
            assert len("".join(await streamed(gateway, key)).split()) == 8

    asyncio.run(work())


@pytest.mark.parametrize(
    "fault",
    [
        "kind = 'break_stream', after_tokens = 5",
        "kind = 'error_event', after_tokens = 5, done = true",
        "kind = 'no_finish_reason'",
        "kind = 'garbage', after_tokens = 5, done = true",
        "kind = 'truncated_json', after_tokens = 5",
    ],
)
def test_a_broken_stream_raises(start: Start, make_key: MakeKey, fault: str) -> None:
    """Whatever broke it, and although the status was 200."""
    key = make_key()
    toml = f"[[rule]]\nmatch = {{ first = 2 }}\nfault = {{ {fault} }}\n"

    async def work() -> None:
        async with playing(toml) as engine, start(engine.url) as gateway:
            with pytest.raises(openai.APIError):
                await streamed(gateway, key)

    asyncio.run(work())


def test_refusals_have_their_own_exceptions(start: Start, make_key: MakeKey) -> None:
    """By status, with the code that says why."""
    key = make_key(requests_per_minute=1)

    async def work() -> None:
        async with playing("") as engine, start(engine.url) as gateway:
            with pytest.raises(openai.AuthenticationError):
                await streamed(gateway, "sk-wrong")
            await streamed(gateway, key)
            with pytest.raises(openai.RateLimitError) as raised:
                await streamed(gateway, key)
            assert raised.value.code == "rate_limit_exceeded"

    asyncio.run(work())
