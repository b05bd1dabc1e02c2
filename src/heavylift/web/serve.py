"""The pages as a process: bound to loopback, ended by a signal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from heavylift.errors import HeavyliftError, reason
from heavylift.web.app import Pages, Start
from heavylift.web.live import Places
from heavylift.web.measured import Measured, read_reports
from heavylift.web.planner import Planner

HOST: Final = "127.0.0.1"
_SWITCH_S: Final = 0.001
"""How soon a thread that searches lets one that answers go on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What is served: the port (0 = any), reports of `bench` to draw, batches to watch, and the
    folder of the gateway.
    """

    port: int
    gateway: Path
    reports: tuple[Path, ...] = ()
    batches: tuple[Path, ...] = ()


def serve(settings: Settings, on_listening: Callable[[str, int], None]) -> None:
    """Serve until SIGTERM or SIGINT. `on_listening` gets the address and the port once it is open.

    Raises as `running`.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        async with running(settings) as taken:
            on_listening(f"http://{HOST}:{taken}/", taken)
            await ended.wait()

    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        asyncio.run(main())
    finally:
        sys.setswitchinterval(before)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[int]:
    """The pages while the context lasts; gives the port, which 0 leaves to the system.

    Raises WEB002 for a port that is taken, WEB003 for a report without points.
    """
    app = pages(settings, read_reports(settings.reports)).application()
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, settings.port)
        try:
            await site.start()
        except OSError as error:
            raise HeavyliftError(
                "WEB002", {"port": settings.port, "reason": reason(error)}
            ) from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def pages(settings: Settings, measured: Measured) -> Pages:
    """The pages over the facts that ship with the package, as they start."""
    planner = Planner(anchors=measured.anchors)
    showcase = planner.catalog.showcase()
    start = Start(model=showcase.model, rack=showcase.rack)
    places = Places(gateway=settings.gateway, batches=settings.batches)
    return Pages(planner, start, places, measured.rates)
