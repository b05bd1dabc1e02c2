"""Observing with a time limit: files through a reader process, programs each in a group of its own.

A driver that hangs leaves whoever asked it in uninterruptible sleep, where not even SIGKILL helps.
So nothing here is read in this process, and a child that does not end when killed is left behind.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.records.snapshot import Observation, State
from heavylift.redact import without_secrets

READER: Final = Path(__file__).with_name("reader_child.py")
ITEM_LIMIT_S: Final = 3.0
TOOL_LIMIT_S: Final = 15.0
TOOL_BYTES: Final = 4 * 2**20
_ERROR_CHARACTERS: Final = 2000
_CHUNK_BYTES: Final = 65536
_REAP_S: Final = 0.5
_RESTARTS: Final = 12
"""Hung items after which the rest is not tried: each has cost its whole time limit."""

_left_behind: list[subprocess.Popen[bytes]] = []
"""Children in uninterruptible sleep. Kept, because Python complains of a child it forgets."""

_STATE_BY_ERRNO: Final = {
    "ENOENT": State.ABSENT,
    "ENOTDIR": State.ABSENT,
    "ENODEV": State.ABSENT,
    "ENXIO": State.ABSENT,
    "EACCES": State.DENIED,
    "EPERM": State.DENIED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One thing for the reader: an operation of `reader_child` and its argument."""

    operation: str
    argument: str = ""
    limit_bytes: int = 262_144
    limit_s: float = ITEM_LIMIT_S

    @property
    def key(self) -> str:
        """The observation's key in a snapshot."""
        return f"{self.operation}:{self.argument}"


def observe(items: Iterable[Item]) -> dict[str, Observation]:
    """Read all items; one that hangs costs its time limit and nothing else."""
    waiting = list({item.key: item for item in items}.values())
    found: dict[str, Observation] = {}
    for _ in range(_RESTARTS):
        if not waiting:
            break
        finished = _read_until_stuck(waiting, found)
        if finished < len(waiting):
            found[waiting[finished].key] = Observation(state=State.TIME_LIMIT)
        waiting = waiting[finished + 1 :]
    found |= {item.key: Observation(state=State.NOT_RUN) for item in waiting}
    return found


def _read_until_stuck(items: Sequence[Item], found: dict[str, Observation]) -> int:
    """Read items in one child until one hangs; how many were finished."""
    requests = [(item.operation, item.argument, item.limit_bytes) for item in items]
    process = subprocess.Popen(  # noqa: S603 - our own script, no shell
        [sys.executable, "-I", "-S", str(READER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    finished = 0
    try:
        output = _Lines(process)
        _send(process, msgspec.json.encode(requests))
        while finished < len(items):
            line = output.next(items[finished].limit_s)
            if line is None:
                break
            reply = msgspec.json.decode(line)
            if "end" in reply:
                item = items[finished]
                found[item.key] = _observation(reply)
                finished += 1
    finally:
        _end(process)
    return finished


def _send(process: subprocess.Popen[bytes], data: bytes) -> None:
    # The child reads all of its input before it does anything, so this cannot block for long.
    with contextlib.suppress(BrokenPipeError):
        if process.stdin is not None:
            process.stdin.write(data)
            process.stdin.close()


def _observation(reply: Mapping[str, Any]) -> Observation:
    code = reply.get("errno")
    if code is not None:
        return Observation(state=_STATE_BY_ERRNO.get(code, State.FAILED), detail=code)
    return Observation(
        state=State.OK,
        text=without_secrets(str(reply.get("text", ""))),
        truncated=bool(reply.get("truncated", False)),
    )


class _Lines:
    """Lines of a child's output, each within a time limit."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = process.stdout.fileno() if process.stdout is not None else -1
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._descriptor, selectors.EVENT_READ)
        self._buffer = b""

    def next(self, limit_s: float) -> bytes | None:
        """The next line; None when the limit has passed or the child has ended."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                return None
            piece = os.read(self._descriptor, _CHUNK_BYTES)
            if not piece:
                return None
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


# --- programs ------------------------------------------------------------------------------------


def run_tool(
    argv: Sequence[str],
    *,
    limit_s: float = TOOL_LIMIT_S,
    limit_bytes: int = TOOL_BYTES,
    environment: Mapping[str, str] | None = None,
) -> Observation:
    """Run a program without input and keep what it says.

    Its whole process group is killed when the time is over; output beyond `limit_bytes` is dropped.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - fixed argument lists, no shell
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"LC_ALL": "C", "NO_COLOR": "1"} | dict(environment or {}),
            start_new_session=True,
        )
    except FileNotFoundError:
        return Observation(state=State.ABSENT)
    except PermissionError:
        return Observation(state=State.DENIED, detail="EACCES")
    except OSError as error:
        return Observation(state=State.FAILED, detail=error.strerror or type(error).__name__)
    try:
        streams, finished = _drain(process, limit_s, limit_bytes)
    finally:
        code = _end(process)
    text, errors = streams
    state = State.TIME_LIMIT if not finished else State.FAILED if code else State.OK
    return Observation(
        state=state,
        text=without_secrets(text[:limit_bytes].decode("utf-8", "replace")),
        detail=without_secrets(errors[:_ERROR_CHARACTERS].decode("utf-8", "replace").strip()),
        exit_status=code if finished else None,
        truncated=len(text) > limit_bytes,
    )


def _drain(
    process: subprocess.Popen[bytes], limit_s: float, limit_bytes: int
) -> tuple[tuple[bytes, bytes], bool]:
    """Standard output and error, and whether the program ended in time.

    A program has ended when it says so or when both streams are closed; a grandchild that keeps
    them open does not make us wait.
    """
    deadline = time.monotonic() + limit_s
    kept = {"out": b"", "err": b""}
    open_streams = 0
    with selectors.DefaultSelector() as selector:
        for name, stream in (("out", process.stdout), ("err", process.stderr)):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, name)
                open_streams += 1
        while open_streams and (left := deadline - time.monotonic()) > 0:
            ready = selector.select(min(left, 0.2))
            if not ready and process.poll() is not None:
                break
            for key, _ in ready:
                piece = os.read(key.fd, _CHUNK_BYTES)
                if not piece:
                    selector.unregister(key.fileobj)
                    open_streams -= 1
                elif len(kept[key.data]) <= limit_bytes:
                    kept[key.data] += piece
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))
    return (kept["out"], kept["err"]), process.returncode is not None


def _end(process: subprocess.Popen[bytes]) -> int | None:
    """Kill the group and reap the leader; None when it cannot be ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        return process.wait(_REAP_S)
    except subprocess.TimeoutExpired:
        _left_behind.append(process)
        return None
