"""The chat completions protocol: requests to bytes, chunks and replies to deltas.

Source: https://platform.openai.com/docs/api-reference/chat, and what engines send beside it
(`reasoning_content`, `reasoning`, errors inside streams).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.wire.failures import UNDECODABLE, ErrorBody, error_of
from heavylift.wire.reply import ChatRequest, Delta, Reply, ToolPart, Usage

PATH: Final = "/v1/chat/completions"
DONE: Final = b"[DONE]"
SENT_AT: Final = "x-sent-at"
"""Field of a chunk in which a scripted server writes when it sent it (monotonic seconds)."""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    """A delta of a chunk or the message of a whole reply: the fields are the same."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    index: int
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Document(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    sent_at: float | None = msgspec.field(name=SENT_AT, default=None)


_DECODER: Final = msgspec.json.Decoder(_Document)


def encode_request(request: ChatRequest) -> bytes:
    """The body of a request."""
    body: dict[str, Any] = {"model": request.model, "messages": request.messages}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(body | dict(request.extra))


def decode(data: bytes) -> Delta:
    """The delta of one chunk, or of a whole reply (the message as one delta).

    Only the first choice is read: who asks for several reads the body. Raises WIRE002 when it is
    neither a chunk, a reply nor an error.
    """
    try:
        document = _DECODER.decode(data)
    except UNDECODABLE as problem:
        raise HeavyliftError("WIRE002", {"detail": str(problem)}) from problem
    if document.error is not None:
        return Delta(error=_error(document.error), sent_at=document.sent_at)
    if document.choices is None:
        return _without_choices(data)
    usage = None if document.usage is None else _usage(document.usage)
    for choice in document.choices:
        if choice.index == 0:
            return _delta(choice, usage, document.sent_at)
    return Delta(usage=usage, sent_at=document.sent_at)


def as_message(reply: Reply) -> dict[str, Any]:
    """The assistant message that gives a reply back to the model in the next turn.

    Reasoning and tool calls go back unchanged: models that keep their thinking across turns
    answer worse without it.
    """
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in reply.tool_calls
        ]
    return message


def _without_choices(data: bytes) -> Delta:
    # The flat error shape and a framework's {"detail": …} have no `error` field.
    try:
        error = error_of(msgspec.json.decode(data))
    except UNDECODABLE as problem:
        # A key that no field has is passed over unread, also one that is no text.
        raise HeavyliftError("WIRE002", {"detail": str(problem)}) from problem
    if error is None:
        raise HeavyliftError("WIRE002", {"detail": "choices"})
    return Delta(error=error)


def _error(value: Any) -> ErrorBody:
    error = error_of({"error": value})
    if error is None:
        raise HeavyliftError("WIRE002", {"detail": "error"})
    return error


def _delta(choice: _Choice, usage: Usage | None, sent_at: float | None) -> Delta:
    message = choice.delta or choice.message
    if message is None:
        return Delta(finish_reason=choice.finish_reason, usage=usage, sent_at=sent_at)
    return Delta(
        text=message.content or "",
        # Engines that are renaming the field send both, with the same text.
        reasoning=message.reasoning_content or message.reasoning or "",
        tool_calls=tuple(map(_tool_part, message.tool_calls)) if message.tool_calls else (),
        finish_reason=choice.finish_reason,
        usage=usage,
        role=message.role,
        sent_at=sent_at,
    )


def _tool_part(call: _ToolCall) -> ToolPart:
    function = call.function or _Function()
    return ToolPart(
        index=call.index,
        id=call.id,
        name=function.name,
        arguments=function.arguments or "",
    )


def _usage(usage: _Usage) -> Usage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=None if prompt is None else prompt.cached_tokens,
        reasoning_tokens=None if completion is None else completion.reasoning_tokens,
    )
