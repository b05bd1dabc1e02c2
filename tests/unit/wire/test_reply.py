"""Replies: joining the pieces, and judging the whole."""

from __future__ import annotations

import pytest

from heavylift.wire.failures import ErrorBody, Failure
from heavylift.wire.reply import Accumulator, Delta, Reply, ToolCall, ToolPart, Usage, judge


def joined(*deltas: Delta) -> Reply:
    """The reply these deltas make."""
    accumulator = Accumulator()
    for delta in deltas:
        accumulator.add(delta)
    return accumulator.reply()


def test_text_and_reasoning_are_joined_apart() -> None:
    """Thinking never enters the answer."""
    reply = joined(
        Delta(role="assistant"),
        Delta(reasoning="let me "),
        Delta(reasoning="think"),
        Delta(text="4"),
        Delta(text="2"),
        Delta(finish_reason="stop"),
    )
    assert (reply.reasoning, reply.text, reply.failure) == ("let me think", "42", None)


def test_tool_calls_are_joined_by_index() -> None:
    """Pieces of two calls that arrive interleaved go to their own call."""
    reply = joined(
        Delta(tool_calls=(ToolPart(index=0, id="a", name="f", arguments='{"x"'),)),
        Delta(tool_calls=(ToolPart(index=1, id="b", name="g", arguments="{"),)),
        Delta(tool_calls=(ToolPart(index=0, arguments=": 1}"), ToolPart(index=1, arguments="}"))),
        Delta(finish_reason="tool_calls"),
    )
    assert reply.tool_calls == (
        ToolCall(id="a", name="f", arguments='{"x": 1}'),
        ToolCall(id="b", name="g", arguments="{}"),
    )
    assert reply.failure is None


def test_a_new_id_begins_a_new_call_whatever_the_index() -> None:
    """Servers that number every call 0, or none, do not glue two calls together."""
    for index in (0, None):
        reply = joined(
            Delta(tool_calls=(ToolPart(index=index, id="a", name="f", arguments="{}"),)),
            Delta(tool_calls=(ToolPart(index=index, id="b", name="g", arguments="{"),)),
            Delta(tool_calls=(ToolPart(index=index, arguments="}"),)),
        )
        assert [call.arguments for call in reply.tool_calls] == ["{}", "{}"]


def test_an_id_that_is_repeated_or_late_continues_its_call() -> None:
    """The same id in every piece, or an id that comes after the name, is one call."""
    reply = joined(
        Delta(tool_calls=(ToolPart(index=0, name="f"),)),
        Delta(tool_calls=(ToolPart(index=0, id="a", arguments="{"),)),
        Delta(tool_calls=(ToolPart(index=0, id="a", arguments="}"),)),
    )
    assert reply.tool_calls == (ToolCall(id="a", name="f", arguments="{}"),)


def test_usage_is_what_was_said_last_of_each_count() -> None:
    """Prompt tokens from the start and completion tokens from the end make one usage."""
    reply = joined(
        Delta(usage=Usage(prompt_tokens=7, completion_tokens=1)),
        Delta(usage=Usage(completion_tokens=9, cached_tokens=3)),
    )
    assert reply.usage == Usage(prompt_tokens=7, completion_tokens=9, cached_tokens=3)


def test_the_transports_word_outranks_ours() -> None:
    """A stream that broke is broken even when the words so far look finished."""
    accumulator = Accumulator()
    accumulator.add(Delta(text="x", finish_reason="stop"))
    error = ErrorBody(message="m")
    reply = accumulator.reply(Failure.STREAM_BROKEN, error)
    assert (reply.failure, reply.error, reply.text) == (Failure.STREAM_BROKEN, error, "x")


def test_done_alone_is_no_success() -> None:
    """`[DONE]` without a finish reason is a failure."""
    accumulator = Accumulator()
    accumulator.add(Delta(text="x"))
    accumulator.done()
    reply = accumulator.reply()
    assert reply.saw_done
    assert reply.failure is Failure.MISSING_FINISH_REASON


def test_an_error_followed_by_done_is_an_error() -> None:
    """What a router sends when its worker dies: an error object, then `[DONE]`."""
    accumulator = Accumulator()
    accumulator.add(Delta(text="x"))
    accumulator.add(Delta(error=ErrorBody(message="worker gone")))
    accumulator.done()
    assert accumulator.reply().failure is Failure.STREAM_ERROR_EVENT


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (Reply(text="x", finish_reason="stop"), None),
        (Reply(text="x", finish_reason="length"), None),
        (Reply(text="x"), Failure.MISSING_FINISH_REASON),
        (Reply(text="x", finish_reason="abort"), Failure.ABORTED),
        (Reply(finish_reason="stop"), Failure.EMPTY),
        (Reply(reasoning="r", finish_reason="stop"), Failure.EMPTY),
        (Reply(reasoning="r", finish_reason="length"), Failure.TRUNCATED_THINKING),
        (Reply(finish_reason="length"), Failure.EMPTY),
        (Reply(text="x", finish_reason="tool_calls"), Failure.TOOL_CALLS_LOST),
        (
            Reply(
                tool_calls=(ToolCall(id="a", name="f", arguments='{"x": '),),
                finish_reason="tool_calls",
            ),
            Failure.TOOL_ARGUMENTS_INVALID,
        ),
        (
            Reply(tool_calls=(ToolCall(id="a", name="f", arguments="[1]"),), finish_reason="stop"),
            Failure.TOOL_ARGUMENTS_INVALID,
        ),
        (
            Reply(tool_calls=(ToolCall(id="a", name="f", arguments=""),), finish_reason="stop"),
            None,
        ),
    ],
)
def test_a_reply_is_judged_by_what_it_holds(reply: Reply, failure: Failure | None) -> None:
    """Each way a complete stream can still be no answer has its class."""
    assert judge(reply) is failure


def test_markers_of_the_format_are_leaks_wherever_they_stand() -> None:
    """A marker in the answer or in the thinking is a leak when the caller names the markers."""
    for reply in (
        Reply(text="4<|close|>", finish_reason="stop"),
        Reply(reasoning="<|close|>", text="4", finish_reason="stop"),
    ):
        assert judge(reply, markers=("<|close|>",)) is Failure.MARKER_LEAK
        assert judge(reply) is None


def test_a_role_only_chunk_is_no_token() -> None:
    """The opening chunk with an empty content does not stop the clock; thinking does."""
    assert Delta(role="assistant").is_role_only
    assert not Delta(role="assistant").is_token
    assert not Delta(role="assistant", text="x").is_role_only
    assert not Delta(role="assistant", finish_reason="stop").is_role_only
    assert Delta(reasoning="x").is_token
    assert not Delta(reasoning="x").is_answer
    assert Delta(tool_calls=(ToolPart(index=0),)).is_answer
