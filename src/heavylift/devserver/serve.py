"""A scripted engine as a process of its own, the way a supervisor meets an engine."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from heavylift.devserver.scenario import Scenario, Then
from heavylift.devserver.server import ScriptedServer
from heavylift.errors import HeavyliftError


def serve(scenario: Scenario, port: int, on_listening: Callable[[str], None]) -> int:
    """Plays the scenario until SIGTERM (0) or until it says that the process ends (its status).

    `on_listening` gets the address once the port is open. Raises DEV004 when the port cannot be
    opened.
    """
    return asyncio.run(_serve(scenario, port, on_listening))


async def _serve(scenario: Scenario, port: int, on_listening: Callable[[str], None]) -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with ScriptedServer(scenario, port=port) as server:
        announced = asyncio.create_task(_announce(server, on_listening))
        ends = [
            asyncio.create_task(stop.wait()),
            asyncio.create_task(server.ended.wait()),
        ]
        try:
            await asyncio.wait((*ends, announced), return_when=asyncio.FIRST_COMPLETED)
            if announced.done():
                _check(announced, port)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (announced, *ends):
                task.cancel()
            await asyncio.gather(announced, *ends, return_exceptions=True)
        return server.exit_status


async def _announce(server: ScriptedServer, on_listening: Callable[[str], None]) -> None:
    if await server.until(Then.LISTEN):
        on_listening(server.url)


def _check(announced: asyncio.Task[None], port: int) -> None:
    try:
        announced.result()
    except OSError as problem:
        detail = problem.strerror or str(problem)
        raise HeavyliftError("DEV004", {"port": port, "detail": detail}) from problem
