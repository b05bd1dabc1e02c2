"""Server-sent events: bytes in, events out, whatever the chunking.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from heavylift.errors import HeavyliftError

DEFAULT_LIMIT_BYTES: Final = 16 * 2**20
"""Largest event accepted. A tool call may arrive as one delta of some hundred kilobytes."""

_BOM: Final = b"\xef\xbb\xbf"
_LF: Final = 0x0A


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event. `data` stays bytes: the JSON decoder checks the UTF-8 itself.

    A Struct and not a dataclass because one is made per token and this one costs half.
    """

    data: bytes
    name: str = "message"


class Parser:
    """Incremental parser of one stream. The events do not depend on how the bytes are cut."""

    def __init__(self, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        """`limit_bytes` bounds the data of one event plus the line being read."""
        self._limit = limit_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = ""
        self._at_start = True
        self._skip_lf = False

    @property
    def pending(self) -> bool:
        """True when the bytes so far end inside an event: at the end of a stream, a broken one."""
        return bool(self._line or self._data)

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Events completed by `chunk`. To be run to its end before the next call.

        Raises WIRE001 when an event is larger than the limit; the events before it come first.
        """
        if not chunk:
            return
        # A CR ends its line at once, without waiting to see whether an LF belongs to it: a
        # server that pauses between the two must not delay an event.
        if self._skip_lf and chunk[0] == _LF:
            chunk = chunk[1:]
        self._skip_lf = chunk.endswith(b"\r")
        for piece in chunk.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            if self._data_bytes + len(self._line) + len(line) > self._limit:
                raise HeavyliftError("WIRE001", {"limit_bytes": self._limit})
            if len(line) == len(piece):
                self._line += line
                continue
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            event = self._end_line(line)
            if event is not None:
                yield event

    def _end_line(self, line: bytes) -> Event | None:
        if self._at_start:
            line = line.removeprefix(_BOM)
            self._at_start = False
        if not line:
            return self._dispatch()
        # A comment (": keep-alive") has an empty field name and falls through.
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> Event | None:
        data, name = self._data, self._name
        self._name = ""
        if not data:
            return None
        self._data = []
        self._data_bytes = 0
        return Event(data=b"\n".join(data), name=name or "message")
