"""Watching the GPUs of this machine while something else is going on."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from heavylift.errors import HeavyliftError
from heavylift.telemetry.collect_gpus import ANSWER_S, Command, tool_here
from heavylift.telemetry.gpu_readings import GpuReading, readings

PERIOD_S: Final = 1.0


def tool_for(url: str, stated: Path | None) -> Command | None:
    """The command to ask about the GPUs behind a URL: the one stated, else, for a server on this
    machine, the tool that is here. Another machine's GPUs are not to be seen from this one.
    """
    if stated is not None:
        return (str(stated),)
    return tool_here() if is_here(url) else None


def is_here(url: str) -> bool:
    """True when a URL leads to this machine by its loopback."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class GpuWatch:
    """Asks a tool again and again inside `async with`. `points` are its answers in order of time.

    A tool that fails or hangs ends the watch; what it said before stays. It is asked once at least.
    `command` None = nothing is watched.
    """

    def __init__(self, command: Command | None, period_s: float = PERIOD_S) -> None:
        self._command = command
        self._period_s = period_s
        self._task: asyncio.Task[None] | None = None
        self._began_at = 0.0
        self.points: list[GpuReading] = []

    async def __aenter__(self) -> Self:
        self._began_at = time.perf_counter()
        if self._command is not None:
            self._task = asyncio.create_task(self._watch(self._command))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._command is not None and not self.points and error is None:
            # Over before the tool had answered once: what is held now is held still.
            with suppress(HeavyliftError):
                self.points += await self._ask(self._command)

    async def _watch(self, command: Command) -> None:
        with suppress(HeavyliftError):
            while True:
                self.points += await self._ask(command)
                await asyncio.sleep(self._period_s)

    async def _ask(self, command: Command) -> tuple[GpuReading, ...]:
        at_s = time.perf_counter() - self._began_at
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as problem:
            raise HeavyliftError(
                "PRE101", {"what": command[0], "reason": str(problem)}
            ) from problem
        try:
            async with asyncio.timeout(ANSWER_S):
                said, _ = await process.communicate()
        except TimeoutError as problem:
            raise HeavyliftError("PRE101", {"what": command[0], "reason": "timeout"}) from problem
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return readings(said.decode("utf-8", "replace"), at_s)
