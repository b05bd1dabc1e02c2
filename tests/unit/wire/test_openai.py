"""The chat completions protocol: requests out, chunks and replies in."""

from __future__ import annotations

import msgspec
import pytest

from heavylift.errors import HeavyliftError
from heavylift.wire.failures import ErrorBody
from heavylift.wire.openai import as_message, decode, encode_request
from heavylift.wire.reply import ChatRequest, Delta, Reply, ToolCall, ToolPart, Usage

ASK = ({"role": "user", "content": "2+2?"},)


def chunk(delta: str, rest: str = "") -> bytes:
    """A chunk with this delta."""
    return b'{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":%b%b}]}' % (
        delta.encode(),
        rest.encode(),
    )


def test_a_streamed_request_asks_for_usage() -> None:
    """Without `stream_options` servers do not say how many tokens there were."""
    body = msgspec.json.decode(encode_request(ChatRequest(model="m", messages=ASK)))
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "2+2?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_extra_fields_join_the_body_last() -> None:
    """A caller can set what this module does not know, and override what it does."""
    request = ChatRequest(
        model="m", messages=ASK, stream=False, max_tokens=5, extra={"seed": 1, "max_tokens": 6}
    )
    body = msgspec.json.decode(encode_request(request))
    assert (body["seed"], body["max_tokens"], "stream" in body) == (1, 6, False)


def test_the_role_only_chunk_is_recognised() -> None:
    """The opening chunk carries a role and an empty content."""
    assert decode(chunk('{"role":"assistant","content":""}')).is_role_only


@pytest.mark.parametrize(
    "delta",
    [
        '{"reasoning_content":"hm"}',
        '{"reasoning":"hm"}',
        '{"reasoning_content":"hm","reasoning":"hm"}',
        '{"reasoning_content":null,"reasoning":"hm","content":null}',
    ],
)
def test_reasoning_is_read_under_both_names_and_once(delta: str) -> None:
    """Engines that are renaming the field send both: the text counts once."""
    assert decode(chunk(delta)) == Delta(reasoning="hm")


def test_tool_call_pieces_keep_index_id_and_name() -> None:
    """The first piece names the call, the others continue its arguments."""
    first = decode(
        chunk(
            '{"tool_calls":[{"index":1,"id":"a","type":"function",'
            '"function":{"name":"f","arguments":""}}]}'
        )
    )
    assert first.tool_calls == (ToolPart(index=1, id="a", name="f"),)
    later = decode(chunk('{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]}'))
    assert later.tool_calls == (ToolPart(index=1, arguments="{}"),)
    assert decode(chunk('{"tool_calls":[{"index":1}]}')).tool_calls == (ToolPart(index=1),)


def test_the_finish_chunk_may_have_an_empty_or_no_delta() -> None:
    """Both forms of the last chunk give the finish reason."""
    assert decode(chunk("{}", ',"finish_reason":"stop"')) == Delta(finish_reason="stop")
    bare = b'{"choices":[{"index":0,"finish_reason":"length"}]}'
    assert decode(bare) == Delta(finish_reason="length")


def test_the_usage_chunk_has_no_choices() -> None:
    """Usage comes in a chunk of its own with an empty list of choices."""
    data = (
        b'{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9,"total_tokens":16,'
        b'"prompt_tokens_details":{"cached_tokens":4},'
        b'"completion_tokens_details":{"reasoning_tokens":5}}}'
    )
    usage = Usage(prompt_tokens=7, completion_tokens=9, cached_tokens=4, reasoning_tokens=5)
    assert decode(data) == Delta(usage=usage)
    counts = b'{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9}}'
    assert decode(counts).usage == Usage(prompt_tokens=7, completion_tokens=9)


def test_only_the_first_choice_is_read() -> None:
    """A chunk of another choice adds nothing to the reply."""
    data = b'{"choices":[{"index":1,"delta":{"content":"no"}}]}'
    assert decode(data) == Delta()
    both = (
        b'{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes"}}]}'
    )
    assert decode(both) == Delta(text="yes")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (
            b'{"error":{"message":"m","type":"t","code":500}}',
            ErrorBody(message="m", type="t", code="500"),
        ),
        (b'{"error":"gone"}', ErrorBody(message="gone")),
        (
            b'{"object":"error","message":"m","type":"BadRequestError","code":400}',
            ErrorBody(message="m", type="BadRequestError", code="400"),
        ),
        (b'{"detail":"Not Found"}', ErrorBody(message="Not Found")),
    ],
)
def test_an_error_object_inside_a_stream_is_read(data: bytes, error: ErrorBody) -> None:
    """Errors in the place of a chunk are errors, in all their shapes."""
    assert decode(data) == Delta(error=error)


def test_a_whole_reply_is_one_delta() -> None:
    """A reply that was not streamed has a message where a chunk has a delta."""
    data = (
        b'{"choices":[{"index":0,"message":{"role":"assistant","content":"4",'
        b'"reasoning_content":"hm"},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}'
    )
    assert decode(data) == Delta(
        role="assistant",
        text="4",
        reasoning="hm",
        finish_reason="stop",
        usage=Usage(completion_tokens=2),
    )


def test_the_stamp_of_a_scripted_server_is_read() -> None:
    """The time of sending travels in the chunk."""
    data = b'{"choices":[{"index":0,"delta":{"content":"x"}}],"x-sent-at":12.5}'
    assert decode(data).sent_at == 12.5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[DONE]",
        b"{",
        b"[]",
        b"{}",
        b'"\xff"',
        b'{"choices":[{"delta":{"content":"no index"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":5}}]}',
        b'{"error":5}',
    ],
)
def test_anything_else_is_an_error_with_its_reason(data: bytes) -> None:
    """WIRE002: neither a chunk, a reply nor an error."""
    with pytest.raises(HeavyliftError) as caught:
        decode(data)
    assert caught.value.code == "WIRE002"
    assert caught.value.params["detail"]


def test_a_reply_goes_back_with_its_thinking_and_calls_unchanged() -> None:
    """The next turn gets reasoning, ids and arguments as they came."""
    reply = Reply(
        text="4",
        reasoning="hm",
        tool_calls=(ToolCall(id="a", name="f", arguments='{"x": 1}'),),
    )
    assert as_message(reply) == {
        "role": "assistant",
        "content": "4",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
        ],
    }
    assert as_message(Reply(text="4")) == {"role": "assistant", "content": "4"}
