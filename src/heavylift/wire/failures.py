"""Failure classes: the one vocabulary for what can go wrong with a request, and how to tell.

Used by clients, batches, verification, benchmarks and the gateway alike, so that the same failure
has the same name in a journal, a report and an audit line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the JSON decoder raises on a document that is none, or is nested beyond all reason."""


class Failure(StrEnum):
    """What went wrong with one request, as far as the client can tell."""

    CONNECT = "connect"
    """No connection: refused, unreachable, no such name, TLS."""
    TIMEOUT_CONNECT = "timeout_connect"
    TIMEOUT_FIRST_BYTE = "timeout_first_byte"
    """The request was written; no byte of a reply came in time."""
    TIMEOUT_GAP = "timeout_gap"
    """The reply began and then paused for too long."""
    TIMEOUT_TOTAL = "timeout_total"
    DISCONNECTED = "disconnected"
    """The connection ended after the request was written and before any reply."""
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    """Refused at the door for want of room, or because the engine is still loading."""
    SERVER_ERROR = "server_error"
    GATEWAY_TIMEOUT = "gateway_timeout"
    """A proxy gave up waiting; the engine behind it may still be at work."""
    BAD_REQUEST = "bad_request"
    CONTEXT_TOO_LONG = "context_too_long"
    NOT_FOUND = "not_found"
    UNAUTHORISED = "unauthorised"
    STREAM_BROKEN = "stream_broken"
    """The connection ended inside the reply."""
    STREAM_ERROR_EVENT = "stream_error_event"
    """An error object arrived inside a reply that had begun with success."""
    MISSING_FINISH_REASON = "missing_finish_reason"
    """The stream ended in good order, `[DONE]` or not, and never said why generation ended."""
    ABORTED = "aborted"
    """The engine says that it gave the generation up."""
    MALFORMED = "malformed"
    """Not what the protocol allows: content type, JSON, shape, encoding, size."""
    EMPTY = "empty"
    """A finished reply without an answer."""
    TRUNCATED_THINKING = "truncated_thinking"
    """The token limit was reached while the model was still thinking: no answer."""
    TOOL_CALLS_LOST = "tool_calls_lost"
    """The finish reason speaks of tool calls and there are none."""
    TOOL_ARGUMENTS_INVALID = "tool_arguments_invalid"
    """A tool call whose arguments are not a JSON object."""
    MARKER_LEAK = "marker_leak"
    """Text holds a marker of the model's own format that a parser should have taken away."""
    SCHEMA_INVALID = "schema_invalid"
    """An answer that is not the JSON that the request's schema asks for."""

    @property
    def retriable(self) -> bool:
        """True when the same request may well succeed if it is simply sent again.

        Not true of a timed-out generation: sent again unchanged it takes as long again.
        """
        return self in _RETRIABLE

    @property
    def counts_as_sent(self) -> bool:
        """True when an engine may have worked on the request.

        Sending it again may pay for it twice, so it counts against the attempts of its row; the
        others are no attempt at all (nobody was there, or the door was shut).
        """
        return self not in _NEVER_STARTED


_RETRIABLE: Final = frozenset(
    {
        Failure.CONNECT,
        Failure.TIMEOUT_CONNECT,
        Failure.DISCONNECTED,
        Failure.RATE_LIMITED,
        Failure.OVERLOADED,
        Failure.SERVER_ERROR,
        Failure.GATEWAY_TIMEOUT,
        Failure.STREAM_BROKEN,
        Failure.STREAM_ERROR_EVENT,
        Failure.MISSING_FINISH_REASON,
        Failure.ABORTED,
        Failure.MALFORMED,
        Failure.EMPTY,
        Failure.TOOL_CALLS_LOST,
        Failure.TOOL_ARGUMENTS_INVALID,
        Failure.MARKER_LEAK,
    }
)

