"""What servers in the field do to a good reply: one way for each defect. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from heavylift.devserver.scenario import Defect, Reply

Body = Mapping[str, Any]

_LEAK: Final = "<|close|>message<|sep|>"


def spoilt(reply: Reply, defect: Defect, body: Body) -> Reply:
    """The reply to a request with this body, with the defect; as it is where it shows elsewhere."""
    spoil = _SPOILERS.get(defect)
    return reply if spoil is None else spoil(reply, body)


def _leak(reply: Reply, body: Body) -> Reply:
    if not body.get("stream"):
        return reply
    return msgspec.structs.replace(reply, text=f"{reply.text}{_LEAK}")


def _twice(reply: Reply, _: Body) -> Reply:
    return msgspec.structs.replace(reply, text=f"{reply.text}{reply.text}")


def _tools_in_thinking(reply: Reply, _: Body) -> Reply:
    """The thinking is never closed: the parser takes the call for more of it."""
    if not reply.tool_calls:
        return reply
    said = "".join(
        f'<|open|>tools<|sep|><|open|>call tool="{call.name}"<|sep|>{call.arguments}'
        for call in reply.tool_calls
    )
    return msgspec.structs.replace(
        reply, reasoning=f"{reply.reasoning or ''}{said}", tool_calls=(), text=""
    )


def _tools_as_text(reply: Reply, _: Body) -> Reply:
    if not reply.tool_calls:
        return reply
    call = reply.tool_calls[0]
    text = f'{{"name": "{call.name}", "arguments": {call.arguments}}}'
    return msgspec.structs.replace(reply, tool_calls=(), text=text)


def _tools_lost(reply: Reply, _: Body) -> Reply:
    if not reply.tool_calls:
        return reply
    return msgspec.structs.replace(reply, tool_calls=(), text="", finish_reason="tool_calls")


def _arguments_untyped(reply: Reply, _: Body) -> Reply:
    """Every value becomes text, as from a parser that does not look at the schema."""
    calls = []
    for call in reply.tool_calls:
        values = msgspec.json.decode(call.arguments, type=dict[str, Any])
        texts = {name: msgspec.json.encode(value).decode() for name, value in values.items()}
        arguments = msgspec.json.encode(texts).decode()
        calls.append(msgspec.structs.replace(call, arguments=arguments))
    return msgspec.structs.replace(reply, tool_calls=tuple(calls))


def _arguments_broken(reply: Reply, _: Body) -> Reply:
    calls = tuple(
        msgspec.structs.replace(call, arguments=call.arguments[:-1]) for call in reply.tool_calls
    )
    return msgspec.structs.replace(reply, tool_calls=calls)


def _thinking_in_text(reply: Reply, _: Body) -> Reply:
    if not reply.reasoning:
        return reply
    text = f"<think>{reply.reasoning}</think>{reply.text}"
    return msgspec.structs.replace(reply, text=text, reasoning=None)


def _no_thinking(reply: Reply, _: Body) -> Reply:
    return msgspec.structs.replace(reply, reasoning=None)


def _cut_thinking_as_text(reply: Reply, body: Body) -> Reply:
    limit = body.get("max_tokens")
    words = len((reply.reasoning or "").split())
    if limit is None or limit > words:
        return reply
    return msgspec.structs.replace(reply, text=reply.reasoning, reasoning=None)


def _mangled(reply: Reply, _: Body) -> Reply:
    text = (reply.text or "").encode("ascii", "replace").decode().replace("?", "\ufffd")
    return msgspec.structs.replace(reply, text=text)


def _exclaiming(reply: Reply, _: Body) -> Reply:
    return msgspec.structs.replace(reply, text="!" * 64)


def _json_ignored(reply: Reply, body: Body) -> Reply:
    if "response_format" not in body:
        return reply
    return msgspec.structs.replace(reply, text=f"Here is what you asked for: {reply.text}")


def _stream_loses_end(reply: Reply, body: Body) -> Reply:
    if not body.get("stream"):
        return reply
    return msgspec.structs.replace(reply, text=(reply.text or "")[:-1])


_SPOILERS: Final[dict[Defect, Callable[[Reply, Body], Reply]]] = {
    Defect.MARKER_LEAK: _leak,
    Defect.ANSWER_TWICE: _twice,
    Defect.THINK_CLOSE_OMITTED: _tools_in_thinking,
    Defect.TOOL_CALL_AS_TEXT: _tools_as_text,
    Defect.TOOL_CALLS_LOST: _tools_lost,
    Defect.TOOL_ARGUMENTS_UNTYPED: _arguments_untyped,
    Defect.TOOL_ARGUMENTS_BROKEN: _arguments_broken,
    Defect.THINKING_IN_TEXT: _thinking_in_text,
    Defect.THINKING_MISSING: _no_thinking,
    Defect.CUT_THINKING_AS_TEXT: _cut_thinking_as_text,
    Defect.UNICODE_MANGLED: _mangled,
    Defect.EXCLAMATIONS: _exclaiming,
    Defect.JSON_IGNORED: _json_ignored,
    Defect.STREAM_LOSES_END: _stream_loses_end,
}
