"""The responses protocol: requests out, events and replies in."""

from __future__ import annotations

import msgspec
import pytest

from heavylift.errors import HeavyliftError
from heavylift.wire.failures import Failure
from heavylift.wire.reply import Accumulator, ChatRequest, Reply, ToolCall, Usage
from heavylift.wire.responses import decode_event, decode_reply, encode_request

USAGE = (
    b'"usage":{"input_tokens":25,"output_tokens":15,"input_tokens_details":{"cached_tokens":20},'
    b'"output_tokens_details":{"reasoning_tokens":4}}'
)
CALL = b'{"type":"function_call","call_id":"t","name":"f","arguments":"{\\"x\\": 1}"}'
# The event sequence of the protocol's documentation, shortened; the thinking as engines send it.
STREAM = (
    b'{"type":"response.created","response":{"id":"r","status":"in_progress","output":[]}}',
    b'{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning"}}',
    b'{"type":"response.reasoning_text.delta","output_index":0,"delta":"hm"}',
    b'{"type":"response.output_item.added","output_index":1,"item":{"type":"message"}}',
    b'{"type":"response.output_text.delta","output_index":1,"delta":"Hello"}',
    b'{"type":"response.output_text.done","output_index":1,"text":"Hello"}',
    (
        b'{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call",'
        b'"call_id":"t","name":"f","arguments":""}}'
    ),
    (b'{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\\"x\\": 1}"}'),
    b'{"type":"response.completed","response":{"status":"completed","output":[%b],%b}}'
    % (CALL, USAGE),
)


def joined(*events: bytes) -> Reply:
    """The reply that these events make."""
    accumulator = Accumulator()
    for data in events:
        accumulator.add(decode_event(data))
    return accumulator.reply()


def test_the_documented_stream_gives_one_reply() -> None:
    """Thinking, text once, a tool call, the usage; the texts of `done` events are no more text."""
    reply = joined(*STREAM)
    assert (reply.reasoning, reply.text) == ("hm", "Hello")
    assert reply.tool_calls == (ToolCall(id="t", name="f", arguments='{"x": 1}'),)
    assert reply.finish_reason == "tool_calls"
    assert reply.usage == Usage(
        prompt_tokens=25, completion_tokens=15, cached_tokens=20, reasoning_tokens=4
    )
    assert reply.failure is None


def test_a_whole_reply_is_read_like_its_stream() -> None:
    """The same parts in one document."""
    document = (
        b'{"status":"completed","output":[{"type":"reasoning","summary":[],"content":'
        b'[{"type":"reasoning_text","text":"hm"}]},{"type":"message","content":'
        b'[{"type":"output_text","text":"Hello"}]},%b],%b}' % (CALL, USAGE)
    )
    accumulator = Accumulator()
    accumulator.add(decode_reply(document))
    whole, streamed = accumulator.reply(), joined(*STREAM)
    assert (whole.text, whole.reasoning, whole.tool_calls, whole.usage) == (
        streamed.text, streamed.reasoning, streamed.tool_calls, streamed.usage,
    )  # fmt: skip


def test_a_stream_without_its_last_event_has_no_finish_reason() -> None:
    """This protocol has no `[DONE]`; the end must be said."""
    assert joined(*STREAM[:5]).failure is Failure.MISSING_FINISH_REASON


@pytest.mark.parametrize(
    "event",
    [
        b'{"type":"error","code":"server_error","message":"broken"}',
        b'{"type":"error","error":{"message":"broken"}}',
        b'{"type":"response.failed","response":{"status":"failed","error":{"message":"broken"}}}',
    ],
)
def test_errors_in_a_stream_are_errors(event: bytes) -> None:
    """In each of the shapes that there are."""
    reply = joined(event)
    assert reply.failure is Failure.STREAM_ERROR_EVENT
    assert reply.error is not None
    assert reply.error.message == "broken"


def test_an_answer_cut_at_its_length_says_so() -> None:
    """In the words of the chat protocol."""
    event = (
        b'{"type":"response.incomplete","response":{"status":"incomplete","output":[],'
        b'"incomplete_details":{"reason":"max_output_tokens"}}}'
    )
    assert joined(STREAM[4], event).finish_reason == "length"


def test_messages_become_items() -> None:
    """Thinking and calls go back as items of their own; tools and forms take their flat shape."""
    request = ChatRequest(
        model="m",
        messages=(
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:x"}},
            ]},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
                {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "t", "content": "4"},
            {"role": "assistant", "content": "four"},
            {"role": "assistant", "content": [{"type": "text", "text": "five"}]},
        ),
        max_tokens=9,
        extra={
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        },
    )  # fmt: skip
    body = msgspec.json.decode(encode_request(request))
    assert body["max_output_tokens"] == 9
    assert body["stream"] is True
    assert [item.get("type", item.get("role")) for item in body["input"]] == [
        "system", "user", "reasoning", "function_call", "function_call_output",
        "message", "message",
    ]  # fmt: skip
    # llama.cpp takes an earlier answer only as it was given out, with every field.
    said, in_parts = body["input"][5:]
    assert (said["role"], said["status"]) == ("assistant", "completed")
    assert said["content"] == [{"type": "output_text", "text": "four", "annotations": []}]
    assert in_parts["content"][0]["text"] == "five"
    assert body["input"][1]["content"][1] == {"type": "input_image", "image_url": "data:x"}
    assert body["tools"] == [{"type": "function", "name": "f", "parameters": {}}]
    assert body["text"]["format"] == {"type": "json_schema", "name": "n", "schema": {}}
    assert "response_format" not in body


@pytest.mark.parametrize("data", [b"not json", b"[]", b'{"output": 3}', b"{}"])
def test_what_is_no_reply_is_an_error(data: bytes) -> None:
    """A document of another kind as well."""
    with pytest.raises(HeavyliftError, match="WIRE002"):
        decode_reply(data)
