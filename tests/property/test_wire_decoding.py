"""The rules of the wire: no document breaks the decoders, and no cutting changes a reply."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.wire import anthropic, openai
from heavylift.wire.failures import Failure, decode_error
from heavylift.wire.reply import Accumulator, Delta, ToolPart

_KEYS = st.sampled_from(
    [
        *("choices", "delta", "message", "content", "reasoning", "reasoning_content", "role"),
        *("tool_calls", "function", "arguments", "name", "id", "index", "finish_reason", "usage"),
        *("prompt_tokens", "completion_tokens_details", "error", "type", "code", "object"),
        *("detail", "content_block", "text", "partial_json", "input", "stop_reason", "x-sent-at"),
    ]
)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["error", "message_start", "content_block_delta", "message_delta", "tool_use"]),
)
_DOCUMENTS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=4)),
    max_leaves=20,
)
_DEEP = (b"[" * 50_000, b'{"x":' * 50_000, b'{"error":' + b"[" * 50_000 + b"]" * 50_000 + b"}")


def _decodes_or_says_why(data: bytes) -> None:
    for decode in (openai.decode, anthropic.decode_event, anthropic.decode_reply):
        try:
            assert isinstance(decode(data), Delta)
        except HeavyliftError as error:
            assert error.code == "WIRE002"  # noqa: PT017 - either outcome is right
    decode_error(data)


@settings(max_examples=300)
@given(_DOCUMENTS)
def test_any_document_is_a_delta_or_a_coded_error(document: Any) -> None:
    """Documents of the protocols' own keys in any disorder raise nothing but WIRE002."""
    _decodes_or_says_why(msgspec.json.encode(document))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_delta_or_a_coded_error(data: bytes) -> None:
    """Nor do bytes that are nothing at all."""
    _decodes_or_says_why(data)


@pytest.mark.parametrize("data", _DEEP, ids=["lists", "objects", "error"])
def test_nesting_beyond_reason_is_a_coded_error(data: bytes) -> None:
    """A document a hundred thousand brackets deep does not end the program."""
    _decodes_or_says_why(data)


@given(st.text(), st.text(), st.dictionaries(st.text(), st.integers()), st.data())
def test_a_reply_does_not_depend_on_how_it_was_cut(
    reasoning: str, text: str, arguments: dict[str, int], data: st.DataObject
) -> None:
    """Thinking, answer and arguments cut anywhere into deltas join to what was generated."""
    encoded = msgspec.json.encode(arguments).decode()

    def cut(whole: str) -> list[str]:
        place = data.draw(st.integers(0, len(whole)))
        return [whole[:place], whole[place:]]

    accumulator = Accumulator()
    for piece in cut(reasoning):
        accumulator.add(Delta(reasoning=piece))
    for piece in cut(text):
        accumulator.add(Delta(text=piece))
    for number, piece in enumerate(cut(encoded)):
        part = ToolPart(index=0, id=None if number else "a", arguments=piece)
        accumulator.add(Delta(tool_calls=(part,)))
    accumulator.add(Delta(finish_reason="tool_calls"))
    reply = accumulator.reply()
    assert (reply.reasoning, reply.text) == (reasoning, text)
    assert [call.arguments for call in reply.tool_calls] == [encoded]
    assert reply.failure is None


def test_every_failure_class_says_what_follows_from_it() -> None:
    """What never reached an engine is retried for free or never; nothing is both never-sent and
    dependent on what an engine generated.
    """
    about_replies = {
        Failure.STREAM_BROKEN,
        Failure.STREAM_ERROR_EVENT,
        Failure.MISSING_FINISH_REASON,
        Failure.ABORTED,
        Failure.MALFORMED,
        Failure.EMPTY,
        Failure.TRUNCATED_THINKING,
        Failure.TOOL_CALLS_LOST,
        Failure.TOOL_ARGUMENTS_INVALID,
        Failure.MARKER_LEAK,
    }
    assert all(failure.counts_as_sent for failure in about_replies)
    timeouts = {failure for failure in Failure if failure.startswith("timeout_")}
    assert {failure for failure in timeouts if failure.retriable} == {Failure.TIMEOUT_CONNECT}
