"""A client's connection: aiohttp's, with a clock on the arrival of a request's headers."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web


class Connection(web.RequestHandler):
    """Knows since when it waits for the headers of a request. None = it does not wait.

    aiohttp has a clock on idle connections only; a client that sends its headers byte by byte
    would hold a connection for ever.
    """

    __slots__ = ("busy", "waiting_since")

    def __init__(
        self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, **options: Any
    ) -> None:
        super().__init__(manager, loop=loop, **options)
        self.waiting_since: float | None = None
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The clock starts with the connection."""
        self.waiting_since = self._loop.time()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Between two requests the clock starts with the first byte."""
        if self.waiting_since is None and not self.busy:
            self.waiting_since = self._loop.time()
        super().data_received(data)

    def began(self) -> None:
        """The headers of a request are here."""
        self.busy, self.waiting_since = True, None

    def ended(self) -> None:
        """The request has been answered."""
        self.busy = False
