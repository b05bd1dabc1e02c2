"""The machine that heavylift runs on: memory, swap, load, disks."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from heavylift.records.watch import Disk, HostNow
from heavylift.telemetry.proc import parse_meminfo

_MEMINFO: Final = Path("/proc/meminfo")
_LOADAVG: Final = Path("/proc/loadavg")


def look(
    folders: Iterable[Path] = (), *, gtt_used_bytes: int | None = None, meminfo: Path = _MEMINFO
) -> HostNow:
    """This machine now. `folders`: whose file systems are told, each one once."""
    host = HostNow(
        name=socket.gethostname(),
        gtt_used_bytes=gtt_used_bytes,
        cpus=os.cpu_count(),
        load_1m=_load(),
        disks=_disks((Path("/"), *folders)),
    )
    with contextlib.suppress(OSError):
        told = parse_meminfo(meminfo.read_text("utf-8", "replace"))
        swap, free = told.get("SwapTotal"), told.get("SwapFree")
        return replace(
            host,
            memory_total_bytes=told.get("MemTotal"),
            memory_available_bytes=told.get("MemAvailable"),
            swap_total_bytes=swap,
            swap_used_bytes=None if swap is None or free is None else swap - free,
        )
    return host


def _load() -> float | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return float(_LOADAVG.read_text("ascii").split()[0])
    return None


def _disks(folders: Iterable[Path]) -> tuple[Disk, ...]:
    found: dict[int, Disk] = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            there = next(each for each in (folder, *folder.parents) if each.exists())
            device = there.stat().st_dev
            if device not in found:
                use = shutil.disk_usage(there)
                found[device] = Disk(path=str(folder), total_bytes=use.total, free_bytes=use.free)
    return tuple(found.values())
