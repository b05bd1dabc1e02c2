"""The keeper of one engine process: starts it, and leaves nothing of it behind. A script.

It runs where the engine runs, here or at the other end of an ssh connection, where heavylift is not
installed: standard library only. It is given, on standard input, one line of JSON (`argv`, `env`,
`cwd`, `grace_s`) and then commands; the end of that input means that whoever started it is gone.
Standard output is the engine's log. Standard error tells what happens, a JSON object per line.

The engine and all that it starts share a session. The keeper is their reaper of last resort
(PR_SET_CHILD_SUBREAPER): what outlives its own parent becomes the keeper's child and can be found.
Should the keeper itself be killed, the kernel ends the engine's first process (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
RUNNER_VARIABLE = "HEAVYLIFT_RUNNER_PID"
POLL_S = 0.05
KILL_S = 10.0
EXIT_NOT_STARTED = 127

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Keep the engine until it ends, a command says so, or the input ends."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Unbuffered: what stays in a buffer would not wake the selector.
    order = json.loads(_line())
    try:
        engine = _start(order)
    except OSError as error:
        _tell(event="not_started", reason=error.strerror or type(error).__name__)
        return EXIT_NOT_STARTED
    _tell(event="started", pid=engine.pid, session=engine.pid, ticks=started_ticks(engine.pid))
    grace_s = _until_over(engine, asked, float(order["grace_s"]))
    if engine.poll() is None:
        _end(engine, grace_s)
    kill_family(engine)
    _tell(event="exited", code=engine.wait())
    return 0


def _line() -> bytes:
    read = b""
    while not read.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(0)
        read += byte
    return read


def _tell(**what: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(2, json.dumps(what).encode() + b"\n")


def _start(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    keeper = os.getpid()
    environment = {**os.environ, **order["env"], RUNNER_VARIABLE: str(keeper)}

    def tie_to_keeper() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(  # noqa: S603 - an argument list made by a recipe, no shell
        order["argv"],
        stdin=subprocess.DEVNULL,
        stdout=1,
        stderr=1,
        env=environment,
        cwd=order.get("cwd"),
        start_new_session=True,
        preexec_fn=tie_to_keeper,  # noqa: PLW1509 - there is one thread here
    )


def _until_over(engine: subprocess.Popen[bytes], asked: list[int], grace_s: float) -> float:
    """Wait for the engine's end, a command, or the end of the input; the grace to end it with."""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        while engine.poll() is None and not asked:
            if not selector.select(POLL_S):
                continue
            words = os.read(0, 4096).split()
            if not words:
                return grace_s
            if words[0] == b"stop":
                return float(words[1]) if len(words) > 1 else grace_s
    return grace_s


def _end(engine: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ask the first process: it ends its own in order. The rest is `kill_family`'s."""
    with contextlib.suppress(ProcessLookupError):
        engine.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        engine.wait(grace_s)


def kill_family(engine: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the engine: its session, and whatever became a child of ours."""
    end = time.monotonic() + KILL_S
    while time.monotonic() < end:
        engine.poll()  # takes its exit: dead and not taken, it would count as left
        left = [pid for pid in family(os.getpid(), engine.pid) if pid != os.getpid()]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap(engine.pid)
        time.sleep(POLL_S / 5)


def _reap(engine: int) -> None:
    """Take the exit of adopted children; the engine's own belongs to its Popen."""
    for pid in family(os.getpid(), -1):
        if pid not in (os.getpid(), engine):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def family(ancestor: int, session: int) -> list[int]:
    """Descendants of a process and members of a session, the dead ones of `ancestor` included."""
    stats = {int(name): _stat(name) for name in os.listdir("/proc") if name.isdigit()}
    found = set()
    grown = {ancestor}
    while grown:
        grown = {
            pid
            for pid, stat in stats.items()
            if stat is not None and stat[1] in grown and pid not in found
        }
        found |= grown
    found |= {
        pid
        for pid, stat in stats.items()
        if stat is not None and stat[2] == session and stat[0] != "Z"
    }
    return sorted(pid for pid in found if not _is_dead_elsewhere(stats[pid], ancestor))


def _is_dead_elsewhere(stat: tuple[str, int, int, int] | None, ancestor: int) -> bool:
    return stat is None or (stat[0] == "Z" and stat[1] != ancestor)


def _stat(name: str) -> tuple[str, int, int, int] | None:
    """State, parent, session and start of a process; None when it is gone."""
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19])


def started_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks since the machine's start; None when gone."""
    stat = _stat(str(pid))
    return None if stat is None else stat[3]


if __name__ == "__main__":
    sys.exit(main())
