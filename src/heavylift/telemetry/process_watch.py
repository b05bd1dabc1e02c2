"""The processes behind a port of this machine: memory of their own, waits for a processor."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from heavylift.telemetry.proc import own_memory_bytes, parse_listeners, parse_meminfo

_PROC: Final = Path("/proc")
_NS: Final = 1e9
_FORWARDERS: Final = frozenset(
    {"docker-proxy", "rootlessport", "slirp4netns", "pasta", "ssh", "sshd", "kubectl", "socat"}
)
"""Programs that only pass connections on: their memory says nothing of the engine behind them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """The process that listens on a port, by number and name."""

    pid: int
    name: str


def serving(port: int, proc: Path = _PROC) -> Serving | None:
    """What listens on a TCP port here; None when it is not to be seen, or only passes on."""
    sockets: set[str] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            text = (proc / "net" / table).read_text("ascii", "replace")
            sockets |= {f"socket:[{inode}]" for inode in parse_listeners(text).get(port, ())}
    if not sockets:
        return None
    found = [pid for pid in _pids(proc) if _holds(proc / str(pid) / "fd", sockets)]
    if not found:
        return None
    # Workers that share a socket inherited it from the eldest, whose family has them all.
    pid = min(found)
    try:
        name = (proc / str(pid) / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return None
    return None if name in _FORWARDERS else Serving(pid=pid, name=name)


def family(pid: int, proc: Path = _PROC) -> tuple[int, ...]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = defaultdict(list)
    for each in _pids(proc):
        with suppress(OSError, IndexError, ValueError):
            fields = (proc / str(each) / "stat").read_bytes().rpartition(b")")[2].split()
            children[int(fields[1])].append(each)
    found = [pid]
    for each in found:
        found += children[each]
    return tuple(found)


def held_bytes(pid: int, proc: Path = _PROC) -> int | None:
    """Bytes that a process and its descendants hold of their own; None when it has ended.

    Files that are mapped, such as weights, are not counted: the kernel drops them when it must.
    """
    sizes = []
    for each in family(pid, proc):
        with suppress(OSError):
            status = (proc / str(each) / "status").read_text("utf-8", "replace")
            sizes.append(own_memory_bytes(status))
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def processor_s(pid: int, proc: Path = _PROC) -> tuple[float, float]:
    """Seconds that a process and its descendants have run on a processor, and that they have stood
    ready and waited for one; both 0 where the kernel keeps no such counts.
    """
    ran = waited = 0
    for each in family(pid, proc):
        with suppress(OSError):
            for task in (proc / str(each) / "task").iterdir():
                with suppress(OSError, ValueError):
                    counts = (task / "schedstat").read_text("ascii").split()
                    ran, waited = ran + int(counts[0]), waited + int(counts[1])
    return ran / _NS, waited / _NS


class ProcessWatch:
    """Looks at the processes behind a port again and again inside `async with`.

    `points` are seconds after the start and bytes held, `waits` the share of their ready time in
    which they waited for a processor since the look before; `available_bytes` is what the machine
    had left at the start. `port` None, or one whose process cannot be seen = nothing is watched.
    """

    def __init__(self, port: int | None, period_s: float) -> None:
        self._port = port
        self._period_s = period_s
        self._task: asyncio.Task[None] | None = None
        self.serving: Serving | None = None
        self.available_bytes: int | None = None
        self.points: list[tuple[float, float]] = []
        self.waits: list[tuple[float, float]] = []

    async def __aenter__(self) -> Self:
        if self._port is not None:
            self.serving = serving(self._port)
        if self.serving is not None:
            with suppress(OSError):
                memory = parse_meminfo((_PROC / "meminfo").read_text("ascii", "replace"))
                self.available_bytes = memory.get("MemAvailable")
            self._task = asyncio.create_task(self._watch(self.serving.pid))
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

    async def _watch(self, pid: int) -> None:
        began_at = time.perf_counter()
        before = processor_s(pid)
        while (held := held_bytes(pid)) is not None:
            at_s = time.perf_counter() - began_at
            self.points.append((at_s, float(held)))
            now = processor_s(pid)
            ran, waited = now[0] - before[0], now[1] - before[1]
            if ran > 0 and waited >= 0:
                self.waits.append((at_s, waited / (ran + waited)))
            before = now
            await asyncio.sleep(self._period_s)


def _pids(proc: Path) -> list[int]:
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]


def _holds(folder: Path, sockets: set[str]) -> bool:
    """True when a process has one of the sockets open; another user's cannot be looked into."""
    with suppress(OSError):
        for entry in folder.iterdir():
            with suppress(OSError):
                if str(entry.readlink()) in sockets:
                    return True
    return False
