"""Routes: reading a whole reply of each kind far enough to judge it and to count its tokens. PURE.

The reply's own bytes go to the output; only what the policy needs is decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.wire import openai
from heavylift.wire.failures import ErrorBody, Failure, classify_stream_error, error_of
from heavylift.wire.reply import Accumulator, Reply, Usage, judge


class Reading(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reply as the policy sees it. `text` is the answer, `reasoning` the thinking before it."""

    failure: Failure | None = None
    error: ErrorBody | None = None
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
EMBEDDINGS: Final = "/v1/embeddings"
RESPONSES: Final = "/v1/responses"


def read(url: str, body: bytes) -> Reading:
    """The reading of a 2xx reply of the route."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as problem:
            return _malformed(str(problem))
    try:
        return _READERS[url](body)
    except (msgspec.DecodeError, HeavyliftError) as problem:
        return _malformed(str(problem))


def of_chat(reply: Reply) -> Reading:
    """The reading of a chat that was read to its end."""
    usage = reply.usage
    return Reading(
        failure=reply.failure,
        error=reply.error,
        text=reply.text,
        reasoning=reply.reasoning,
        finish_reason=reply.finish_reason,
        prompt_tokens=(usage and usage.prompt_tokens) or 0,
        completion_tokens=(usage and usage.completion_tokens) or 0,
    )


def _malformed(detail: str) -> Reading:
    return Reading(failure=Failure.MALFORMED, error=ErrorBody(message=detail))


def _chat(body: bytes) -> Reading:
    delta = openai.decode(body)
    if delta.tool_calls or delta.error is not None:
        whole = Accumulator()
        whole.add(delta)
        return of_chat(whole.reply())
    # Nearly every reply: nothing to be joined, so it is judged as it stands.
    usage = delta.usage or Usage()
    reply = Reply(
        text=delta.text, reasoning=delta.reasoning, finish_reason=delta.finish_reason, usage=usage
    )
    return Reading(
        failure=judge(reply),
        text=delta.text,
        reasoning=delta.reasoning,
        finish_reason=delta.finish_reason,
        prompt_tokens=usage.prompt_tokens or 0,
        completion_tokens=usage.completion_tokens or 0,
    )


class _Usage(msgspec.Struct):
    """Usage in the words of any route."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _TextChoice(msgspec.Struct):
    text: str | None = None
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_TextChoice] = msgspec.field(default_factory=list)
    usage: _Usage | None = None
    error: Any = None


class _Embeddings(msgspec.Struct):
    data: list[msgspec.Raw] = msgspec.field(default_factory=list)
    usage: _Usage | None = None
    error: Any = None


class _Part(msgspec.Struct):
    text: str | None = None


class _Item(msgspec.Struct):
    type: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    output: list[_Item] = msgspec.field(default_factory=list)
    incomplete_details: _Incomplete | None = None
    usage: _Usage | None = None
    error: Any = None


_COMPLETION: Final = msgspec.json.Decoder(_Completion)
_EMBEDDINGS: Final = msgspec.json.Decoder(_Embeddings)
_RESPONSE: Final = msgspec.json.Decoder(_Response)


def _completion(body: bytes) -> Reading:
    document = _COMPLETION.decode(body)
    if document.error is not None or not document.choices:
        return _without_answer(document.error, document.usage)
    choice = document.choices[0]
    text = choice.text or ""
    failure = Failure.MISSING_FINISH_REASON if choice.finish_reason is None else None
    if failure is None and not text:
        failure = Failure.EMPTY
    return _reading(document.usage, failure, text=text, finish_reason=choice.finish_reason)


def _embeddings(body: bytes) -> Reading:
    document = _EMBEDDINGS.decode(body)
    if document.error is not None or not document.data:
        return _without_answer(document.error, document.usage)
    return _reading(document.usage, None)


