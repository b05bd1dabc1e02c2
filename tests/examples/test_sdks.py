"""The SDKs of OpenAI and Anthropic against the gateway."""

from __future__ import annotations

import http.client
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from tests.examples.conftest import REAL, SCRIPTED, Service

pytestmark = pytest.mark.e2e

Example = Callable[..., int]
SHORT = ("--max-tokens", "16")
PROGRAMS = pytest.mark.parametrize("program", ["sdks/openai_chat.py", "sdks/anthropic_chat.py"])


@PROGRAMS
def test_a_real_answer_is_streamed(
    program: str,
    as_client: Callable[..., None],
    example: Example,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Text on standard output, the engine's own counts beside it."""
    as_client()
    assert example(program, REAL, "Name three colours.", *SHORT) == 0
    out, err = capsys.readouterr()
    assert out.strip()
    prompt, completion = err.strip().removeprefix("[").removesuffix(" tokens]").split(" + ")
    assert int(prompt) > 0
    assert int(completion) > 0


@PROGRAMS
def test_a_small_real_model_is_offered_tools_and_answers(
    program: str, as_client: Callable[..., None], example: Example
) -> None:
    """The engine takes the declaration; whether so small a model calls is not asserted."""
    as_client()
    assert example(program, REAL, "Hello.", "--tools", *SHORT) == 0


@PROGRAMS
def test_a_call_is_put_together_from_its_pieces(
    program: str,
    as_client: Callable[..., None],
    example: Example,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a scripted engine, which calls: name and arguments are whole."""
    as_client()
    assert example(program, SCRIPTED, "What is the weather in Zürich?", "--tools") == 0
    name, arguments = capsys.readouterr().out.strip().removeprefix("call ").split(" ", 1)
    assert name == "get_weather"
    assert json.loads(arguments) == {"city": "Zürich"}


@PROGRAMS
def test_a_stream_that_breaks_is_no_answer(
    program: str,
    as_client: Callable[..., None],
    example: Example,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An error event after some words, and although the status was 200."""
    as_client()
    assert example(program, SCRIPTED, "Please break.") == 5
    out, err = capsys.readouterr()
    assert out.strip()
    assert "the answer is not whole" in err


@PROGRAMS
def test_a_refusal_that_no_waiting_mends_is_not_tried_again(
    program: str,
    as_client: Callable[..., None],
    example: Example,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A question larger than the quota of a minute."""
    as_client(tokens_per_minute=50)
    with caplog.at_level(logging.INFO):
        assert example(program, REAL, "Hello.") == 1
    assert "refused: 429 retry-after=-" in capsys.readouterr().err
    assert not retries(caplog)


@PROGRAMS
def test_a_refusal_is_waited_out_as_long_as_the_gateway_says(
    program: str,
    service: Service,
    as_client: Callable[..., None],
    example: Example,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The key has one request open already: 429 with `Retry-After: 1`. The SDK waits one second,
    which is no wait of its own making, and gets its answer once the other has ended.
    """
    as_client(concurrent=1)
    with caplog.at_level(logging.INFO), held_open(service.url) as release:
        # Whoever says that it waits lets the other end: no clock decides this test.
        handler = WhenWaiting(release)
        logging.getLogger().addHandler(handler)
        try:
            assert example(program, REAL, "Hello.", *SHORT) == 0
        finally:
            logging.getLogger().removeHandler(handler)
    waits = retries(caplog)
    assert waits
    assert all("1.000000 seconds" in line for line in waits)


class WhenWaiting(logging.Handler):
    """Calls something when an SDK says that it will try again."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def emit(self, record: logging.LogRecord) -> None:
        """Look at one line of the log."""
        if "Retrying request" in record.getMessage():
            self._call()


def retries(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the SDK said of trying again."""
    return [text for text in map(str, caplog.messages) if "Retrying request" in text]


@contextmanager
def held_open(url: str) -> Iterator[Callable[[], None]]:
    """A stream of the client's key that is open until it is released."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    body = {"model": REAL, "messages": [{"role": "user", "content": "Count."}], "stream": True}
    # A small model says little to that, and its stream would be over before the client asks.
    body |= {"max_tokens": 1500, "ignore_eos": True}
    headers = {
        "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
        "Content-Type": "application/json",
    }
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    assert response.status == 200
    response.readline()
    try:
        yield connection.close
    finally:
        response.close()
        connection.close()
