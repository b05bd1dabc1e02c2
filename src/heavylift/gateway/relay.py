"""The relay of a streamed reply: what goes to the client of what an engine sent. Bytes in, bytes
out; no event is held back, and every event leaves whole.

Most events carry a piece of the answer and nothing else. They are recognised by what they do not
contain and pass without being parsed; an event that may tell the end, the usage or an error is
read. A stream that ends without saying why generation ended is broken, whatever else it said, and
its `[DONE]` does not reach the client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.gateway.request import Dialect
from heavylift.wire import anthropic, openai, sse
from heavylift.wire.failures import Failure, error_of
from heavylift.wire.reply import Usage

_LIMIT_BYTES: Final = sse.DEFAULT_LIMIT_BYTES

# What an event that is more than a piece of the answer contains. Inside JSON strings quotation
# marks are escaped, so that text of the model cannot look like a field.
_MARKS: Final[dict[Dialect, tuple[bytes, ...]]] = {
    Dialect.CHAT: (b'"usage"', b'"finish_reason":"', b'"finish_reason": "', b'"error"', b"[DONE]"),
    Dialect.MESSAGES: (b"message_", b'"error"', b'"usage"'),
    Dialect.RESPONSES: (
        b"response.completed",
        b"response.incomplete",
        b"response.failed",
        b"error",
    ),
}
_MARKS[Dialect.COMPLETIONS] = _MARKS[Dialect.CHAT]
# What every event that carries a piece of the answer contains.
_PIECE: Final[dict[Dialect, bytes]] = {
    Dialect.CHAT: b'"delta"',
    Dialect.COMPLETIONS: b'"text"',
    Dialect.MESSAGES: b'"content_block_delta"',
    Dialect.RESPONSES: b'.delta"',
}
_NO_USAGE: Final = (b'"usage":null', b'"usage": null')


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What one event says. `token` = it carries something generated."""

    token: bool = False
    finished: bool = False
    failed: bool = False
    usage: Usage | None = None
    usage_only: bool = False
    done: bool = False


class Relay:
    """The relay of one stream. `feed` it to the end, then ask `failure`."""

    def __init__(self, dialect: Dialect, *, wants_usage: bool) -> None:
        self._dialect = dialect
        self._marks = _MARKS[dialect]
        self._piece = _PIECE[dialect]
        self._wants_usage = wants_usage
        self._rest = b""
        self.tokens = 0
        """Events that carried something generated."""
        self.usage: Usage | None = None
        self.finished = False
        self.failed = False
        self.malformed = False
        """Something came that is no part of the protocol; nothing after it passes."""

    def feed(self, chunk: bytes) -> bytes:
        """The bytes to send on now."""
        if self._rest:
            chunk = self._rest + chunk
        end = _end_of_events(chunk)
        if end == 0:
            self.malformed = self.malformed or len(chunk) > _LIMIT_BYTES
            self._rest = chunk
            return b""
        self._rest = chunk[end:]
        events = chunk if end == len(chunk) else chunk[:end]
        if self.tokens and not self.malformed:
            pieces = events.count(self._piece)
            if pieces == (events.count(b"\n\n") or -1) and not self._is_special(events):
                self.tokens += pieces
                return events
        return b"".join(event for event in _split(events) if self._passes(event))

    def failure(self) -> Failure | None:
        """What is wrong with a stream that ended in good order; None = it was whole."""
        if self.malformed:
            return Failure.MALFORMED
        if self.failed:
            return Failure.STREAM_ERROR_EVENT
        if self._rest.strip():
            return Failure.STREAM_BROKEN
        return None if self.finished else Failure.MISSING_FINISH_REASON

    def _is_special(self, events: bytes) -> bool:
        # A loop and not `any(...)`: a generator costs more than the searches it makes.
        for mark in self._marks:
            if mark in events:
                break
        else:
            return False
        for mark in _NO_USAGE:  # of engines that repeat an empty usage in every chunk
            events = events.replace(mark, b"")
        return any(mark in events for mark in self._marks)

    def _passes(self, event: bytes) -> bool:
        """Take note of an event; False when it is not for the client."""
        if self.malformed:
            return False
        try:
            data = b"".join(part.data for part in sse.Parser().feed(event))
            if not data:  # a comment keeps the connection alive
                return True
            note = NOTES[self._dialect](data)
        except HeavyliftError:
            self.malformed = True
            return False
        self.tokens += note.token
        self.finished = self.finished or note.finished
        self.failed = self.failed or note.failed
        if note.usage is not None:
            self.usage = note.usage if self.usage is None else self.usage.merged(note.usage)
        if note.done:
            return self.finished and not self.failed
        return self._wants_usage or not note.usage_only


