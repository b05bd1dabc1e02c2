"""The shape of made-up traffic: what its requests look like, in a few parameters. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TrafficShape:
    """What requests look like. Sizes in tokens: medians of log-normals, `*_spread` their sigma.

    A conversation has `turns_mean` turns (geometric). Its first prompt is `shared_tokens`, the same
    for all conversations of one of `groups` (a system prompt, tool definitions, a repository), and
    `first_tokens` of its own; each further turn adds `turn_tokens` to what was said. `pause_s` is
    the mean pause between an answer and the next turn. `burstiness` is the coefficient of variation
    of the gaps between conversations: 1 = Poisson.
    """

    first_tokens: float
    first_spread: float
    output_tokens: float
    output_spread: float
    turn_tokens: float = 0.0
    turn_spread: float = 0.0
    turns_mean: float = 1.0
    shared_tokens: int = 0
    groups: int = 1
    pause_s: float = 0.0
    burstiness: float = 1.0
    context_tokens_most: int = 1_000_000
