"""Lines of a batch's files: the spooled input, the two outputs, the log. PURE.

Source: https://platform.openai.com/docs/guides/batch (input, output and error lines).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from heavylift.wire.failures import ErrorBody
from heavylift.wire.timing import Latency


class InputLine(msgspec.Struct):
    """A line of the spooled input. The body stays bytes: it is sent as it lies there."""

    custom_id: str
    url: str
    body: msgspec.Raw
    method: str = "POST"


class OutputLine(msgspec.Struct):
    """A line of an output file, as far as an audit and an export read it."""

    custom_id: str
    response: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class IdLine(msgspec.Struct):
    """A line of an output file, of which only the row's name is read."""

    custom_id: str


INPUT: Final = msgspec.json.Decoder(InputLine)
OUTPUT: Final = msgspec.json.Decoder(OutputLine)
ID: Final = msgspec.json.Decoder(IdLine)
_ENCODER: Final = msgspec.json.Encoder()
_NULL: Final = msgspec.Raw(b"null")
_NEWLINES: Final = (b"\n", b"\r")


def row_key(url: str, body: bytes, template_version: str) -> bytes:
    """What makes a row the same work: route, body with its model, template version.

    How it is sent (endpoint, concurrency, clocks) is not part of it.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in (url.encode(), template_version.encode(), body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def input_line(custom_id: str, url: str, body: bytes) -> bytes:
    """A line of the spooled input."""
    line = InputLine(custom_id=custom_id, url=url, body=msgspec.Raw(body))
    return _ENCODER.encode(line) + b"\n"


class _Response(msgspec.Struct):
    status_code: int
    request_id: str
    body: msgspec.Raw


class _Error(msgspec.Struct):
    code: str
    message: str


class _OutputLine(msgspec.Struct):
    id: str
    custom_id: str
    response: _Response | None
    error: _Error | None


def ok_line(row_id: str, custom_id: str, *, status: int, request_id: str, body: bytes) -> bytes:
    """A line of `output.jsonl`: the server's own document inside."""
    response = _Response(status, request_id, msgspec.Raw(one_line(body)))
    return _ENCODER.encode(_OutputLine(row_id, custom_id, response, None)) + b"\n"


def error_line(
    row_id: str,
    custom_id: str,
    *,
    code: str,
    message: str,
    status: int | None,
    request_id: str,
    body: bytes,
) -> bytes:
    """A line of `errors.jsonl`: why, and the reply where there was one."""
    response = None
    if status is not None:
        response = _Response(status, request_id, _as_document(body))
    line = _OutputLine(row_id, custom_id, response, _Error(code, message))
    return _ENCODER.encode(line) + b"\n"


def one_line(document: bytes) -> bytes:
    """A JSON document without line breaks between its tokens."""
    if any(mark in document for mark in _NEWLINES):
        return msgspec.json.format(document, indent=-1)
    return document


def _as_document(body: bytes) -> msgspec.Raw:
    """The body where it is JSON, else its text as a JSON string; null when there is none."""
    if not body:
        return _NULL
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.Raw(_ENCODER.encode(body[:2000].decode("utf-8", "replace")))
    return msgspec.Raw(one_line(body))


class _LogLine(msgspec.Struct, omit_defaults=True):
    """A line of `requests.jsonl`; seconds rounded to tenths of a millisecond."""

    custom_id: str
    line: int
    status: str
    endpoint: str | None
    ended_at: float
    attempts: int
    http_status: int | None = None
    request_id: str | None = None
    connect_s: float | None = None
    first_byte_s: float | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    failures: list[str] | None = None
    error: str | None = None
    kv_use_ratio: float | None = None
    gpu_memory_bytes: tuple[int, ...] | None = None


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the log says of a row beside its name and latency. `gpu_memory_bytes`: in use on each
    GPU of the deployment of ours that serves the endpoint, by number.
    """

    line: int
    status: str
    endpoint: str | None
    ended_at: float
    attempts: int
    http_status: int | None = None
    request_id: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str | None = None
    failures: tuple[str, ...] = ()
    error: ErrorBody | None = None
    kv_use_ratio: float | None = None
    gpu_memory_bytes: tuple[int, ...] | None = None


def log_line(custom_id: str, entry: LogEntry, latency: Latency | None) -> bytes:
    """A line of `requests.jsonl`."""
    parts = latency or Latency()
    return (
        _ENCODER.encode(
            _LogLine(
                custom_id=custom_id,
                line=entry.line,
                status=entry.status,
                endpoint=entry.endpoint,
                ended_at=round(entry.ended_at, 3),
                attempts=entry.attempts,
                http_status=entry.http_status,
                request_id=entry.request_id,
                connect_s=_rounded(parts.connect_s),
                first_byte_s=_rounded(parts.first_byte_s),
                ttft_s=_rounded(parts.ttft_s),
                e2e_s=_rounded(parts.e2e_s),
                prompt_tokens=entry.prompt_tokens or None,
                completion_tokens=entry.completion_tokens or None,
                finish_reason=entry.finish_reason,
                failures=list(entry.failures) or None,
                error=None if entry.error is None else entry.error.message[:500],
                kv_use_ratio=_rounded(entry.kv_use_ratio),
                gpu_memory_bytes=entry.gpu_memory_bytes,
            )
        )
        + b"\n"
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
