"""Failure classes: which class a status, a body or a broken connection is, and what follows."""

from __future__ import annotations

import pytest

from heavylift.wire.failures import (
    ErrorBody,
    Failure,
    Phase,
    TransportFault,
    classify_status,
    classify_stream_error,
    classify_transport,
    decode_error,
    retry_after_s,
)


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (200, None),
        (204, None),
        (301, Failure.MALFORMED),
        (400, Failure.BAD_REQUEST),
        (401, Failure.UNAUTHORISED),
        (403, Failure.UNAUTHORISED),
        (404, Failure.NOT_FOUND),
        (405, Failure.NOT_FOUND),
        (408, Failure.OVERLOADED),
        (422, Failure.BAD_REQUEST),
        (429, Failure.RATE_LIMITED),
        (500, Failure.SERVER_ERROR),
        (502, Failure.SERVER_ERROR),
        (503, Failure.OVERLOADED),
        (504, Failure.GATEWAY_TIMEOUT),
        (529, Failure.OVERLOADED),
    ],
)
def test_a_status_has_a_class(status: int, failure: Failure | None) -> None:
    """Every status that is not 2xx is a failure of one class."""
    assert classify_status(status) is failure
    assert classify_status(status, ErrorBody(message="no")) is failure


@pytest.mark.parametrize(
    ("message", "kind", "code"),
    [
        # vLLM, serving
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000.",
            "BadRequestError",
            "400",
        ),
        # vLLM, earlier
        (
            "The decoder prompt is too long. Make sure that `max_model_len` is no smaller than it.",
            None,
            None,
        ),
        # SGLang
        (
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            None,
            None,
        ),
        # llama.cpp server, by its sentence and by its type
        ("the request exceeds the available context size, try increasing it", None, None),
        ("too long", "exceed_context_size_error", "400"),
        # OpenAI, by its code
        ("too long", "invalid_request_error", "context_length_exceeded"),
        # Anthropic
        ("prompt is too long: 250000 tokens > 200000 maximum", "invalid_request_error", None),
    ],
)
def test_a_prompt_that_is_too_long_is_told_from_other_bad_requests(
    message: str, kind: str | None, code: str | None
) -> None:
    """The sentences of the engines are known, with 400, 413, 422 and 500."""
    error = ErrorBody(message=message, type=kind, code=code)
    for status in (400, 413, 422, 500):
        assert classify_status(status, error) is Failure.CONTEXT_TOO_LONG
    assert classify_stream_error(error) is Failure.CONTEXT_TOO_LONG
    assert classify_status(429, error) is Failure.RATE_LIMITED


def test_another_error_in_a_stream_is_an_error_event() -> None:
    """An error object inside a stream is of its own class."""
    assert classify_stream_error(ErrorBody(message="CUDA error")) is Failure.STREAM_ERROR_EVENT


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            b'{"error":{"message":"m","type":"t","code":"c"}}',
            ErrorBody(message="m", type="t", code="c"),
        ),
        (b'{"error":{"message":"m","code":400}}', ErrorBody(message="m", code="400")),
        (b'{"error":{"reason":"x"}}', ErrorBody(message='{"reason":"x"}')),
        (b'{"error":"text"}', ErrorBody(message="text")),
        (
            b'{"object":"error","message":"flat","type":"T","code":400}',
            ErrorBody(message="flat", type="T", code="400"),
        ),
        (b'{"detail":"Not Found"}', ErrorBody(message="Not Found")),
        (b'{"detail":[{"loc":["body"]}]}', ErrorBody(message='[{"loc":["body"]}]')),
        (b'{"error":null,"choices":[]}', None),
        (b'{"choices":[]}', None),
        (b"[1]", None),
        (b"<html>", None),
        (b'"\xff"', None),
    ],
)
def test_errors_are_read_from_the_usual_shapes(body: bytes, error: ErrorBody | None) -> None:
    """The message is found wherever servers put it; other documents hold no error."""
    assert decode_error(body) == error


@pytest.mark.parametrize(
    ("fault", "phase", "failure"),
    [
        (TransportFault.TIMEOUT, Phase.CONNECT, Failure.TIMEOUT_CONNECT),
        (TransportFault.TIMEOUT, Phase.WAITING, Failure.TIMEOUT_FIRST_BYTE),
        (TransportFault.TIMEOUT, Phase.READING, Failure.TIMEOUT_GAP),
        (TransportFault.LOST, Phase.CONNECT, Failure.CONNECT),
        (TransportFault.LOST, Phase.WAITING, Failure.DISCONNECTED),
        (TransportFault.LOST, Phase.READING, Failure.STREAM_BROKEN),
        (TransportFault.PROTOCOL, Phase.WAITING, Failure.MALFORMED),
    ],
)
def test_a_broken_connection_has_the_class_of_its_phase(
    fault: TransportFault, phase: Phase, failure: Failure
) -> None:
    """The same break means another thing before, between and inside."""
    assert classify_transport(fault, phase) is failure


@pytest.mark.parametrize(
    ("failure", "retriable", "counts"),
    [
        (Failure.CONNECT, True, False),
        (Failure.RATE_LIMITED, True, False),
        (Failure.OVERLOADED, True, False),
        (Failure.STREAM_BROKEN, True, True),
        (Failure.MISSING_FINISH_REASON, True, True),
        (Failure.TIMEOUT_FIRST_BYTE, False, True),
        (Failure.TIMEOUT_GAP, False, True),
        (Failure.TIMEOUT_TOTAL, False, True),
        (Failure.BAD_REQUEST, False, False),
        (Failure.CONTEXT_TOO_LONG, False, False),
        (Failure.TRUNCATED_THINKING, False, True),
    ],
)
def test_a_class_says_whether_to_retry_and_what_it_cost(
    failure: Failure, *, retriable: bool, counts: bool
) -> None:
    """A timed-out generation is never sent again blindly; a shut door is no attempt."""
    assert failure.retriable is retriable
    assert failure.counts_as_sent is counts


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("2", 2.0),
        (" 1.5 ", 1.5),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 50.0),
        ("Thu, 01 Jan 1970 00:01:00 -0000", 50.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("-3", None),
        ("soon", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    """Both forms of RFC 9110 are read; a date that has passed means now; nonsense is nothing."""
    assert retry_after_s(value, now_epoch_s=10.0) == seconds
