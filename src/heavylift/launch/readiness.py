"""Whether an OpenAI-compatible API on loopback serves: the model is listed and gives a token.

A listening port proves nothing, and a listed model little: engines list what they cannot run yet.
"""

from __future__ import annotations

from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.wire.client import Endpoint, Limits, ask, list_models
from heavylift.wire.reply import ChatRequest

_LIMITS: Final = Limits(connect_s=5.0, first_byte_s=30.0, gap_s=30.0)


def why_not_ready(address: str, *, model: str, key: str) -> str | None:
    """None when `model` at `address` (`http://127.0.0.1:port`) has generated a token; otherwise the
    step that failed and how: `models: connect`, `chat: overloaded`.
    """
    endpoint = Endpoint(base_url=address, key=key)
    try:
        listed = list_models(endpoint, limits=_LIMITS)
    except HeavyliftError as error:
        return f"models: {error.params['failure']}"
    # Asked only then: to most polls of a loading engine the first answer is a no.
    # Engines that tag what they hold list a name without a tag under one.
    if not any(model in (card.id, card.id.partition(":")[0]) for card in listed):
        return "models: not listed"
    request = ChatRequest(
        model=model,
        messages=({"role": "user", "content": "Hello"},),
        stream=False,
        max_tokens=1,
        extra={"temperature": 0},
    )
    reply = ask(endpoint, request, limits=_LIMITS).reply
    # One token is no whole answer, so its failure class says nothing where a token was counted.
    if reply.usage is not None and (reply.usage.completion_tokens or 0) >= 1:
        return None
    return f"chat: {reply.failure or 'no token'}"
