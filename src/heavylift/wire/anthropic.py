"""The messages protocol: requests to bytes, events and replies to deltas.

Source: https://docs.anthropic.com/en/api/messages-streaming.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.wire.failures import UNDECODABLE, error_of
from heavylift.wire.reply import ChatRequest, Delta, ToolPart, Usage

PATH: Final = "/v1/messages"
VERSION: Final = "2023-06-01"

_DEFAULT_MAX_TOKENS: Final = 4096
"""The protocol requires a limit; this one is taken when the request states none."""

# Stop reasons in the words of the other protocol; unknown ones pass unchanged.
_FINISH: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class _Block(msgspec.Struct):
    """A content block, or the delta of one: told apart by `type`, with the fields of its kind."""

    type: str | None = None
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    stop_reason: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Message(msgspec.Struct):
    role: str | None = None
    content: list[_Block] = msgspec.field(default_factory=list)
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    type: str
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Block | None = None
    usage: _Usage | None = None
    error: Any = None
    sent_at: float | None = msgspec.field(name="x-sent-at", default=None)


class _Reply(_Message, kw_only=True):
    type: str


_EVENT: Final = msgspec.json.Decoder(_Event)
_REPLY: Final = msgspec.json.Decoder(_Reply)


def encode_request(request: ChatRequest) -> bytes:
    """The body of a request. System messages move to the field the protocol has for them."""
    system = [message["content"] for message in request.messages if message["role"] == "system"]
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [message for message in request.messages if message["role"] != "system"],
        "max_tokens": request.max_tokens or _DEFAULT_MAX_TOKENS,
    }
    if system:
        body["system"] = "\n".join(system)
    if request.stream:
        body["stream"] = True
    return msgspec.json.encode(body | dict(request.extra))


def decode_event(data: bytes) -> Delta:
    """The delta of one event. Events that add nothing, and unknown ones, give an empty delta.

    Raises WIRE002 when it is not an event.
    """
    event = _decoded(_EVENT, data)
    if event.type == "error":
        return Delta(error=error_of({"type": "error", "error": event.error}))
    usage = None if event.usage is None else _usage(event.usage)
    if event.type == "message_start" and event.message is not None:
        started = event.message
        return Delta(
            role=started.role,
            usage=None if started.usage is None else _usage(started.usage),
            sent_at=event.sent_at,
        )
    if event.type == "content_block_start" and event.content_block is not None:
        return _block(event.content_block, event.index, event.sent_at)
    if event.type == "content_block_delta" and event.delta is not None:
        return _block_delta(event.delta, event.index, event.sent_at)
    if event.type == "message_delta" and event.delta is not None:
        return Delta(
            finish_reason=_finish(event.delta.stop_reason), usage=usage, sent_at=event.sent_at
        )
    return Delta(sent_at=event.sent_at)


def decode_reply(data: bytes) -> Delta:
    """A whole reply as one delta. Raises WIRE002 when it is neither a reply nor an error."""
    reply = _decoded(_REPLY, data)
    if reply.type == "error":
        return Delta(error=error_of(msgspec.json.decode(data)))
    blocks = reply.content
    return Delta(
        role=reply.role,
        text="".join(block.text for block in blocks),
        reasoning="".join(block.thinking for block in blocks),
        tool_calls=tuple(
            ToolPart(
                index=position,
                id=block.id,
                name=block.name,
                arguments=msgspec.json.encode(block.input).decode(),
            )
            for position, block in enumerate(blocks)
            if block.type == "tool_use"
        ),
        finish_reason=_finish(reply.stop_reason),
        usage=None if reply.usage is None else _usage(reply.usage),
    )


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except UNDECODABLE as problem:
        raise HeavyliftError("WIRE002", {"detail": str(problem)}) from problem


def _block(block: _Block, index: int | None, sent_at: float | None) -> Delta:
    if block.type == "tool_use":
        part = ToolPart(index=index, id=block.id, name=block.name)
        return Delta(tool_calls=(part,), sent_at=sent_at)
    return Delta(text=block.text, reasoning=block.thinking, sent_at=sent_at)


def _block_delta(delta: _Block, index: int | None, sent_at: float | None) -> Delta:
    if delta.type == "input_json_delta":
        part = ToolPart(index=index, arguments=delta.partial_json)
        return Delta(tool_calls=(part,), sent_at=sent_at)
    return Delta(text=delta.text, reasoning=delta.thinking, sent_at=sent_at)


def _finish(stop_reason: str | None) -> str | None:
    return None if stop_reason is None else _FINISH.get(stop_reason, stop_reason)


def _usage(usage: _Usage) -> Usage:
    return Usage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_input_tokens,
    )
