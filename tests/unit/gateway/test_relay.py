"""The relay: what passes, what does not, and how a stream is judged."""

from __future__ import annotations

import json

import pytest

from heavylift.errors import HeavyliftError
from heavylift.gateway import relay
from heavylift.gateway.relay import Relay, error_event, usage_of
from heavylift.gateway.request import Dialect
from heavylift.wire import anthropic, openai
from heavylift.wire.failures import Failure
from heavylift.wire.reply import Usage

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}\n\n'
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"out of memory","code":500}}\n\n'


def relayed(
    *chunks: bytes, dialect: Dialect = Dialect.CHAT, wants_usage: bool = True
) -> tuple[bytes, Relay]:
    """What the client gets, and the relay at the end."""
    reading = Relay(dialect, wants_usage=wants_usage)
    return b"".join(reading.feed(chunk) for chunk in chunks), reading


def test_a_good_stream_passes_unchanged() -> None:
    """Byte by byte, comments too, and it is known what it came to."""
    stream = ROLE + b": keep-alive\n\n" + TOKEN + TOKEN + STOP + USAGE + DONE
    out, reading = relayed(stream)
    assert out == stream
    assert reading.failure() is None
    assert reading.tokens == 2
    assert reading.usage == Usage(prompt_tokens=7, completion_tokens=2)


def test_no_event_is_held_back() -> None:
    """Each leaves with the bytes that complete it."""
    reading = Relay(Dialect.CHAT, wants_usage=True)
    for event in (ROLE, TOKEN, TOKEN, STOP, USAGE, DONE):
        assert reading.feed(event[:-1]) == b""
        assert reading.feed(event[-1:]) == event


def test_usage_the_client_did_not_ask_for_stays_here() -> None:
    """The event that carries nothing else is dropped; the figures are kept."""
    out, reading = relayed(ROLE, TOKEN, STOP, USAGE, DONE, wants_usage=False)
    assert out == ROLE + TOKEN + STOP + DONE
    assert reading.usage == Usage(prompt_tokens=7, completion_tokens=2)


def test_usage_beside_a_piece_of_the_answer_passes() -> None:
    """Engines that count along put both into one event."""
    both = (
        b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],'
        b'"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n'
    )
    out, reading = relayed(both, both, STOP, DONE, wants_usage=False)
    assert out == both + both + STOP + DONE
    assert reading.usage == Usage(prompt_tokens=7, completion_tokens=1)


def test_an_empty_usage_in_every_event_is_no_usage() -> None:
    """Such events are pieces of the answer like any other."""
    padded = TOKEN.replace(b"}]}", b'}],"usage":null}')
    out, reading = relayed(padded, padded, padded, STOP, DONE)
    assert out == padded * 3 + STOP + DONE
    assert (reading.tokens, reading.usage) == (3, None)


def test_done_without_a_reason_does_not_pass() -> None:
    """`[DONE]` proves nothing: routers send it after an error too."""
    out, reading = relayed(ROLE, TOKEN, DONE)
    assert out == ROLE + TOKEN
    assert reading.failure() is Failure.MISSING_FINISH_REASON


def test_done_after_an_error_does_not_pass() -> None:
    """The error does, as the engine put it."""
    out, reading = relayed(ROLE, TOKEN, ERROR, DONE)
    assert out == ROLE + TOKEN + ERROR
    assert reading.failure() is Failure.STREAM_ERROR_EVENT
    finished, reading = relayed(ROLE, TOKEN, STOP, ERROR, DONE)
    assert finished == ROLE + TOKEN + STOP + ERROR
    assert reading.failure() is Failure.STREAM_ERROR_EVENT


def test_a_stream_that_ends_inside_an_event_is_broken() -> None:
    """Half an event never reaches the client."""
    out, reading = relayed(ROLE, TOKEN, STOP[:-10])
    assert out == ROLE + TOKEN
    assert reading.failure() is Failure.STREAM_BROKEN


def test_text_that_looks_like_a_field_is_text() -> None:
    """Quotation marks inside a string are escaped, so words of the model change nothing."""
    tricky = (
        b'data: {"choices":[{"index":0,"delta":{"content":"\\"error\\" [DONE] \\"usage\\""}}]}\n\n'
    )
    out, reading = relayed(TOKEN, tricky, STOP, DONE)
    assert out == TOKEN + tricky + STOP + DONE
    assert reading.failure() is None


def test_a_model_that_says_done_is_not_done() -> None:
    """The word in the text is not the end of the stream."""
    says = b'data: {"choices":[{"index":0,"delta":{"content":"[DONE]"}}]}\n\n'
    out, reading = relayed(says, says, STOP, DONE)
    assert out == says + says + STOP + DONE
    assert reading.tokens == 2


def test_line_ends_of_either_kind_pass() -> None:
    """CR LF is as good as LF."""
    stream = (ROLE + TOKEN + TOKEN + STOP + DONE).replace(b"\n", b"\r\n")
    out, reading = relayed(stream)
    assert out.replace(b"\r\n", b"\n") == ROLE + TOKEN + TOKEN + STOP + DONE
    assert reading.failure() is None


