"""How far two models' predictions of the same tokens lie apart. Pure.

A server tells the log-probabilities of its k likeliest tokens, not of all. What both tell is
compared token by token, the rest of each as one bucket: merging outcomes can only lower a
divergence, so every figure is a lower bound, and the mass of the buckets says how loose it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from heavylift.quality.records import Divergence, Spread
from heavylift.stats import Chance, Interval, bootstrap, mean, quantile

_LEAST: Final = 1e-12
"""A bucket that rounding made empty: no server tells a probability more finely."""

Told = Mapping[str, float]
"""Token -> its log-probability, of the tokens that a server tells."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """One forced token: what each model said of the place where it stands."""

    forced: str
    reference: Told
    candidate: Told


def kl(p: Told, q: Told) -> float:
    """Divergence of q from p in nats, over the tokens both tell and a bucket for the rest.

    Formula: Σ p·ln(p/q) + P·ln(P/Q), with P and Q what the common tokens leave of 1.
    """
    common = [token for token in p if token in q]
    parts = [math.exp(p[token]) * (p[token] - q[token]) for token in common]
    rest_p, rest_q = _rest(p, common), _rest(q, common)
    return max(0.0, math.fsum(parts) + rest_p * math.log(rest_p / rest_q))


def uncovered(told: Told) -> float:
    """The probability of all the tokens that the server did not tell."""
    return _rest(told, list(told))


def divergence(
    prompts: Sequence[Sequence[Position]],
    again: Sequence[Sequence[Position]],
    *,
    top: int,
    chance: Chance,
) -> Divergence | None:
    """The divergence over all positions, with intervals over prompts. None without a position.

    `again`: the same positions with the reference's second answer in place of the candidate's.
    """
    held = [positions for positions in prompts if positions]
    flat = [position for positions in held for position in positions]
    if not flat:
        return None
    floor = [kl(each.reference, each.candidate) for positions in again for each in positions]
    forward = [[kl(each.reference, each.candidate) for each in group] for group in held]
    backward = [[kl(each.candidate, each.reference) for each in group] for group in held]
    agreeing = [[float(_top(e.reference) == _top(e.candidate)) for e in group] for group in held]
    changes = [_change(each) for each in flat]
    known = [change for change in changes if change is not None]
    of_reference = [uncovered(each.reference) for each in flat]
    of_candidate = [uncovered(each.candidate) for each in flat]
    return Divergence(
        prompts=len(held),
        positions=len(flat),
        top=top,
        forward=_spread(forward, chance),
        backward=_spread(backward, chance),
        floor_mean=mean(floor) if floor else None,
        top1_agreement=mean([value for group in agreeing for value in group]),
        top1_interval=_interval(agreeing, chance),
        probability_change_rms=(
            math.sqrt(mean([change * change for change in known])) if known else None
        ),
        uncovered_reference_mean=mean(of_reference),
        uncovered_reference_max=max(of_reference),
        uncovered_candidate_mean=mean(of_candidate),
        uncovered_candidate_max=max(of_candidate),
    )


def _rest(told: Told, tokens: Sequence[str]) -> float:
    return max(_LEAST, 1.0 - math.fsum(math.exp(told[token]) for token in tokens))


def _top(told: Told) -> str:
    return max(told, key=lambda token: told[token])


def _change(position: Position) -> float | None:
    """How the probability of the forced token changed; None where a server did not tell it."""
    if position.forced not in position.reference or position.forced not in position.candidate:
        return None
    before, after = position.reference[position.forced], position.candidate[position.forced]
    return math.exp(after) - math.exp(before)


def _spread(groups: Sequence[Sequence[float]], chance: Chance) -> Spread:
    values = sorted(value for group in groups for value in group)
    return Spread(
        mean=mean(values),
        interval=_interval(groups, chance),
        median=quantile(values, 0.5),
        p99=quantile(values, 0.99),
        max=values[-1],
    )


def _interval(groups: Sequence[Sequence[float]], chance: Chance) -> Interval:
    """The interval of the mean over positions; a prompt is one cluster with all its positions."""
    sums = [(math.fsum(group), len(group)) for group in groups]

    def pooled(drawn: Sequence[tuple[float, int]]) -> float:
        return math.fsum(total for total, _ in drawn) / sum(count for _, count in drawn)

    return bootstrap(sums, pooled, chance)
