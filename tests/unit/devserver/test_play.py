"""Playing: which bytes a scenario sends, and when. No sockets here."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import msgspec
import pytest

from heavylift.devserver.play import (
    Action,
    Asked,
    Step,
    Turn,
    asked,
    choose,
    script,
    steps,
    token_times,
    whole_at_s,
)
from heavylift.devserver.render import ChatDialect, Dialect, MessagesDialect, Script
from heavylift.devserver.scenario import (
    Fault,
    FaultKind,
    Pace,
    Reply,
    Scenario,
    ToolCall,
    decode,
)

ASKED = Asked(number=1, model="m", prompt="hello you", stream=True, max_tokens=None)


def never() -> float:
    """A chance that moves nothing."""
    return 0.5


def turn(reply: Reply, fault: Fault | None = None, pace: Pace | None = None) -> Turn:
    """A turn at full speed unless said otherwise."""
    return Turn(pace=pace or Pace(), reply=reply, fault=fault)


def played(
    what: Turn,
    dialect: Callable[[Script], Dialect] = ChatDialect,
    request: Asked = ASKED,
) -> list[Step]:
    """All steps of a streamed turn."""
    laid_out = script(what, request)
    return list(steps(what, laid_out, dialect(laid_out), never))


def documents(sent: list[Step]) -> list[Any]:
    """The JSON documents of the events, without `[DONE]`."""
    stream = b"".join(step.encode(None) for step in sent)
    lines = [line[6:] for line in stream.splitlines() if line.startswith(b"data: ")]
    return [msgspec.json.decode(line) for line in lines if line != b"[DONE]"]


def test_a_stream_is_role_tokens_finish_usage_done() -> None:
    """The order in which engines send, with one chunk per token."""
    sent = played(turn(Reply(tokens=2)))
    chunks = documents(sent)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks[1:3]] == [
        "lift ",
        "the ",
    ]
    assert chunks[3]["choices"][0]["finish_reason"] == "stop"
    assert chunks[4]["choices"] == []
    assert chunks[4]["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 2,
        "total_tokens": 4,
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert sent[-1].encode(None) == b"data: [DONE]\n\n"


def test_role_and_usage_can_be_left_out() -> None:
    """Servers exist that send neither."""
    chunks = documents(played(turn(Reply(tokens=1, role_first=False, usage=False))))
    assert len(chunks) == 2


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("reasoning_content", {"reasoning_content"}),
        ("reasoning", {"reasoning"}),
        ("both", {"reasoning_content", "reasoning"}),
    ],
)
def test_thinking_goes_where_the_scenario_says(name: Any, keys: set[str]) -> None:
    """Both names of the field, or both at once."""
    reply = Reply(reasoning="hm", tokens=0, reasoning_field=name)
    assert set(documents(played(turn(reply)))[1]["choices"][0]["delta"]) == keys


def test_a_stamp_is_a_field_of_the_chunk() -> None:
    """The time of sending is inside the JSON, with microseconds."""
    step = played(turn(Reply(tokens=1)))[1]
    assert msgspec.json.decode(step.encode(12.3456789)[6:])["x-sent-at"] == 12.345679


def test_tokens_are_due_by_the_pace() -> None:
    """First token, then equal intervals; the role-only chunk at once."""
    sent = played(turn(Reply(tokens=3), pace=Pace(ttft_s=0.5, interval_s=0.1)))
    assert [step.at_s for step in sent[:4]] == pytest.approx([0.0, 0.5, 0.6, 0.7])
    assert sent[-1].at_s == pytest.approx(0.7)


def test_jitter_moves_each_gap_by_at_most_its_size() -> None:
    """Chance 0 is the shortest gap and chance near 1 the longest; none is negative."""
    pace = Pace(interval_s=0.1, jitter_s=0.04)
    assert list(islice(token_times(pace, lambda: 0.0), 3)) == pytest.approx([0, 0.06, 0.12])
    assert list(islice(token_times(pace, lambda: 1.0), 3)) == pytest.approx([0, 0.14, 0.28])
    wild = Pace(interval_s=0.1, jitter_s=1.0)
    assert list(islice(token_times(wild, lambda: 0.0), 3)) == [0.0, 0.0, 0.0]


def test_a_whole_reply_is_due_with_its_last_token() -> None:
    """Not streaming does not make an engine faster."""
    what = turn(Reply(tokens=3), pace=Pace(ttft_s=0.5, interval_s=0.1))
    assert whole_at_s(what, script(what, ASKED), never) == pytest.approx(0.7)
    empty = turn(Reply(tokens=0), pace=Pace(ttft_s=0.5))
    assert whole_at_s(empty, script(empty, ASKED), never) == 0.5


def test_tool_arguments_are_sent_in_pieces() -> None:
    """The first piece has id and name; the pieces join to the arguments."""
    reply = Reply(tool_calls=(ToolCall(name="f", arguments='{"city": "Paris"}', pieces=3),))
    chunks = documents(played(turn(reply)))[1:-2]
    calls = [chunk["choices"][0]["delta"]["tool_calls"][0] for chunk in chunks]
    assert calls[0]["id"] == "call-0"
    assert calls[0]["function"]["name"] == "f"
    assert "id" not in calls[1]
    assert "".join(call["function"]["arguments"] for call in calls) == '{"city": "Paris"}'
    assert len(calls) == 3


def test_a_tool_call_without_arguments_is_one_piece() -> None:
    """An empty argument text still names the tool."""
    what = turn(Reply(tool_calls=(ToolCall(name="f", arguments=""),)))
    assert len(script(what, ASKED).pieces) == 1


def test_the_token_limit_cuts_and_says_length() -> None:
    """As an engine does; a finish reason of the scenario outranks it."""
    short = Asked(number=1, model="m", prompt="", stream=True, max_tokens=2)
    assert script(turn(Reply(tokens=5)), short).finish_reason == "length"
    assert script(turn(Reply(tokens=5)), short).completion_tokens == 2
    assert script(turn(Reply(tokens=2)), short).finish_reason == "stop"
    assert script(turn(Reply(tokens=5, finish_reason="abort")), short).finish_reason == "abort"


@pytest.mark.parametrize(
    ("fault", "ending"),
    [
        (Fault(kind=FaultKind.BREAK_STREAM, after_tokens=1), Action.ABORT),
        (Fault(kind=FaultKind.HANG, after_tokens=1), Action.HANG),
    ],
)
def test_a_stream_can_end_in_the_middle(fault: Fault, ending: Action) -> None:
    """After the given tokens, a reset or silence."""
    sent = played(turn(Reply(tokens=3), fault))
    assert [step.action for step in sent] == [Action.SEND, Action.SEND, ending]


def test_an_error_event_may_be_followed_by_done() -> None:
    """What routers do, and what honest servers do not."""
    for done in (True, False):
        fault = Fault(kind=FaultKind.ERROR_EVENT, after_tokens=1, message="gone", done=done)
        sent = played(turn(Reply(tokens=3), fault))
        assert documents(sent)[-1]["error"]["message"] == "gone"
        assert (sent[-1].encode(None) == b"data: [DONE]\n\n") is done


def test_garbage_and_half_chunks_are_not_json() -> None:
    """The last event cannot be decoded."""
    for kind in (FaultKind.GARBAGE, FaultKind.TRUNCATED_JSON):
        sent = played(turn(Reply(tokens=3), Fault(kind=kind, after_tokens=1)))
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            msgspec.json.decode(sent[-1].encode(None).removeprefix(b"data: "))


def test_a_withheld_finish_reason_still_ends_with_done() -> None:
    """The failure that looks most like success."""
    sent = played(turn(Reply(tokens=1), Fault(kind=FaultKind.NO_FINISH_REASON)))
    reasons = [choice["finish_reason"] for chunk in documents(sent) for choice in chunk["choices"]]
    assert set(reasons) == {None}
    assert sent[-1].encode(None) == b"data: [DONE]\n\n"


def test_split_events_are_cut_inside_a_character_and_lose_nothing() -> None:
    """The halves join to what is sent without the fault, and the cut is inside a character."""
    reply = Reply(text="四 字", stamps=False)
    plain = b"".join(step.encode(None) for step in played(turn(reply)))
    cut = played(turn(reply, Fault(kind=FaultKind.SPLIT_UTF8)))
    assert b"".join(step.encode(None) for step in cut) == plain
    with pytest.raises(UnicodeDecodeError):
        cut[2].encode(None).decode()


def test_a_fault_that_never_comes_changes_nothing() -> None:
    """A break after more tokens than there are is no break."""
    fault = Fault(kind=FaultKind.BREAK_STREAM, after_tokens=99)
    assert played(turn(Reply(tokens=1), fault)) == played(turn(Reply(tokens=1)))


def test_the_messages_protocol_opens_and_closes_blocks() -> None:
    """Thinking, text and a call are blocks of their own, in order, under rising indices."""
    reply = Reply(
        reasoning="hm",
        text="ok",
        tool_calls=(ToolCall(name="f", arguments="{}", pieces=1),),
    )
    events = documents(played(turn(reply), MessagesDialect))
    assert [event["type"] for event in events] == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_stop"] * 3,
        "message_delta",
        "message_stop",
    ]
    starts = [event for event in events if event["type"] == "content_block_start"]
    assert [event["index"] for event in starts] == [0, 1, 2]
    assert [event["content_block"]["type"] for event in starts] == ["thinking", "text", "tool_use"]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[-2]["usage"] == {"output_tokens": 3}


def test_the_messages_protocol_can_fail_too() -> None:
    """An error event, a withheld stop reason and an unusual one."""
    fault = Fault(kind=FaultKind.ERROR_EVENT, after_tokens=1, done=True)
    assert documents(played(turn(Reply(tokens=2), fault), MessagesDialect))[-1]["type"] == "error"
    withheld = turn(Reply(tokens=1), Fault(kind=FaultKind.NO_FINISH_REASON))
    kinds = [event["type"] for event in documents(played(withheld, MessagesDialect))]
    assert "message_delta" not in kinds
    for reason in ("abort", None):
        fault_ = None if reason else Fault(kind=FaultKind.NO_FINISH_REASON)
        laid_out = script(turn(Reply(finish_reason=reason), fault_), ASKED)
        assert MessagesDialect(laid_out).whole()["stop_reason"] == reason


def test_tokens_of_one_kind_share_a_block() -> None:
    """Two words of text are two deltas between one start and one stop."""
    kinds = [event["type"] for event in documents(played(turn(Reply(tokens=2)), MessagesDialect))]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 1
    assert kinds.count("content_block_delta") == 2


def test_an_empty_message_has_no_blocks() -> None:
    """Nothing is opened that is not filled."""
    events = documents(played(turn(Reply(tokens=0)), MessagesDialect))
    assert [event["type"] for event in events] == ["message_start", "message_delta", "message_stop"]


def test_a_whole_reply_holds_the_same_in_both_protocols() -> None:
    """Thinking, text and calls; arguments that are no JSON cannot be an object."""
    reply = Reply(
        reasoning="hm",
        text="ok",
        tool_calls=(ToolCall(name="f"), ToolCall(name="g", arguments="{")),
    )
    laid_out = script(turn(reply), ASKED)
    message = ChatDialect(laid_out).whole()["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("ok", "hm")
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ["{}", "{"]
    content = MessagesDialect(laid_out).whole()["content"]
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use", "tool_use"]
    assert content[3]["input"] == {}
    bare = script(turn(Reply(tokens=0, usage=False)), ASKED)
    assert "usage" not in ChatDialect(bare).whole()
    assert MessagesDialect(bare).whole()["content"] == []


def test_the_first_rule_that_covers_a_request_decides() -> None:
    """Later rules do not add to it; without one the file's own pace and reply hold."""
    scenario = decode(
        "[[rule]]\nmatch = { first = 2, last = 2 }\nreply = { tokens = 1 }\n"
        "[[rule]]\nmatch = { first = 2 }\nreply = { tokens = 2 }\n",
        "x.toml",
    )

    def tokens(number: int) -> int:
        request = Asked(number=number, model="m", prompt="", stream=True, max_tokens=None)
        return choose(scenario, request).reply.tokens

    assert [tokens(number) for number in (1, 2, 3)] == [16, 1, 2]
    assert choose(Scenario(), ASKED).fault is None


