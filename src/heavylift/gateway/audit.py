"""The audit: one line of JSON per request, written once, when the request has ended.

Bodies are left out unless asked for, and then go through a redaction first. A line that cannot be
written (a full disk) does not stop the service: it is counted, and the count is the first line
written when there is room again.

With `on_line` lines wait for `flush`, which a thread calls: an append waits for a busy disk too,
and the event loop must not.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from heavylift.errors import HeavyliftError

Redact = Callable[[bytes], bytes]
"""What may be kept of a body. It gets the body as sent and gives back what is written."""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request. Times: `at` is the wall clock (RFC 3339), the others seconds.

    `outcome` is `ok`, a failure class, or why it was refused; `bytes_out` what went to the client.
    """

    at: str
    request_id: str
    outcome: str
    key_id: str | None = None
    key_name: str | None = None
    team: str | None = None
    address: str | None = None
    path: str | None = None
    model: str | None = None
    worker: str | None = None
    attempts: int = 0
    status: int | None = None
    stream: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    estimated: bool = False
    ttft_s: float | None = None
    duration_s: float | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    body: str | None = None


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """So many lines are missing before this one."""

    at: str
    outcome: str = "lines_lost"
    lines: int


class Audit:
    """The file. Several processes may write to it: a line is one appending write."""

    def __init__(self, descriptor: int, *, redact: Redact | None = None) -> None:
        self._descriptor = descriptor
        self._redact = redact
        self._torn = False
        self._waiting: deque[Line] = deque()
        self.on_line: Callable[[], None] = self.flush
        """Called when a line waits."""
        self.lost = 0
        """Lines that could not be written since the last one that could."""

    @property
    def keeps_bodies(self) -> bool:
        """True when bodies are written."""
        return self._redact is not None

    def body(self, content: bytes) -> str | None:
        """What is kept of a body."""
        return None if self._redact is None else self._redact(content).decode("utf-8", "replace")

    def write(self, line: Line) -> None:
        """Take a line; it is appended by the next `flush`."""
        self._waiting.append(line)
        self.on_line()

    def flush(self) -> None:
        """Append the lines that wait. For one thread at a time."""
        while self._waiting:
            self._write(self._waiting.popleft())

    def _write(self, line: Line) -> None:
        if self.lost and self._append(Gap(at=line.at, lines=self.lost)):
            self.lost = 0
        if self.lost or not self._append(line):
            self.lost += 1

    def _append(self, record: msgspec.Struct) -> bool:
        data = msgspec.json.encode(record) + b"\n"
        if self._torn:
            data = b"\n" + data
        try:
            written = os.write(self._descriptor, data)
        except OSError:
            return False
        # A disk that fills up takes half a line: the next one must not continue it.
        self._torn = written < len(data)
        return not self._torn


@contextlib.contextmanager
def open_audit(path: Path, *, redact: Redact | None = None) -> Iterator[Audit]:
    """The audit at `path`, readable by its owner only. Raises GW021 when it cannot be opened."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        detail = problem.strerror or type(problem).__name__
        raise HeavyliftError("GW021", {"path": str(path), "detail": detail}) from problem
    audit = Audit(descriptor, redact=redact)
    try:
        yield audit
    finally:
        audit.flush()
        os.close(descriptor)
