"""Pictures behind an address of this machine: whether a server fetches what it is told to."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from aiohttp import web

_HOST: Final = "127.0.0.1"


class PictureHost:
    """Serves pictures on the loopback inside `async with`, and remembers which were asked for.

    Only a server of this machine can reach them: for another, `offer` has nothing to give.
    """

    def __init__(self, *, reachable: bool) -> None:
        self._reachable = reachable
        self._runner: web.AppRunner | None = None
        self._pictures: dict[str, bytes] = {}
        self._fetched: set[str] = set()

    async def __aenter__(self) -> Self:
        if self._reachable:
            app = web.Application()
            app.router.add_get("/{name}", self._answer)
            self._runner = web.AppRunner(app, access_log=None)
            await self._runner.setup()
            await web.TCPSite(self._runner, _HOST, 0).start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def offer(self, png: bytes) -> str | None:
        """The address of a picture; None where the server under test could not reach it."""
        if self._runner is None:
            return None
        name = f"{len(self._pictures)}.png"
        url = f"http://{_HOST}:{self._runner.addresses[0][1]}/{name}"
        self._pictures[name] = png
        return url

    def was_fetched(self, url: str) -> bool:
        """True when somebody asked for it."""
        return url.rpartition("/")[2] in self._fetched

    async def _answer(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._pictures:
            raise web.HTTPNotFound
        self._fetched.add(name)
        return web.Response(body=self._pictures[name], content_type="image/png")
