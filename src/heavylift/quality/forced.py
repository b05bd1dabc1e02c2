"""Scoring the same tokens on two servers, where they tell the log-probabilities of a prompt.

The reference continues each prompt greedily; both servers then score that text, token by token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from heavylift.quality.divergence import Position, Told, divergence
from heavylift.quality.records import Divergence
from heavylift.stats import Chance
from heavylift.wire.client import Client, WholeReply
from heavylift.wire.failures import UNDECODABLE

TOP: Final = 20
"""Tokens asked for at each position: the most that common engines tell unless told otherwise."""
CONTINUATION_TOKENS: Final = 48
_COMPLETIONS: Final = "/v1/completions"
_AT_ONCE: Final = 4


class _Logprob(msgspec.Struct):
    logprob: float


class _Choice(msgspec.Struct):
    text: str = ""
    token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, _Logprob] | None] | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class _Tokens(msgspec.Struct):
    tokens: list[int]


class NotScored(Exception):  # noqa: N818 - a reason, not an error: the comparison goes on without
    """Why tokens could not be scored: `not_offered`, `tokens_differ` or `no_text`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class _Text:
    """A prompt with its continuation, as the reference's tokens."""

    prompt: tuple[int, ...]
    continuation: tuple[int, ...]

    @property
    def tokens(self) -> list[int]:
        return [*self.prompt, *self.continuation]


class _Side:
    """One server and the model it is asked for."""

    def __init__(self, client: Client, model: str) -> None:
        self._client = client
        self._model = model
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def rendered(self, prompt: str) -> tuple[int, ...]:
        """The tokens of a prompt as the server renders a chat with it; plain where it has no
        template.
        """
        messages = [{"role": "user", "content": prompt}]
        chat = {"messages": messages, "add_generation_prompt": True}
        for form in (chat, {"prompt": prompt}):
            reply = await self._post("/tokenize", form)
            if reply.failure is None:
                return tuple(_decoded(reply, _Tokens).tokens)
        raise NotScored("not_offered")

    async def continued(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """What the model goes on with, greedily."""
        body = {
            "prompt": list(prompt),
            "max_tokens": CONTINUATION_TOKENS,
            "temperature": 0,
            "return_token_ids": True,
        }
        reply = await self._post(_COMPLETIONS, body)
        if reply.failure is not None:
            raise NotScored("not_offered")
        choice = _decoded(reply, _Completion).choices[0]
        if choice.token_ids:
            return tuple(choice.token_ids)
        form = {"prompt": choice.text, "add_special_tokens": False}
        reply = await self._post("/tokenize", form)
        if reply.failure is not None:
            raise NotScored("not_offered")
        return tuple(_decoded(reply, _Tokens).tokens)

    async def scored(self, text: _Text) -> list[Told]:
        """What the model says of each token of the continuation."""
        body = {
            "prompt": text.tokens,
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": TOP,
        }
        reply = await self._post(_COMPLETIONS, body)
        if reply.failure is not None:
            raise NotScored("not_offered")
        told = _decoded(reply, _Completion).choices[0].prompt_logprobs
        if told is None or len(told) < len(text.tokens):
            raise NotScored("not_offered")
        places = told[len(text.prompt) : len(text.tokens)]
        return [{token: each.logprob for token, each in (place or {}).items()} for place in places]

    async def _post(self, path: str, body: dict[str, Any]) -> WholeReply:
        async with self._room:
            return await self._client.post(
                path, msgspec.json.encode({"model": self._model, **body})
            )


async def compared(
    reference: tuple[Client, str],
    candidate: tuple[Client, str],
    prompts: Sequence[str],
    chance: Chance,
) -> Divergence:
    """The divergence of the candidate from the reference over these prompts' continuations.

    Raises NotScored where a server does not offer it, or the two do not share their tokens.
    """
    one, other = _Side(*reference), _Side(*candidate)
    texts = await asyncio.gather(*(_text(one, other, prompt) for prompt in prompts))
    known = [text for text in texts if text.continuation]
    if not known:
        raise NotScored("no_text")
    first = await asyncio.gather(*map(one.scored, known))
    # The other order of the second pass puts each text into a batch with others.
    again = await asyncio.gather(*map(one.scored, reversed(known)))
    of_other = await asyncio.gather(*map(other.scored, known))
    found = divergence(
        list(map(_positions, known, first, of_other)),
        list(map(_positions, known, first, reversed(again))),
        top=TOP,
        chance=chance,
    )
    if found is None:
        raise NotScored("no_text")
    return found


async def _text(one: _Side, other: _Side, prompt: str) -> _Text:
    here, there = await asyncio.gather(one.rendered(prompt), other.rendered(prompt))
    if here != there:
        raise NotScored("tokens_differ")
    return _Text(prompt=here, continuation=await one.continued(here))


def _positions(text: _Text, reference: list[Told], candidate: list[Told]) -> list[Position]:
    return [
        Position(forced=str(token), reference=of_one, candidate=of_other)
        for token, of_one, of_other in zip(text.continuation, reference, candidate, strict=True)
        if of_one and of_other
    ]


def _decoded(reply: WholeReply, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except UNDECODABLE as problem:
        raise NotScored("not_offered") from problem