_NEVER_STARTED: Final = frozenset(
    {
        Failure.CONNECT,
        Failure.TIMEOUT_CONNECT,
        Failure.RATE_LIMITED,
        Failure.OVERLOADED,
        Failure.BAD_REQUEST,
        Failure.CONTEXT_TOO_LONG,
        Failure.NOT_FOUND,
        Failure.UNAUTHORISED,
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorBody:
    """What a server said about a failure, from whichever of the usual shapes it used."""

    message: str
    type: str | None = None
    code: str | None = None


class Phase(StrEnum):
    """How far a request had come."""

    CONNECT = "connect"
    """Nothing written yet."""
    WAITING = "waiting"
    """Request written, no byte of the reply seen."""
    READING = "reading"
    """Inside the reply."""


class TransportFault(StrEnum):
    """What the connection did, whichever library reported it."""

    TIMEOUT = "timeout"
    LOST = "lost"
    PROTOCOL = "protocol"
    """Bytes that are not HTTP, or not what their own headers announced."""


def classify_transport(fault: TransportFault, phase: Phase) -> Failure:
    """The failure class of a connection that went wrong in `phase`."""
    if fault is TransportFault.PROTOCOL:
        return Failure.MALFORMED
    if fault is TransportFault.TIMEOUT:
        return {
            Phase.CONNECT: Failure.TIMEOUT_CONNECT,
            Phase.WAITING: Failure.TIMEOUT_FIRST_BYTE,
            Phase.READING: Failure.TIMEOUT_GAP,
        }[phase]
    return {
        Phase.CONNECT: Failure.CONNECT,
        Phase.WAITING: Failure.DISCONNECTED,
        Phase.READING: Failure.STREAM_BROKEN,
    }[phase]


# 529 is in use for "overloaded" beside 503; 408 means the server tired of waiting for the request.
_BY_STATUS: Final = {
    401: Failure.UNAUTHORISED,
    403: Failure.UNAUTHORISED,
    404: Failure.NOT_FOUND,
    405: Failure.NOT_FOUND,
    408: Failure.OVERLOADED,
    429: Failure.RATE_LIMITED,
    503: Failure.OVERLOADED,
    504: Failure.GATEWAY_TIMEOUT,
    529: Failure.OVERLOADED,
}

# How engines put it; each phrase is met in a test with the sentence it is from.
_TOO_LONG: Final = re.compile(
    r"maximum context length|model's context length|exceeds? the available context size"
    r"|context (?:length|size|window) (?:is )?exceeded|prompt is too long|max_model_len",
    re.IGNORECASE,
)
_TOO_LONG_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})


def classify_status(status: int, error: ErrorBody | None = None) -> Failure | None:
    """The failure class of an HTTP status and the error it came with; None for 2xx."""
    if 200 <= status < 300:  # noqa: PLR2004 - the 2xx class
        return None
    if status in (400, 413, 422, 500) and error is not None and is_context_too_long(error):
        return Failure.CONTEXT_TOO_LONG
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:  # noqa: PLR2004 - the 5xx class
        return Failure.SERVER_ERROR
    # A redirect is not followed: the key would go where it was not meant to.
    return Failure.BAD_REQUEST if status >= 400 else Failure.MALFORMED  # noqa: PLR2004 - 4xx


def classify_stream_error(error: ErrorBody) -> Failure:
    """The failure class of an error object inside a reply that had begun with success."""
    if is_context_too_long(error):
        return Failure.CONTEXT_TOO_LONG
    return Failure.STREAM_ERROR_EVENT


def is_context_too_long(error: ErrorBody) -> bool:
    """True when the server says that the prompt does not fit."""
    named = {error.code, error.type} & _TOO_LONG_CODES
    return bool(named) or _TOO_LONG.search(error.message) is not None


def decode_error(body: bytes) -> ErrorBody | None:
    """The error in a reply's body, None when it is not JSON or holds no error."""
    try:
        document = msgspec.json.decode(body)
    except UNDECODABLE:
        return None
    return error_of(document)


def error_of(document: Any) -> ErrorBody | None:
    """The error in a decoded document.

    Shapes met in the field: `{"error": {"message": …}}`, `{"error": "…"}`, the flat
    `{"object": "error", "message": …}`, and a web framework's `{"detail": …}`.
    """
    if not isinstance(document, Mapping):
        return None
    error = document.get("error")
    if isinstance(error, Mapping):
        return _error_body(error)
    if isinstance(error, str):
        return ErrorBody(message=error)
    if document.get("object") == "error" or document.get("type") == "error":
        return _error_body(document)
    detail = document.get("detail")
    if detail is not None:
        return ErrorBody(message=detail if isinstance(detail, str) else _compact(detail))
    return None


def _error_body(error: Mapping[str, Any]) -> ErrorBody:
    message = error.get("message")
    return ErrorBody(
        message=message if isinstance(message, str) else _compact(error),
        type=_optional_text(error.get("type")),
        code=_optional_text(error.get("code")),
    )


def _optional_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def retry_after_s(value: str | None, *, now_epoch_s: float) -> float | None:
    """Seconds to wait from a `Retry-After` header (seconds or an HTTP date); None if unusable.

    `now_epoch_s` is the wall clock. Never negative: a date that has passed means now.
    """
    if value is None:
        return None
    text = value.strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, when.timestamp() - now_epoch_s)
