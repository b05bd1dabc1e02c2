"""An engine of two processes for the test over ssh: the second joins the first, which then serves.

`engine.py RANK HEAD_ADDRESS RENDEZVOUS_PORT API_PORT`. Standard library only.
"""

from __future__ import annotations

import http.server
import json
import os
import socket
import sys
import time
from typing import Any


class Api(http.server.BaseHTTPRequestHandler):
    """Lists `m`, answers any chat with one token to whoever has the key."""

    def _send(self, document: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _has_key(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {os.environ['ENGINE_API_KEY']}"

    def do_GET(self) -> None:
        """The list of models."""
        if self.path != "/v1/models" or not self._has_key():
            self._send({"error": {"message": "no"}}, 404 if self._has_key() else 401)
            return
        self._send({"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        """One token."""
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"index": 0, "message": {"content": "Hi"}, "finish_reason": "length"}
        self._send({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def main(rank: int, head: str, rendezvous: int, api: int) -> None:
    """Join, then serve or wait."""
    print("starting", flush=True)
    print("loading weights: 1 of 2", flush=True)
    if rank:
        while True:
            try:
                joined = socket.create_connection((head, rendezvous), timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        print("loading weights: 2 of 2", flush=True)
        # The head is gone when this ends.
        joined.settimeout(None)
        joined.recv(1)
        sys.exit(1)
    with socket.create_server((head, rendezvous)) as door:
        other, _ = door.accept()
        print("ready", flush=True)
        http.server.ThreadingHTTPServer((head, api), Api).serve_forever()
        other.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