def _response(body: bytes) -> Reading:
    document = _RESPONSE.decode(body)
    if document.error is not None or document.status in (None, "failed", "cancelled"):
        return _without_answer(document.error, document.usage)
    text = _joined(item.content for item in document.output if item.type == "message")
    reasoning = _joined(
        part
        for item in document.output
        if item.type == "reasoning"
        for part in (item.summary, item.content)
    )
    details = document.incomplete_details
    calls = any(item.type == "function_call" for item in document.output)
    failure = None if text or calls else Failure.EMPTY
    if failure and document.status == "incomplete" and reasoning:
        failure = Failure.TRUNCATED_THINKING
    reason = details.reason if details is not None else document.status
    return _reading(document.usage, failure, text=text, reasoning=reasoning, finish_reason=reason)


def _joined(parts: Any) -> str:
    return "".join(part.text or "" for group in parts for part in group or ())


def _without_answer(error: Any, usage: _Usage | None) -> Reading:
    body = error_of({"error": error}) if error is not None else None
    failure = Failure.MALFORMED if body is None else classify_stream_error(body)
    reading = _reading(usage, failure)
    return Reading(
        failure=failure,
        error=body,
        prompt_tokens=reading.prompt_tokens,
        completion_tokens=reading.completion_tokens,
    )


def _reading(usage: _Usage | None, failure: Failure | None, **known: Any) -> Reading:
    counted = usage or _Usage()
    return Reading(
        failure=failure,
        prompt_tokens=counted.prompt_tokens or counted.input_tokens or 0,
        completion_tokens=counted.completion_tokens or counted.output_tokens or 0,
        **known,
    )


_READERS: Final[dict[str, Callable[[bytes], Reading]]] = {
    CHAT: _chat,
    COMPLETIONS: _completion,
    EMBEDDINGS: _embeddings,
    RESPONSES: _response,
}

URLS: Final = tuple(_READERS)
"""The routes a row may name."""

# Where a body states how many tokens may be generated, by route; the first that is there counts.
_LIMIT_FIELDS: Final = {
    CHAT: ("max_completion_tokens", "max_tokens"),
    COMPLETIONS: ("max_tokens",),
    RESPONSES: ("max_output_tokens",),
    EMBEDDINGS: (),
}


def token_limit(url: str, body: dict[str, Any]) -> int | None:
    """How many tokens the body allows; None = it does not say."""
    for name in _LIMIT_FIELDS[url]:
        if isinstance(body.get(name), int):
            limit: int = body[name]
            return limit
    return None


def enlarged(url: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """The body with twice the token limit; None when it states none."""
    for name in _LIMIT_FIELDS[url]:
        if isinstance(body.get(name), int):
            return {**body, name: 2 * body[name]}
    return None


def can_stream(url: str, body: dict[str, Any]) -> bool:
    """True when the pieces of a streamed answer make up the whole: one choice, text only."""
    return url == CHAT and body.get("n", 1) == 1 and not body.get("logprobs")


def repaired(body: dict[str, Any], answer: str, defects: str) -> dict[str, Any]:
    """The chat body that gives a bad answer back with what is wrong with it."""
    turns = [
        {"role": "assistant", "content": answer},
        {"role": "user", "content": _REPAIR.format(defects=defects)},
    ]
    return {**body, "messages": [*body["messages"], *turns]}


_REPAIR: Final = (
    "That answer does not match the required JSON schema:\n{defects}\n"
    "Answer again with the corrected JSON only."
)
"""What a model is told, not a person: part of the request, so it is not in the catalogue."""


def whole_chat(reply: Reply, model: str, created: int, request_id: str) -> bytes:
    """The document a streamed chat would have been without streaming."""
    usage = reply.usage
    document: dict[str, Any] = {
        "id": request_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": openai.as_message(reply),
                "finish_reason": reply.finish_reason,
            }
        ],
    }
    if usage is not None:
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        document["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": (prompt or 0) + (completion or 0),
        }
    return msgspec.json.encode(document)
