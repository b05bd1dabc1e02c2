"""A server that does not answer: one sentence for each thing there is to be done about it."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from heavylift.cli.errors import sentence
from heavylift.errors import HeavyliftError
from heavylift.wire import client as wire
from heavylift.wire.client import Endpoint, Limits, list_models, unanswered
from heavylift.wire.failures import Failure


def refused(url: str, **limits: Any) -> HeavyliftError:
    """The error of asking for the models."""
    with pytest.raises(HeavyliftError) as caught:
        list_models(Endpoint.parse(url), limits=Limits(**limits))
    return caught.value


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_nothing_listens(host: str) -> None:
    """The commonest first mistake."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = refused(f"http://{host}:{taken.getsockname()[1]}")
    assert error.code == "WIRE062"
    assert "is the server running?" in sentence(error)


def test_an_unknown_host_is_named() -> None:
    """`.invalid` never resolves."""
    error = refused("http://no-such-host.invalid:8000")
    assert error.code == "WIRE063"
    assert "no-such-host.invalid" in sentence(error)


def test_a_server_that_accepts_and_never_answers_is_left_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a server says of itself is not awaited as long as a generation."""
    monkeypatch.setattr(wire, "_LOOK_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = refused(f"http://127.0.0.1:{silent.getsockname()[1]}", first_byte_s=900.0)
    assert error.code == "WIRE066"
    assert "did not answer within 0.2 s" in sentence(error)


def test_no_failure_without_a_status_speaks_of_one() -> None:
    """Every class has a sentence that fills."""
    for failure in Failure:
        assert "None" not in sentence(unanswered("http://h", failure))


@pytest.mark.parametrize(
    ("failure", "status", "words"),
    [
        (Failure.NOT_FOUND, 404, "is not there"),
        (Failure.UNAUTHORISED, 401, "HEAVYLIFT_API_KEY"),
        (Failure.SERVER_ERROR, 500, "HTTP status 500"),
    ],
)
def test_a_refusal_says_what_to_do(failure: Failure, status: int, words: str) -> None:
    """The key is asked for by its name."""
    assert words in sentence(unanswered("http://h", failure, status=status))


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "localhost:9", "host.example:80/v1"])
def test_a_forgotten_scheme_is_offered(url: str) -> None:
    """What was meant is plain."""
    with pytest.raises(HeavyliftError) as caught:
        Endpoint.parse(url)
    assert f"did you mean 'http://{url}'?" in sentence(caught.value)


@pytest.mark.parametrize("url", ["http://h:port", "http://h:99999", "http://[::1"])
def test_an_impossible_port_is_a_usage_error(url: str) -> None:
    """USE022, in place of a traceback."""
    with pytest.raises(HeavyliftError, match="USE022"):
        Endpoint.parse(url)
