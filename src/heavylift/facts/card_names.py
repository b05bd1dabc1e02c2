"""Cards as people write them: a name with the memory behind it. Pure.

`RTX 3090 24GB`, `A100 80GB (79.25 GiB)`, `Jetson AGX Thor 128GB` are cards that are known, and the
size tells two of one name apart. A size that no card of the name has is another card.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.facts.consistency import name_key
from heavylift.units import GIB

_SIZE: Final = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]+)?)\s*Gi?B?(?![\w/])", re.IGNORECASE)
_REMARK: Final = re.compile(r"\(([^()]*)\)")
# People round, and say what the driver shows as often as what is printed on the box.
_ROUNDED: Final = 0.04


_STATED: Final = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]+)?)\s*G(i?)B", re.IGNORECASE)


def stated_bytes(text: str) -> int | None:
    """The memory that a text gives a card, bytes; None for a text without.

    GiB are what a driver shows and count before GB, which are taken by their own word.
    """
    shown = [float(size) * GIB for size, binary in _STATED.findall(text) if binary]
    sold = [float(size) * 10**9 for size, binary in _STATED.findall(text) if not binary]
    found = min(shown or sold, default=0)
    return int(found) or None


@dataclass(frozen=True, slots=True)
class CardSize:
    """What a card is called and who makes it; its memory as the box and as the driver say."""

    names: tuple[str, ...]
    maker: str
    nameplate_gb: float
    visible_bytes: float

    def is_of(self, stated: float) -> bool:
        """True when somebody may call this memory `stated` GB or GiB."""
        sizes = (self.nameplate_gb, self.visible_bytes / 10**9, self.visible_bytes / GIB)
        return any(abs(stated / size - 1) <= _ROUNDED for size in sizes if size)


def read_card(text: str, cards: Mapping[str, CardSize]) -> str | None:
    """The id of the one card that a name with a size speaks of; None for none, or for several."""
    stated = [float(found) for found in _SIZE.findall(text)]
    if not stated:
        return None
    name = " ".join(_SIZE.sub(" ", _REMARK.sub(" ", text)).split())
    found = [
        identifier
        for identifier, card in cards.items()
        if _is_called(name, card) and all(card.is_of(size) for size in stated)
    ]
    return found[0] if len(found) == 1 else None


def _is_called(name: str, card: CardSize) -> bool:
    """By a name of its own, with or without its maker's, or by one that its size would complete."""
    wanted = {name_key(name)}
    first, _, rest = name.partition(" ")
    if first.lower() == card.maker.lower():
        wanted.add(name_key(rest))
    return any(key in wanted for key in _keys(card.names))


def _keys(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        yield name_key(name)
        yield name_key(_SIZE.sub(" ", name))