def test_what_is_no_protocol_is_refused() -> None:
    """What came before it passes, nothing after it does."""
    for odd in (b"data: \xff{]\n\n", b'data: {"error" ]\n\n', b"data: hello\n\n"):
        out, reading = relayed(odd, TOKEN)
        assert (out, reading.failure()) == (b"", Failure.MALFORMED)
        out, reading = relayed(TOKEN + odd + STOP + DONE)
        assert (out, reading.failure()) == (TOKEN, Failure.MALFORMED)
        out, reading = relayed(TOKEN, TOKEN, odd, STOP, DONE)
        assert (out, reading.failure()) == (TOKEN + TOKEN, Failure.MALFORMED)


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory."""
    monkeypatch.setattr(relay, "_LIMIT_BYTES", 1000)
    out, reading = relayed(b"data: " + b"a" * 1000)
    assert (out, reading.failure()) == (b"", Failure.MALFORMED)


def test_completions_are_counted_by_their_text() -> None:
    """The older protocol has no delta."""
    piece = b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
    end = b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\n'
    out, reading = relayed(piece, piece, end, DONE, dialect=Dialect.COMPLETIONS)
    assert out == piece + piece + end + DONE
    assert (reading.tokens, reading.failure()) == (2, None)


def test_messages_end_with_a_stop_reason() -> None:
    """Their usage comes in two parts, the prompt's at the beginning."""
    start = (
        b"event: message_start\n"
        b'data: {"type":"message_start","message":{"role":"assistant",'
        b'"usage":{"input_tokens":9}}}\n\n'
    )
    piece = (
        b"event: content_block_delta\ndata: "
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}\n\n'
    )
    end = (
        b"event: message_delta\ndata: "
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},'
        b'"usage":{"output_tokens":2}}\n\n'
    )
    stop = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    out, reading = relayed(start, piece, piece, end, stop, dialect=Dialect.MESSAGES)
    assert out == start + piece + piece + end + stop
    assert reading.failure() is None
    assert reading.usage == Usage(prompt_tokens=9, completion_tokens=2)
    _, cut = relayed(start, piece, dialect=Dialect.MESSAGES)
    assert cut.failure() is Failure.MISSING_FINISH_REASON
    assert cut.usage == Usage(prompt_tokens=9)


def test_responses_end_with_their_own_event() -> None:
    """Completed or incomplete is an end, failed is an error."""
    piece = b'event: x\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n'
    usage = b'"response":{"usage":{"input_tokens":3,"output_tokens":1}}'
    end = b'data: {"type":"response.completed",' + usage + b"}\n\n"
    _, reading = relayed(piece, piece, end, dialect=Dialect.RESPONSES)
    assert (reading.failure(), reading.tokens) == (None, 2)
    assert reading.usage == Usage(prompt_tokens=3, completion_tokens=1)
    failed = b'data: {"type":"response.failed","response":{}}\n\n'
    _, reading = relayed(piece, failed, dialect=Dialect.RESPONSES)
    assert reading.failure() is Failure.STREAM_ERROR_EVENT


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        (
            b'{"usage":{"prompt_tokens":1,"completion_tokens":2}}',
            Usage(prompt_tokens=1, completion_tokens=2),
        ),
        (
            b'{"usage":{"input_tokens":1,"output_tokens":2}}',
            Usage(prompt_tokens=1, completion_tokens=2),
        ),
        (b'{"usage":{"prompt_tokens":4,"total_tokens":4}}', Usage(prompt_tokens=4)),
        (b'{"usage":null,"error":null}', None),
        (
            b'{"usage":{"prompt_tokens":4,"prompt_tokens_details":{"cached_tokens":3}}}',
            Usage(prompt_tokens=4, cached_tokens=3),
        ),
        (
            b'{"usage":{"input_tokens":4,"output_tokens":1,"cache_read_input_tokens":2}}',
            Usage(prompt_tokens=4, completion_tokens=1, cached_tokens=2),
        ),
        (b"{}", None),
    ],
)
def test_the_usage_of_a_whole_reply(body: bytes, usage: Usage | None) -> None:
    """In the words of either protocol."""
    assert usage_of(body) == usage


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff", b'{"error":{"message":"no"}}'])
def test_a_success_that_is_none(body: bytes) -> None:
    """A web page, or an error under a good status."""
    with pytest.raises(HeavyliftError, match="WIRE002"):
        usage_of(body)


def test_the_error_event_is_an_error_to_every_reader() -> None:
    """Our own readers take it for one in each protocol."""
    chat = error_event(Dialect.CHAT, "it broke", Failure.STREAM_BROKEN)
    error = openai.decode(chat.removeprefix(b"data: ").strip()).error
    assert error is not None
    assert (error.message, error.code) == ("it broke", "stream_broken")
    messages = error_event(Dialect.MESSAGES, "it broke", Failure.STREAM_BROKEN)
    named, data = messages.strip().split(b"\n")
    assert named == b"event: error"
    assert anthropic.decode_event(data.removeprefix(b"data: ")).error is not None
    responses = error_event(Dialect.RESPONSES, "it broke", Failure.STREAM_BROKEN)
    document = json.loads(responses.partition(b"data: ")[2])
    assert (document["type"], document["error"]["message"]) == ("error", "it broke")
