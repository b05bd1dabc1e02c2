"""`heavylift batch run`: how it ends when no endpoint or no row does well."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from heavylift.cli.batch import command
from heavylift.cli.text import keys
from heavylift.wire.failures import Failure

MODEL = "there"


class _Engine(BaseHTTPRequestHandler):
    """Answers for one model; any other is not found."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """No route to read."""
        self._say(404, {})

    def do_POST(self) -> None:
        """A chat."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["model"] != MODEL:
            self._say(404, {"error": {"message": "no such model", "code": 404}})
            return
        choice = {"index": 0, "message": {"content": "yes"}, "finish_reason": "stop"}
        self._say(200, {"choices": [choice]})

    def _say(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base
        """Nothing."""


@pytest.fixture
def engine() -> Iterator[str]:
    """The address of an engine with one model."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Engine) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """`run(url, model, …)`: the result of a run over a row a model."""

    def invoked(url: str, *models: str, options: tuple[str, ...] = ()) -> Result:
        source = tmp_path / "in.jsonl"
        rows = ({"model": model, "prompt": "hi"} for model in models)
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = ["run", str(source), "--endpoint", url, "--out", str(tmp_path / "out"), *options]
        return CliRunner().invoke(command, given, standalone_mode=False)

    return invoked


def test_a_run_in_which_no_row_succeeds_ends_with_1(engine: str, run: Any) -> None:
    """It says what went wrong most often and what to check; one good row makes it a 0."""
    failed = run(engine, "nope", "neither")
    assert failed.return_value == 1
    assert "! not one row succeeded; most often: not_found" in failed.stdout
    said = " ".join(failed.stdout.split())
    assert f"{engine} has no such model or route: check --model and --endpoint" in said
    assert "next:" not in failed.stdout
    mixed = run(engine, "nope", MODEL, options=("--replace-input",))
    assert mixed.return_value == 0
    assert "retry-failed" in mixed.stdout


def test_where_nothing_listens_the_endpoint_is_named(run: Any) -> None:
    """And while it is waited for, that is said."""
    ended = run("http://127.0.0.1:9", MODEL, options=("--wait", "1.5"))
    assert ended.return_value == 5
    assert "nothing listens at http://127.0.0.1:9: is the server running?" in ended.stdout
    assert ended.stderr.count("waiting for a first endpoint to answer") == 1


def test_a_socket_that_never_answers_is_not_waited_for_longer(run: Any) -> None:
    """--wait bounds it, with no row sent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        ended = run(url, MODEL, options=("--wait", "1"))
        assert time.monotonic() - began < 20
    assert ended.return_value == 5
    assert f"{url} takes connections and did not answer in time" in ended.stdout
    assert "waiting for a first endpoint to answer" in ended.stderr
    assert "this run took 0.0 s" not in ended.stdout


def test_every_failure_has_a_meaning() -> None:
    """In the catalogue."""
    assert {f"batch.means.{failure}" for failure in Failure} <= keys()
