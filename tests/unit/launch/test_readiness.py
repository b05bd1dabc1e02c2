"""The readiness probe, against a small HTTP server of our own on loopback."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from heavylift.launch.readiness import why_not_ready

KEY = "a-key"
LISTED = {"data": [{"id": "m"}]}


def answer(tokens: int, content: str = "Hi") -> dict[str, Any]:
    """A chat completion of so many tokens, cut off at the limit."""
    message = {"role": "assistant", "content": content}
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": tokens},
    }


ANSWER = answer(1)


@contextmanager
def server(models: Any, chat: Any, status: int = 200) -> Iterator[str]:
    """An API that gives these two documents to those who know the key."""

    class Handler(BaseHTTPRequestHandler):
        def _send(self, code: int, document: Any) -> None:
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            known = self.headers["Authorization"] == f"Bearer {KEY}"
            self._send(200 if known else 401, models)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(status, chat)

        def log_message(self, *_args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("models", "chat", "status", "expected"),
    [
        (LISTED, ANSWER, 200, None),
        ({"data": []}, ANSWER, 200, "models: not listed"),
        ({}, ANSWER, 200, "models: malformed"),
        (b"<html>", ANSWER, 200, "models: malformed"),
        (LISTED, answer(1, content=""), 200, None),  # a thinking model's first token is no text
        (LISTED, answer(0), 200, "chat: no token"),
        (LISTED, answer(0, content=""), 200, "chat: empty"),
        (LISTED, {"error": "loading"}, 503, "chat: overloaded"),
        (LISTED, [], 200, "chat: malformed"),
    ],
)
def test_only_a_generated_token_counts(
    models: Any, chat: Any, status: int, expected: str | None
) -> None:
    """Listing, an answer and a token are all needed; what is missing is said."""
    with server(models, chat, status) as address:
        assert why_not_ready(address, model="m", key=KEY) == expected


def test_a_wrong_key_is_said() -> None:
    """The step that failed and its failure class are kept."""
    with server(LISTED, ANSWER) as address:
        assert why_not_ready(address, model="m", key="other") == "models: unauthorised"


def test_nobody_listening_is_said() -> None:
    """A closed port is a reason to wait, not an error."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
    assert why_not_ready(address, model="m", key=KEY) == "models: connect"


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call to this machine stays on it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with server(LISTED, ANSWER) as address:
        assert why_not_ready(address, model="m", key=KEY) is None
