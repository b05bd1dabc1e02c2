"""The addresses of the live page.

GET /live             the page
GET /part/live        what it shows, as HTML, for the script that asks again
GET /part/keys        keys and usage, for who sends an admin key of the gateway as bearer
GET /api/live         the record as JSON
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import jinja2
import msgspec
from aiohttp import web

from heavylift import __version__
from heavylift.errors import HeavyliftError
from heavylift.web import live
from heavylift.web.board import panels
from heavylift.web.guard import language_chosen

T = TypeVar("T")

_BEARER: Final = "Bearer "
_LONGEST_KEY: Final = 200


class LivePages:
    """The handlers of the live page."""

    def __init__(self, places: live.Places, templates: jinja2.Environment) -> None:
        self._places = places
        self._watcher = live.Watcher(places)
        self._templates = templates
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="live")

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_get("/live", self.page)
        app.router.add_get("/part/live", self.part)
        app.router.add_get("/part/keys", self.keys)
        app.router.add_get("/api/live", self.api)
        app.on_cleanup.append(self._close)

    async def _close(self, _app: web.Application) -> None:
        self._reading.shutdown(wait=False, cancel_futures=True)

    async def page(self, request: web.Request) -> web.StreamResponse:
        """The page with a first look in it."""
        moved = language_chosen(request)
        if moved is not None:
            return moved
        page = self._templates.get_template("live.html").render(
            page="live",
            path=request.path,
            query=request.query_string,
            version=__version__,
            **await self._look(),
        )
        return web.Response(text=page, content_type="text/html")

    async def part(self, _request: web.Request) -> web.StreamResponse:
        """A look as HTML."""
        html = self._templates.get_template("part_live.html").render(**await self._look())
        return web.Response(text=html, content_type="text/html")

    async def api(self, _request: web.Request) -> web.StreamResponse:
        """A look as JSON."""
        found = await self._run(self._watcher.look)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    async def keys(self, request: web.Request) -> web.StreamResponse:
        """Keys and usage; without an admin key, that one is needed."""
        presented = request.headers.get("Authorization", "")
        key = presented.removeprefix(_BEARER)[:_LONGEST_KEY]
        error = found = None
        try:
            found = await self._run(lambda: live.ledger(self._places, key, request.remote))
        except HeavyliftError as problem:
            error = problem
        html = self._templates.get_template("part_keys.html").render(
            ledger=found, refused=bool(presented) and found is None, error=error
        )
        return web.Response(text=html, content_type="text/html")

    async def _look(self) -> dict[str, object]:
        try:
            found = await self._run(self._watcher.look)
        except HeavyliftError as error:
            return {"live": None, "error": error, "start": live.START}
        charts = {
            each.status.name: panels(each.history, time.time())
            for each in found.deployments
            if each.history is not None
        }
        return {"live": found, "error": None, "start": live.START, "charts": charts}

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reading, work)
