"""The routes that are spoken: path, both directions, and how each takes a key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from heavylift.wire import anthropic, completions, openai, responses
from heavylift.wire.reply import ChatRequest, Delta


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """How a route is spoken: its path, its two directions, and how it takes the key."""

    path: str
    encode: Callable[[ChatRequest], bytes]
    event: Callable[[bytes], Delta]
    reply: Callable[[bytes], Delta]
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "
    headers: Mapping[str, str] = field(default_factory=dict)

    def all_headers(self, key: str | None) -> dict[str, str]:
        """The headers of a request with this key."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers.update(self.headers)
        if key is not None:
            headers[self.key_header] = f"{self.key_prefix}{key}"
        return headers


CHAT: Final = Protocol(
    path=openai.PATH,
    encode=openai.encode_request,
    event=openai.decode,
    reply=openai.decode,
)
COMPLETIONS: Final = Protocol(
    path=completions.PATH,
    encode=completions.encode_request,
    event=completions.decode,
    reply=completions.decode,
)
RESPONSES: Final = Protocol(
    path=responses.PATH,
    encode=responses.encode_request,
    event=responses.decode_event,
    reply=responses.decode_reply,
)
MESSAGES: Final = Protocol(
    path=anthropic.PATH,
    encode=anthropic.encode_request,
    event=anthropic.decode_event,
    reply=anthropic.decode_reply,
    key_header="x-api-key",
    key_prefix="",
    headers={"anthropic-version": anthropic.VERSION},
)
