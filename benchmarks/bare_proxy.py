"""The least a proxy of this kind costs: the same libraries, and nothing but passing on.

The benchmark of the gateway runs it beside the gateway, so that a figure can be read on a machine
whose speed changes by the hour.
"""

from __future__ import annotations

import asyncio
import logging
import sys

import aiohttp
from aiohttp import web

from heavylift.gateway.serve import run_fast
from heavylift.wire.client import open_session


async def serve(upstream: str) -> None:
    """Pass everything on until the process is ended."""
    async with open_session() as session:

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await pass_on(session, upstream, request)

        server = web.Server(handle, access_log=None, logger=logging.getLogger("bare"))
        listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        print(f"listening on http://127.0.0.1:{port}", file=sys.stderr, flush=True)
        await asyncio.Event().wait()


async def pass_on(
    session: aiohttp.ClientSession, upstream: str, request: web.BaseRequest
) -> web.StreamResponse:
    """One request there and its reply back, chunk by chunk."""
    body = await request.read()
    async with session.post(f"{upstream}{request.path}", data=body) as reply:
        response = web.StreamResponse(status=reply.status)
        response.content_type = reply.content_type
        await response.prepare(request)
        while chunk := await reply.content.readany():
            await response.write(chunk)
        await response.write_eof()
        return response


if __name__ == "__main__":
    run_fast(serve(sys.argv[1]))
