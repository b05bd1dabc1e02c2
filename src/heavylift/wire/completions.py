"""The completions protocol, the one before chat: a prompt as plain text, a text back.

Source: https://platform.openai.com/docs/api-reference/completions.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.wire.failures import UNDECODABLE, error_of
from heavylift.wire.reply import ChatRequest, Delta, Usage

PATH: Final = "/v1/completions"


class _Choice(msgspec.Struct):
    index: int
    text: str = ""
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Document(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_DECODER: Final = msgspec.json.Decoder(_Document)


def encode_request(request: ChatRequest) -> bytes:
    """The body of a request: the texts of the messages are the prompt."""
    texts = [message["content"] for message in request.messages]
    body: dict[str, Any] = {"model": request.model, "prompt": "\n".join(texts)}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(body | dict(request.extra))


def decode(data: bytes) -> Delta:
    """The delta of one chunk, or of a whole reply. Raises WIRE002 when it is neither."""
    try:
        document = _DECODER.decode(data)
    except UNDECODABLE as problem:
        raise HeavyliftError("WIRE002", {"detail": str(problem)}) from problem
    if document.choices is None:
        error = error_of(msgspec.json.decode(data))
        if error is None:
            raise HeavyliftError("WIRE002", {"detail": "choices"})
        return Delta(error=error)
    usage = None
    if document.usage is not None:
        usage = Usage(
            prompt_tokens=document.usage.prompt_tokens,
            completion_tokens=document.usage.completion_tokens,
        )
    for choice in document.choices:
        if choice.index == 0:
            return Delta(text=choice.text, finish_reason=choice.finish_reason, usage=usage)
    return Delta(usage=usage)