def _end_of_events(data: bytes) -> int:
    """Where the last whole event ends; 0 = none is whole."""
    end = data.rfind(b"\n\n")
    carriage = data.rfind(b"\r\n\r\n")
    return max(end + 2 if end >= 0 else 0, carriage + 4 if carriage >= 0 else 0)


def _split(events: bytes) -> list[bytes]:
    """The events one by one, each with its end."""
    if b"\r" in events:
        events = events.replace(b"\r\n", b"\n")
    return [event + b"\n\n" for event in events.split(b"\n\n") if event.strip()]


# --- what events say ----------------------------------------------------------------------------


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    text: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None


class _ResponsesUsage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _ResponsesBody(msgspec.Struct):
    usage: _ResponsesUsage | None = None


class _ResponsesEvent(msgspec.Struct):
    type: str = ""
    response: _ResponsesBody | None = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_RESPONSES: Final = msgspec.json.Decoder(_ResponsesEvent)


def _chat_note(data: bytes) -> Note:
    if data == openai.DONE:
        return Note(done=True)
    delta = openai.decode(data)
    if delta.error is not None:
        return Note(failed=True)
    choices = _decoded(_CHUNK, data).choices or []
    finished = any(choice.finish_reason is not None for choice in choices)
    text = any(choice.text for choice in choices)  # completions
    return Note(
        token=delta.is_token or text,
        finished=finished,
        usage=delta.usage,
        usage_only=delta.usage is not None and not choices,
    )


def _messages_note(data: bytes) -> Note:
    delta = anthropic.decode_event(data)
    return Note(
        token=delta.is_token,
        finished=delta.finish_reason is not None,
        failed=delta.error is not None,
        usage=delta.usage,
    )


def _responses_note(data: bytes) -> Note:
    if data == openai.DONE:  # not part of this protocol, but sent
        return Note(done=True)
    event = _decoded(_RESPONSES, data)
    failed = event.type in ("error", "response.failed")
    usage = None if event.response is None else event.response.usage
    return Note(
        token=event.type.endswith(".delta"),
        finished=event.type in ("response.completed", "response.incomplete"),
        failed=failed,
        usage=None if usage is None else _usage(usage),
    )


NOTES: Final = {
    Dialect.CHAT: _chat_note,
    Dialect.COMPLETIONS: _chat_note,
    Dialect.MESSAGES: _messages_note,
    Dialect.RESPONSES: _responses_note,
}


def _usage(usage: _ResponsesUsage) -> Usage:
    return Usage(prompt_tokens=usage.input_tokens, completion_tokens=usage.output_tokens)


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise HeavyliftError("WIRE002", {"detail": str(problem)}) from problem


# --- whole replies -------------------------------------------------------------------------------


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _AnyUsage(msgspec.Struct):
    """Usage in the words of any of the protocols."""

    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Whole(msgspec.Struct):
    usage: _AnyUsage | None = None
    error: Any = None


_WHOLE: Final = msgspec.json.Decoder(_Whole)


def usage_of(body: bytes) -> Usage | None:
    """The usage in a whole reply of any protocol; None when it states none.

    Raises WIRE002 when it is not a JSON object, or an error under the name of success.
    """
    whole = _decoded(_WHOLE, body)
    if whole.error is not None and error_of({"error": whole.error}) is not None:
        raise HeavyliftError("WIRE002", {"detail": "error"})
    usage = whole.usage
    if usage is None:
        return None
    prompt = usage.input_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    completion = usage.output_tokens if usage.completion_tokens is None else usage.completion_tokens
    details = usage.prompt_tokens_details or usage.input_tokens_details
    cached = usage.cache_read_input_tokens if details is None else details.cached_tokens
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)


def error_event(dialect: Dialect, message: str, failure: Failure) -> bytes:
    """The event that ends a broken stream, in the words on which official clients raise."""
    error = {"message": message, "type": "upstream_error", "code": str(failure), "param": None}
    if dialect is Dialect.MESSAGES:
        body: dict[str, Any] = {
            "type": "error",
            "error": {"type": "api_error", "message": message},
        }
        return b"event: error\ndata: " + msgspec.json.encode(body) + b"\n\n"
    if dialect is Dialect.RESPONSES:
        body = {**error, "type": "error", "error": error}
        return b"event: error\ndata: " + msgspec.json.encode(body) + b"\n\n"
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"
