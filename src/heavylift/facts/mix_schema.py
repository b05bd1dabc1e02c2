"""How a quantiser deals types to the tensors of a model: its named mixes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.facts.schema import Rule

_EVERY: Final = 3
"""Of the layers in the middle, every so many gets more bits."""


class MixLayers(StrEnum):
    """Which of n layers a rule is for: all; the first and last eighth and every third between; the
    first eighth, sixteenth, two or four.
    """

    ALL = "all"
    MORE_BITS = "more_bits"
    FIRST_EIGHTH = "first_eighth"
    FIRST_SIXTEENTH = "first_sixteenth"
    FIRST_TWO = "first_two"
    FIRST_FOUR = "first_four"

    def holds(self, layer: int, count: int) -> bool:
        """True when the rule is for a layer of `count`."""
        eighth = count // 8
        last_eighth = layer >= 7 * count // 8
        third = (layer - eighth) % _EVERY == _EVERY - 1
        first = {
            MixLayers.ALL: count,
            MixLayers.MORE_BITS: eighth,
            MixLayers.FIRST_EIGHTH: eighth,
            MixLayers.FIRST_SIXTEENTH: count // 16,
            MixLayers.FIRST_TWO: 2,
            MixLayers.FIRST_FOUR: 4,
        }[self]
        return layer < first or (self is MixLayers.MORE_BITS and (last_eighth or third))


@dataclass(frozen=True, kw_only=True, slots=True)
class MixRule:
    """Tensors (`*` = any part of a name) that get another type than the mix is named for.

    `experts`, `layer_count`: only in a model with so many. `heads_per_kv_head`: only with at least
    so many. `tied`: only where the table of words is the head as well. `families`: empty = any.
    """

    type: str
    tensors: tuple[str, ...]
    layers: MixLayers = MixLayers.ALL
    experts: int | None = None
    layer_count: int | None = None
    heads_per_kv_head: int = 1
    tied: bool = False
    families: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MixFacts(Rule):
    """A mix: `type` for every matrix that no rule names; the first rule that holds counts.
    `with_experts`: made of models with experts only.
    """

    id: str
    title: str
    type: str
    rules: tuple[MixRule, ...] = ()
    with_experts: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class MixBook:
    """All mixes, and the `engines` that read them. `fallbacks`: what a type becomes where a row is
    not whole blocks of it.
    """

    engines: tuple[str, ...]
    mixes: tuple[MixFacts, ...]
    fallbacks: dict[str, str] = field(default_factory=dict)
