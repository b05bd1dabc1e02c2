"""Processes of this machine as the kernel lists them: who lives, whose they are, what they do."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from heavylift.launch.keeper import family, started_ticks
from heavylift.records.deployment import ProcessState

RUN_VARIABLE: Final = "HEAVYLIFT_RUN"
"""In the environment of everything a run starts: its id."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_KILL_S: Final = 10.0
_POLL_S: Final = 0.02
_CPU_TICKS: Final = os.sysconf("SC_CLK_TCK")


def boot_id() -> str:
    """The id of this start of the machine: process numbers of another mean nothing."""
    return _BOOT_ID.read_text("ascii").strip()


def is_running(pid: int | None, ticks: int | None) -> bool:
    """True while this very process runs; a later one of the same number is another."""
    if pid is None:
        return False
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] not in (b"Z", b"X") and (ticks is None or int(fields[19]) == ticks)


def of_run(run_id: str, processes: Iterable[ProcessState]) -> tuple[int, ...]:
    """What runs of a run: by the mark in its environment, and by the sessions of its engines.

    A program may overwrite the environment that the kernel shows; it keeps its session.
    """
    sessions = {
        each.session: each.started_ticks
        for each in processes
        if each.session is not None and each.host in LOCAL
    }
    mark = f"{RUN_VARIABLE}={run_id}".encode()
    own = os.getuid()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            if entry.stat().st_uid != own:
                continue
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] in (b"Z", b"X"):
                continue
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
            if marked or _in_session(int(fields[3]), int(fields[19]), sessions):
                found.append(int(entry.name))
    return tuple(sorted(found))


LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1", ""})
"""Names of this machine in a launch."""


def _in_session(session: int, ticks: int, sessions: dict[int, int | None]) -> bool:
    if session not in sessions:
        return False
    first = sessions[session]
    leader = started_ticks(session)
    # Its number is not given away while a session has members; a leader that started at another
    # time is that of a later session.
    return first is None or (ticks >= first and leader in (None, first))


def end(pids: Iterable[int], *, grace_s: float) -> None:
    """End processes: asked first, killed after `grace_s`. Returns when they are gone."""
    left = set(pids)
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_S)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        until = time.monotonic() + wait_s
        while left and time.monotonic() < until:
            for pid in tuple(left):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                if not is_running(pid, None):
                    left.discard(pid)
            time.sleep(_POLL_S)
        if not left:
            return


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """What a family of processes has done since its start: bytes read (disk cache included) and
    written, seconds of CPU.
    """

    read_bytes: int = 0
    written_bytes: int = 0
    cpu_s: float = 0.0


def effort(session: int | None, keeper: int | None) -> Effort:
    """The effort of an engine's processes; zero where there are none."""
    if session is None:
        return Effort()
    read = written = ticks = 0
    for pid in family(keeper or -1, session):
        with contextlib.suppress(OSError, ValueError, IndexError):
            counters = dict(
                line.split(": ") for line in Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
            )
            read += int(counters["rchar"]) + int(counters["read_bytes"])
            written += int(counters["wchar"])
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return Effort(read_bytes=read, written_bytes=written, cpu_s=ticks / _CPU_TICKS)
