"""The files and batches routes: passed on to a batch server (`heavylift batch serve`).

Bodies go through in both directions as they come; a file is never held here. The batch server has
one store for all who may use it, so a key needs a permission of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from aiohttp import web

from heavylift.errors import HeavyliftError
from heavylift.gateway.carrier import ClientGone
from heavylift.gateway.config import Times

PATHS: Final = ("/v1/files", "/v1/batches")
_PATH: Final = re.compile(r"/v1/(files|batches)(/[A-Za-z0-9][A-Za-z0-9_-]*(/(content|cancel))?)?")
_METHODS: Final = frozenset({"GET", "POST", "DELETE"})
_BACK: Final = ("Content-Type", "Content-Length", "Content-Disposition")


def is_batch_path(path: str) -> bool:
    """True for a route of files or batches."""
    return any(path == known or path.startswith(f"{known}/") for known in PATHS)


class Batches:
    """The way to a batch server."""

    def __init__(self, url: str, key: str | None, times: Times) -> None:
        self._url = url
        self._key = key
        self._times = times

    async def pass_on(
        self,
        session: aiohttp.ClientSession,
        request: web.BaseRequest,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        """The batch server's reply, passed to the client; `headers` go with it.

        Raises GW045 for a path and GW046 for a method that is none of its routes, GW034 when the
        body does not arrive, GW025 when the server does not answer, `ClientGone`.
        """
        path = request.path
        if _PATH.fullmatch(path) is None:
            raise HeavyliftError("GW045", {"path": path[:200]})
        if request.method not in _METHODS:
            raise HeavyliftError("GW046", {"method": request.method[:20], "path": path[:200]})
        there = {
            name: request.headers[name]
            for name in ("Content-Type", "Content-Length")
            if name in request.headers
        }
        if self._key is not None:
            there["Authorization"] = f"Bearer {self._key}"
        try:
            async with session.request(
                request.method,
                f"{self._url}{path}",
                params=dict(request.query),
                data=self._body(request) if request.can_read_body else None,
                headers=there | {"x-request-id": headers["x-request-id"]},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    sock_connect=self._times.connect_s,
                    sock_read=self._times.first_byte_s,
                ),
            ) as reply:
                return await self._back(request, reply, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise HeavyliftError("GW025") from problem

    async def _body(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._times.body_s):
                    chunk = await request.content.readany()
            except TimeoutError as problem:
                raise HeavyliftError("GW034") from problem
            if not chunk:
                return
            yield chunk

    async def _back(
        self,
        request: web.BaseRequest,
        reply: aiohttp.ClientResponse,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        kept = {name: reply.headers[name] for name in _BACK if name in reply.headers}
        response = web.StreamResponse(
            status=reply.status, headers=kept | headers | {"Server": "heavylift"}
        )
        try:
            await response.prepare(request)
        except (aiohttp.ClientConnectionError, ConnectionError) as problem:
            raise ClientGone from problem
        while chunk := await self._next(reply, response):
            try:
                await response.write(chunk)
            except (aiohttp.ClientConnectionError, ConnectionError) as problem:
                raise ClientGone from problem
        await response.write_eof()
        return response

    async def _next(self, reply: aiohttp.ClientResponse, response: web.StreamResponse) -> bytes:
        """The next bytes; a reply that breaks off is broken off, because its length was stated."""
        try:
            return await reply.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            response.force_close()
            raise ClientGone from problem
