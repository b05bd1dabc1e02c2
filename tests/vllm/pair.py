"""A router in front of two engines of which one prefills and the other decodes, for tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

_CHAT = "/v1/chat/completions"


@asynccontextmanager
async def routed(
    prefill: str, decode: str, between: Callable[[], None] = lambda: None
) -> AsyncIterator[str]:
    """The address of a router. A chat goes to `prefill` for one token, whose cache the engines hand
    over between them, then as it is to `decode`; all else goes to `decode` alone. `between` is
    called when the cache has been written and not yet read.
    """
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300)) as session:

        async def chat(request: web.Request) -> web.StreamResponse:
            body: dict[str, Any] = await request.json()
            first = {**body, "max_tokens": 1, "stream": False}
            first.pop("stream_options", None)
            async with session.post(f"{prefill}{_CHAT}", json=first) as reply:
                await reply.read()
            between()
            return await passed_on(request, json.dumps(body).encode())

        async def other(request: web.Request) -> web.StreamResponse:
            return await passed_on(request, await request.read())

        async def passed_on(request: web.Request, body: bytes) -> web.StreamResponse:
            async with session.request(
                request.method,
                f"{decode}{request.path_qs}",
                data=body,
                headers={"Content-Type": "application/json"},
            ) as reply:
                kind = reply.headers.get("Content-Type", "application/octet-stream")
                answer = web.StreamResponse(status=reply.status, headers={"Content-Type": kind})
                await answer.prepare(request)
                async for piece in reply.content.iter_any():
                    await answer.write(piece)
                await answer.write_eof()
                return answer

        app = web.Application()
        app.router.add_post(_CHAT, chat)
        app.router.add_route("*", "/{path:.*}", other)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
