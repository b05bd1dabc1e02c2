"""The responses protocol: requests to bytes, events and replies to deltas.

Source: https://platform.openai.com/docs/api-reference/responses and the Open Responses
specification, which engines follow for the thinking (`reasoning_text`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.wire.failures import UNDECODABLE, ErrorBody, error_of
from heavylift.wire.reply import ChatRequest, Delta, ToolPart, Usage

PATH: Final = "/v1/responses"

_TEXT: Final = "response.output_text.delta"
_THINKING: Final = frozenset(
    {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}
)
_ENDINGS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Part(msgspec.Struct):
    """A part of an item's content or of its summary."""

    text: str = ""


class _Item(msgspec.Struct):
    """An item of the output: a message, a piece of thinking, a call."""

    type: str
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    call_id: str | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None


class _ReasoningTokens(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _CachedTokens | None = None
    output_tokens_details: _ReasoningTokens | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    output: list[_Item] = msgspec.field(default_factory=list)
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None


class _Event(msgspec.Struct):
    type: str
    delta: Any = None
    output_index: int | None = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None
    message: str | None = None
    code: str | None = None
    sent_at: float | None = msgspec.field(name="x-sent-at", default=None)


_EVENT: Final = msgspec.json.Decoder(_Event)
_REPLY: Final = msgspec.json.Decoder(_Response)


def encode_request(request: ChatRequest) -> bytes:
    """The body of a request: messages become items, tools and forms take this protocol's shape."""
    items = [item for message in request.messages for item in _items(message)]
    body: dict[str, Any] = {"model": request.model, "input": items}
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if request.stream:
        body["stream"] = True
    extra = dict(request.extra)
    if "tools" in extra:
        extra["tools"] = [{"type": "function", **tool["function"]} for tool in extra["tools"]]
    if "response_format" in extra:
        form = extra.pop("response_format")
        extra["text"] = {"format": {"type": form["type"], **form.get("json_schema", {})}}
    return msgspec.json.encode(body | extra)


def decode_event(data: bytes) -> Delta:
    """The delta of one event. Events that add nothing, and unknown ones, give an empty delta.

    Raises WIRE002 when it is not an event.
    """
    event: _Event = _decoded(_EVENT, data)
    at = event.sent_at
    if event.type == _TEXT:
        return Delta(text=str(event.delta or ""), sent_at=at)
    if event.type in _THINKING:
        return Delta(reasoning=str(event.delta or ""), sent_at=at)
    if event.type == "error":
        return Delta(error=_error(data, event))
    if event.type in _ENDINGS and event.response is not None:
        response = event.response
        return Delta(
            finish_reason=_finish(response),
            usage=_usage(response.usage),
            error=None if response.error is None else error_of({"error": response.error}),
            sent_at=at,
        )
    return Delta(tool_calls=_call_part(event), sent_at=at)


def decode_reply(data: bytes) -> Delta:
    """A whole reply as one delta. Raises WIRE002 when it is neither a reply nor an error."""
    response: _Response = _decoded(_REPLY, data)
    if response.error is not None:
        return Delta(error=error_of({"error": response.error}))
    if response.status is None:
        raise HeavyliftError("WIRE002", {"detail": "status"})
    said = [item for item in response.output if item.type == "message"]
    thought = [item for item in response.output if item.type == "reasoning"]
    return Delta(
        role="assistant",
        text="".join(_joined(item.content) for item in said),
        reasoning="".join(_joined(item.content) or _joined(item.summary) for item in thought),
        tool_calls=tuple(
            ToolPart(
                index=place,
                id=item.call_id or item.id,
                name=item.name,
                arguments=item.arguments,
            )
            for place, item in enumerate(response.output)
            if item.type == "function_call"
        ),
        finish_reason=_finish(response),
        usage=_usage(response.usage),
    )


# --- messages as items ---------------------------------------------------------------------------


def _items(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        yield {
            "type": "function_call_output",
            "call_id": message.get("tool_call_id"),
            "output": content,
        }
        return
    if message.get("reasoning_content"):
        part = {"type": "reasoning_text", "text": message["reasoning_content"]}
        yield {"type": "reasoning", "summary": [], "content": [part]}
    if content and role == "assistant":
        # Whole, as the server gave it out: engines take a short form from users alone.
        said = content if isinstance(content, str) else _plain(content)
        part = {"type": "output_text", "text": said, "annotations": []}
        item = {"type": "message", "id": _EARLIER, "status": "completed"}
        yield {**item, "role": role, "content": [part]}
    elif content:
        yield {"role": role, "content": _parts(content)}
    for call in message.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


_EARLIER: Final = "msg_earlier"
"""The id of an answer that goes back: the protocol wants one, and nobody refers to it."""


def _plain(content: Any) -> str:
    return "".join(part.get("text", "") for part in content)


def _parts(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [
        {"type": "input_image", "image_url": part["image_url"]["url"]}
        if part.get("type") == "image_url"
        else {"type": "input_text", "text": part.get("text", "")}
        for part in content
    ]


# --- parts of replies ----------------------------------------------------------------------------


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except UNDECODABLE as problem:
        raise HeavyliftError("WIRE002", {"detail": str(problem)}) from problem


def _call_part(event: _Event) -> tuple[ToolPart, ...]:
    """What an event adds to a call; nothing for events about anything else."""
    item, index = event.item, event.output_index
    if event.type == "response.function_call_arguments.delta":
        return (ToolPart(index=index, arguments=str(event.delta or "")),)
    begins = event.type == "response.output_item.added"
    if not begins or item is None or item.type != "function_call":
        return ()
    return (ToolPart(index=index, id=item.call_id or item.id, name=item.name),)


def _error(data: bytes, event: _Event) -> ErrorBody | None:
    nested = error_of({"error": event.error})
    return nested or ErrorBody(message=event.message or data.decode("utf-8", "replace"))


def _finish(response: _Response) -> str | None:
    """The end in the words of the chat protocol."""
    if response.status == "completed":
        calls = any(item.type == "function_call" for item in response.output)
        return "tool_calls" if calls else "stop"
    if response.status == "incomplete":
        details = response.incomplete_details
        reason = None if details is None else details.reason
        return "length" if reason in ("max_output_tokens", "max_tokens", None) else reason
    return response.status


def _joined(parts: list[_Part] | None) -> str:
    return "".join(part.text for part in parts or ())


def _usage(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    prompt, output = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        cached_tokens=None if prompt is None else prompt.cached_tokens,
        reasoning_tokens=None if output is None else output.reasoning_tokens,
    )
