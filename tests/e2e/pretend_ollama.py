"""A pretended Ollama: `serve` answers its API, `create NAME -f FILE` makes the model it lists."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MADE: dict[str, str] = {}
GIB = 1 << 30


class Api(BaseHTTPRequestHandler):
    """What of the API is asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Version, models, what runs."""
        models = [f"{name}:latest" for name in MADE]
        pages: dict[str, Any] = {
            "/api/version": {"version": "0.32.15"},
            "/v1/models": {"data": [{"id": each} for each in models]},
            "/api/ps": {
                "models": [{"name": each, "size": 4 * GIB, "size_vram": GIB} for each in models]
            },
        }
        self._answer(pages.get(self.path))

    def do_POST(self) -> None:
        """A model is made; a token is given."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/create":
            MADE[body["name"]] = body["modelfile"]
            self._answer({"status": "success"})
            return
        message = {"role": "assistant", "content": "Boats lie in the harbour."}
        self._answer(
            {
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9},
            }
        )

    def _answer(self, page: Any) -> None:
        raw = json.dumps(page if page is not None else {"error": "not found"}).encode()
        self.send_response(200 if page is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def main(words: list[str]) -> int:
    """The command."""
    host, _, port = os.environ["OLLAMA_HOST"].partition(":")
    if words[0] == "serve":
        ThreadingHTTPServer((host, int(port)), Api).serve_forever()
    path = Path(words[words.index("-f") + 1])
    print("pulling 1a2b3c: 100%", flush=True)
    order = {"name": words[1], "modelfile": path.read_text(), "mode": path.stat().st_mode & 0o777}
    Path(os.environ["PRETEND_OLLAMA_LOG"]).write_text(json.dumps(order))
    request = urllib.request.Request(
        f"http://{host}:{port}/api/create",
        data=json.dumps(order).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return 0 if answer.status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
