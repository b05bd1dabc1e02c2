"""Prompts of a benchmark: real prose, as long as asked, no two alike. Pure.

Repeated text flatters caches and speculative decoding alike, so prompts are cut from real prose
at different places and begin with a number of their own: no prefix is shared unless asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from heavylift.pictures import COLOURS, Picture, Shape, data_url, draw_shape
from heavylift.traffic.trace import Arrival

BLOCK_TOKENS: Final = 512
"""Tokens that one block name of a trace stands for. Source: Mooncake's trace format."""
TYPICAL_CHARS_PER_TOKEN: Final = 4.2
"""Of English prose with a vocabulary of 100,000 or more; measured on the server where possible."""
SIMPLE: Final = "Explain in a few paragraphs what a lighthouse keeper did in a day of work."
"""The one prompt of the script that articles use: sent again and again, mean tokens per second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What each conversation is like.

    `shared_tokens` begin every prompt alike. `turns` > 1 is a conversation: the reply goes back
    with its reasoning, and the next question follows. `wanted_tokens` is the length asked of each
    answer. `extra` joins every request.
    """

    model: str
    prompt_tokens: int
    shared_tokens: int = 0
    turns: int = 1
    images: int = 0
    image_size: int = 256
    wanted_tokens: int | None = None
    simple: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """The user's turns of one conversation, as message contents."""

    index: int
    turns: tuple[Any, ...]
    wanted_tokens: int | None

    def digest(self, turn: int) -> str:
        """A name of the prompt up to this turn: equal prompts, equal names."""
        whole = repr(self.turns[: turn + 1]).encode()
        return hashlib.blake2b(whole, digest_size=8).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Writer:
    """Makes conversations from prose. Deterministic: a seed and an index name a prompt.

    `prose` is the text that prompts are cut from.
    """

    prose: str
    chars_per_token: float
    seed: int

    def conversation(self, workload: Workload, index: int) -> Conversation:
        """The conversation of this index."""
        if workload.simple:
            return Conversation(index=index, turns=(SIMPLE,), wanted_tokens=workload.wanted_tokens)
        first = self._opening(workload, index)
        later = tuple(
            f"{self._passage(f'{index}/{turn}', max(16, workload.prompt_tokens // 8))}\n"
            "Go on from here, with this in mind."
            for turn in range(1, workload.turns)
        )
        return Conversation(
            index=index,
            turns=(self._with_images(first, workload, index), *later),
            wanted_tokens=workload.wanted_tokens,
        )

    def replayed(self, arrival: Arrival, workload: Workload, index: int) -> Conversation:
        """The conversation of one row of a trace; what the row does not say, the workload does."""
        wanted = arrival.output_tokens or workload.wanted_tokens
        if arrival.turns:
            return Conversation(index=index, turns=arrival.turns, wanted_tokens=wanted)
        tokens = arrival.input_tokens or workload.prompt_tokens
        blocks = [self._passage(f"block {name}", BLOCK_TOKENS) for name in arrival.blocks]
        rest = tokens - BLOCK_TOKENS * len(blocks)
        text = "\n".join(blocks)[: self._chars(tokens)]
        if rest > 0:
            text += f"\n[{self.seed}.{index}]\n{self._passage(str(index), rest)}"
        return Conversation(index=index, turns=(text,), wanted_tokens=wanted)

    def _opening(self, workload: Workload, index: int) -> str:
        own = max(1, workload.prompt_tokens - workload.shared_tokens)
        shared = self._passage("shared", workload.shared_tokens) if workload.shared_tokens else ""
        task = "Continue the text, in the same manner and at length."
        return f"{shared}[{self.seed}.{index}]\n{self._passage(str(index), own)}\n\n{task}"

    def _with_images(self, text: str, workload: Workload, index: int) -> Any:
        if not workload.images:
            return text
        parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
        for number in range(workload.images):
            url = data_url(_picture(self._place(f"{index} {number}", 1 << 16), workload))
            parts.append({"type": "image_url", "image_url": {"url": url}})
        return parts

    def _passage(self, name: str, tokens: int) -> str:
        """Prose of about that many tokens, from a place of its own; wraps round at the end."""
        length = self._chars(tokens)
        start = self._place(name, len(self.prose))
        text = self.prose[start : start + length]
        while len(text) < length:
            text += self.prose[: length - len(text)]
        return text

    def _chars(self, tokens: int) -> int:
        return max(1, round(tokens * self.chars_per_token))

    def _place(self, name: str, size: int) -> int:
        digest = hashlib.blake2b(f"{self.seed} {name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) % size


def _picture(number: int, workload: Workload) -> Picture:
    shapes, colours = list(Shape), list(COLOURS.values())
    # A size of its own makes the picture new to a cache of pictures.
    size = workload.image_size - number % 16
    return draw_shape(shapes[number % len(shapes)], colours[number % len(colours)], size)


def chars_per_token(chars: int, tokens: int) -> float:
    """Characters per token as measured; kept within what any tokenizer does to prose."""
    return min(8.0, max(1.0, chars / max(1, tokens)))
