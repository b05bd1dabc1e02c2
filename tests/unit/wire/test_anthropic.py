"""The messages protocol: requests out, events and replies in."""

from __future__ import annotations

import msgspec
import pytest

from heavylift.errors import HeavyliftError
from heavylift.wire.anthropic import decode_event, decode_reply, encode_request
from heavylift.wire.failures import ErrorBody
from heavylift.wire.reply import Accumulator, ChatRequest, Delta, ToolCall, ToolPart, Usage

# The event sequence of the protocol's own documentation, shortened.
STREAM = (
    (
        b'{"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
        b'"content":[],"stop_reason":null,"usage":{"input_tokens":25,"output_tokens":1,'
        b'"cache_read_input_tokens":20}}}'
    ),
    b'{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}',
    b'{"type":"content_block_stop","index":0}',
    b'{"type":"ping"}',
    b'{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}',
    b'{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello"}}',
    b'{"type":"content_block_stop","index":1}',
    (
        b'{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t",'
        b'"name":"f","input":{}}}'
    ),
    (
        b'{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta",'
        b'"partial_json":"{\\"x\\": 1}"}}'
    ),
    b'{"type":"content_block_stop","index":2}',
    b'{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":15}}',
    b'{"type":"message_stop"}',
)


def test_the_documented_stream_gives_one_reply() -> None:
    """Thinking, text, a tool call, the mapped stop reason and the usage of both ends."""
    accumulator = Accumulator()
    for data in STREAM:
        accumulator.add(decode_event(data))
    reply = accumulator.reply()
    assert (reply.reasoning, reply.text) == ("hm", "Hello")
    assert reply.tool_calls == (ToolCall(id="t", name="f", arguments='{"x": 1}'),)
    assert reply.finish_reason == "tool_calls"
    assert reply.usage == Usage(prompt_tokens=25, completion_tokens=15, cached_tokens=20)
    assert reply.failure is None


def test_starts_and_pings_are_no_tokens() -> None:
    """The clock of the first token runs until the first delta with content."""
    tokens = [decode_event(data).is_token for data in STREAM]
    assert tokens.index(True) == 2
    assert decode_event(STREAM[0]).is_role_only


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"something_new","delta":{"type":"text_delta","text":"x"}}',
        b'{"type":"message_start"}',
        b'{"type":"content_block_start","index":0}',
        b'{"type":"content_block_delta","index":0}',
        b'{"type":"message_delta"}',
    ],
)
def test_unknown_and_hollow_events_add_nothing(data: bytes) -> None:
    """The protocol asks clients to pass over what they do not know."""
    assert decode_event(data) == Delta()


def test_a_start_may_come_without_usage() -> None:
    """Compatible servers leave it out."""
    assert decode_event(b'{"type":"message_start","message":{"role":"assistant"}}') == Delta(
        role="assistant"
    )


def test_an_error_event_is_an_error() -> None:
    """`overloaded_error` inside a stream, and an error without its object."""
    event = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    assert decode_event(event).error == ErrorBody(message="Overloaded", type="overloaded_error")
    assert decode_event(b'{"type":"error"}').error is not None


def test_a_whole_reply_is_one_delta() -> None:
    """Content blocks become thinking, text and calls; input becomes JSON text."""
    data = (
        b'{"type":"message","role":"assistant","content":[{"type":"thinking","thinking":"hm"},'
        b'{"type":"text","text":"Hello"},{"type":"tool_use","id":"t","name":"f",'
        b'"input":{"x":1}}],"stop_reason":"end_turn","usage":{"input_tokens":3}}'
    )
    assert decode_reply(data) == Delta(
        role="assistant",
        text="Hello",
        reasoning="hm",
        tool_calls=(ToolPart(index=2, id="t", name="f", arguments='{"x":1}'),),
        finish_reason="stop",
        usage=Usage(prompt_tokens=3),
    )
    error = decode_reply(b'{"type":"error","error":{"type":"t","message":"m"}}')
    assert error == Delta(error=ErrorBody(message="m", type="t"))
    assert decode_reply(b'{"type":"message"}') == Delta()


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"type":5}', b"<html>"])
def test_anything_else_is_an_error_with_its_reason(data: bytes) -> None:
    """WIRE002, for events and replies alike."""
    for decode in (decode_event, decode_reply):
        with pytest.raises(HeavyliftError) as caught:
            decode(data)
        assert caught.value.code == "WIRE002"


def test_a_request_moves_system_messages_to_their_field() -> None:
    """The protocol has no system role and requires a token limit."""
    request = ChatRequest(
        model="m",
        messages=(
            {"role": "system", "content": "be brief"},
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "hi"},
        ),
    )
    assert msgspec.json.decode(encode_request(request)) == {
        "model": "m",
        "system": "be brief\nbe kind",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 4096,
        "stream": True,
    }
    plain = ChatRequest(model="m", messages=request.messages[2:], stream=False, max_tokens=3)
    assert msgspec.json.decode(encode_request(plain)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 3,
    }
