"""Racks that a text names, however loosely: `2x8 H200`, `8x MI300X/MI325X`, `4 nodes of 8 H100`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_COUNTS: Final = re.compile(
    r"(?:(\d{1,3})\s*(?:[x×*]|(?:nodes?|machines?|台)(?:\s*(?:of|[x×*]))?)\s*)?"
    r"(\d{1,5})\s*(?:[x×*]|张|卡|块)?\s*(?:[A-Za-z]+\s+){0,2}$",
    re.IGNORECASE,
)
_COUNT_AFTER: Final = re.compile(r"\s*(?::|[x×*])\s*(\d{1,5})(?![\d.])", re.IGNORECASE)
_HOST_MEMORY: Final = re.compile(r"(\d{2,5})\s*GB\s*(?:RAM|of RAM|memory|unified)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """A card that may be named: id, spellings, and what rules ask of it.

    `planned`: its facts allow a plan; for others only `memory_bytes` is known.
    """

    id: str
    title: str
    names: tuple[str, ...]
    vendor: str
    architecture: str
    memory_bytes: int
    link: str
    planned: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedRack:
    """Cards a text names, and how many: None where no count stands there. `nodes` likewise."""

    card: Card
    nodes: int | None
    per_node: int | None

    @property
    def gpus(self) -> int | None:
        """GPUs in all, where a count was written."""
        return None if self.per_node is None else (self.nodes or 1) * self.per_node


def named_racks(text: str, cards: Sequence[Card]) -> tuple[NamedRack, ...]:
    """Every rack a text names, in order. Of `8x A/B` both cards have the count of the first."""
    spans: list[tuple[int, int, Card]] = []
    for spelling, card in _spellings(cards):
        for match in spelling.finditer(text):
            if not any(start < match.end() and match.start() < end for start, end, _ in spans):
                spans.append((match.start(), match.end(), card))
    racks: list[NamedRack] = []
    before = 0
    for start, end, card in sorted(spans, key=lambda span: span[0]):
        between = text[before:start]
        counts = _COUNTS.search(between)
        if counts is None and racks and re.fullmatch(r"\s*(?:/|or|或)\s*", between):
            racks.append(NamedRack(card=card, nodes=racks[-1].nodes, per_node=racks[-1].per_node))
        else:
            after = _COUNT_AFTER.match(text, end)
            nodes = int(counts[1]) if counts and counts[1] else None
            per_node = int(counts[2]) if counts else int(after[1]) if after else None
            racks.append(NamedRack(card=card, nodes=nodes, per_node=per_node))
        before = end
    return tuple(racks)


def host_memory_bytes(text: str) -> int | None:
    """Host memory a text names (`M3 Ultra 512 GB`, `64 GB RAM`); None when it names none."""
    match = _HOST_MEMORY.search(text)
    return int(match[1]) * 10**9 if match else None


def _spellings(cards: Sequence[Card]) -> list[tuple[re.Pattern[str], Card]]:
    """Patterns of every name, the longest first, so that GB300 is not read as B300."""
    pairs = [(name, card) for card in cards for name in (card.title, *card.names)]
    pairs.sort(key=lambda pair: -len(pair[0]))
    return [
        (
            re.compile(
                r"(?:(?<![A-Za-z])|(?<=\d[xX]))"
                + r"[\s-]*".join(map(re.escape, name.split()))
                + r"(?![A-Za-z0-9])",
                re.IGNORECASE,
            ),
            card,
        )
        for name, card in pairs
    ]
