"""Shapes of the rules of thumb: what others plan with instead of an account."""

from __future__ import annotations

from dataclasses import dataclass

from heavylift.facts.schema import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class ThumbRuleFacts(Rule):
    """A share to keep beside the weights: of the card's `memory`, or of the `weights`, dealt
    evenly.
    """

    id: str
    base: str
    low_ratio: float
    high_ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ThumbRuleBook:
    """All rules of thumb."""

    rules: tuple[ThumbRuleFacts, ...]