@pytest.mark.parametrize(
    ("body", "prompt", "stream", "limit"),
    [
        ({"model": "m", "messages": [{"content": "one two"}]}, "one two", False, None),
        (
            {"model": "m", "messages": [{"content": "a"}, {"content": "b"}], "stream": True},
            "a\nb",
            True,
            None,
        ),
        (
            {
                "model": "m",
                "system": "s",
                "max_tokens": 5,
                "messages": [
                    {"content": [{"type": "text", "text": "a"}, {"type": "image_url"}, 5]}
                ],
            },
            "s\na  ",
            False,
            5,
        ),
        (
            {"model": "m", "messages": [], "max_tokens": 5, "max_completion_tokens": 6},
            "",
            False,
            6,
        ),
    ],
)
def test_a_request_is_read_in_either_protocol(
    body: dict[str, Any], prompt: str, *, stream: bool, limit: int | None
) -> None:
    """Text of all messages and parts, the stream flag, either name of the limit."""
    request = asked(body, 4)
    assert request == Asked(number=4, model="m", prompt=prompt, stream=stream, max_tokens=limit)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"model": "m"},
        {"model": 5, "messages": []},
        {"model": "m", "messages": [], "max_tokens": "many"},
    ],
)
def test_what_is_no_request_is_none(body: Any) -> None:
    """The server answers 400 to these."""
    assert asked(body, 1) is None


def test_jitter_is_the_same_for_the_same_seed() -> None:
    """Two servers of one scenario pause alike; another seed pauses otherwise."""
    pace = Pace(interval_s=0.15, jitter_s=0.15)

    def times(seed: int) -> list[float]:
        return list(islice(token_times(pace, Random(seed).random), 5))

    assert times(1) == times(1)
    assert times(1) != times(2)
