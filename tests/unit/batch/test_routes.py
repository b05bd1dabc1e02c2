"""Routes: what a reply of each kind says to the policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heavylift.batch import routes
from heavylift.wire.failures import Failure
from heavylift.wire.reply import Reply, Usage


def reading(url: str, document: Any) -> routes.Reading:
    """The reading of a document."""
    return routes.read(url, json.dumps(document).encode())


def test_completions_are_read() -> None:
    """Text, finish reason and tokens; without them, the class of what is wrong."""
    usage = {"prompt_tokens": 3, "completion_tokens": 5}
    good = {"choices": [{"text": "yes", "finish_reason": "stop"}], "usage": usage}
    read = reading(routes.COMPLETIONS, good)
    assert (read.failure, read.text, read.prompt_tokens, read.completion_tokens) == (
        None,
        "yes",
        3,
        5,
    )
    empty = {"choices": [{"text": "", "finish_reason": "stop"}]}
    assert reading(routes.COMPLETIONS, empty).failure is Failure.EMPTY
    unfinished = {"choices": [{"text": "ye"}]}
    assert reading(routes.COMPLETIONS, unfinished).failure is Failure.MISSING_FINISH_REASON


def test_embeddings_are_read() -> None:
    """A vector is an answer; none is not."""
    good = {"data": [{"embedding": [0.1], "index": 0}], "usage": {"prompt_tokens": 2}}
    assert reading(routes.EMBEDDINGS, good) == routes.Reading(prompt_tokens=2)
    assert reading(routes.EMBEDDINGS, {"data": []}).failure is Failure.MALFORMED


def test_responses_are_read() -> None:
    """Answer and reasoning apart; an incomplete one that never left the thinking says so."""
    thinking = {"type": "reasoning", "summary": [{"text": "hm"}]}
    answer = {"type": "message", "content": [{"type": "output_text", "text": "yes"}]}
    usage = {"input_tokens": 3, "output_tokens": 5}
    good = {"status": "completed", "output": [thinking, answer], "usage": usage}
    read = reading(routes.RESPONSES, good)
    assert (read.failure, read.text, read.reasoning) == (None, "yes", "hm")
    assert (read.prompt_tokens, read.completion_tokens) == (3, 5)
    cut = {
        "status": "incomplete",
        "output": [thinking],
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    assert reading(routes.RESPONSES, cut).failure is Failure.TRUNCATED_THINKING
    failed = {"status": "failed", "output": [], "error": {"message": "out of memory"}}
    assert reading(routes.RESPONSES, failed).failure is Failure.STREAM_ERROR_EVENT
    assert reading(routes.COMPLETIONS, {"error": "no"}).failure is Failure.STREAM_ERROR_EVENT
    call = {"status": "completed", "output": [{"type": "function_call"}]}
    assert reading(routes.RESPONSES, call).failure is None


@pytest.mark.parametrize("url", routes.URLS)
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"choices": 3, "data": 3, "output": 3}', b'{"a": "\xff"}']
)
def test_what_is_no_reply_is_malformed(url: str, body: bytes) -> None:
    """Whatever the route, nothing raises and nothing passes."""
    assert routes.read(url, body).failure is Failure.MALFORMED


def test_limits_are_enlarged_where_they_are_stated() -> None:
    """Twice the field that counts, and nothing else changes."""
    body = {"max_tokens": 8, "max_completion_tokens": 10, "seed": 1}
    assert routes.token_limit(routes.CHAT, body) == 10
    assert routes.enlarged(routes.CHAT, body) == {**body, "max_completion_tokens": 20}
    assert routes.enlarged(routes.CHAT, {"seed": 1}) is None
    assert routes.enlarged(routes.EMBEDDINGS, body) is None


@pytest.mark.parametrize(
    ("body", "whole"),
    [({}, True), ({"n": 1}, True), ({"n": 2}, False), ({"logprobs": True}, False)],
)
def test_only_what_pieces_make_up_is_streamed(body: dict[str, Any], whole: bool) -> None:
    """Several choices and log probabilities come whole, so that nothing of them is lost."""
    assert routes.can_stream(routes.CHAT, body) is whole
    assert not routes.can_stream(routes.EMBEDDINGS, body)


def test_a_repair_shows_the_answer_and_its_defects() -> None:
    """Two turns more, and everything else as it was."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "sum"}], "seed": 1}
    question, answer, correction = routes.repaired(body, "four", "not JSON")["messages"]
    assert (question, answer["content"]) == (body["messages"][0], "four")
    assert "not JSON" in correction["content"]


def test_a_streamed_chat_becomes_a_whole_document() -> None:
    """The same document as without streaming, read to the same reply."""
    reply = Reply(
        text="yes",
        reasoning="hm",
        finish_reason="stop",
        usage=Usage(prompt_tokens=1, completion_tokens=2),
    )
    read = routes.read(routes.CHAT, routes.whole_chat(reply, "m", 0, "id"))
    assert read == routes.of_chat(reply)
