"""A chat server that does next to nothing, for the batch benchmarks: one canned answer.

Run as `python batch_mock.py`; prints its port. No HTTP library: it finds the end of a request by
its length and writes the answer, some ten times cheaper than any client's share.
"""

from __future__ import annotations

import asyncio
import json
import re

ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "mock",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "count the bytes with care " * 24},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 200, "completion_tokens": 120, "total_tokens": 320},
    }
).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(ANSWER),
    ANSWER,
)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Mock(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type
        self.transport = transport
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        """Answer every whole request."""
        self.rest += data
        while (head := self.rest.find(b"\r\n\r\n")) >= 0:
            found = LENGTH.search(self.rest, 0, head)
            end = head + 4 + (int(found[1]) if found else 0)
            if len(self.rest) < end:
                return
            posted = self.rest.startswith(b"POST")
            self.rest = self.rest[end:]
            self.transport.write(OK if posted else NOT_FOUND)


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Mock, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
