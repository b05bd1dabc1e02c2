"""Paired statistics: whether two deployments answer alike, and what a comparison could see. Pure.

Differences are candidate minus reference, in the share of right answers: negative = worse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from heavylift.stats import (
    CONFIDENCE,
    RESAMPLES,
    Chance,
    Interval,
    binomial_at_most,
    bootstrap,
    mean,
)

ALPHA: Final = 0.05
POWER: Final = 0.8
_NORMAL: Final = NormalDist()
_BISECTIONS: Final = 60
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Items answered once by each: right by both, by one only, by neither."""

    both: int
    only_reference: int
    only_candidate: int
    neither: int

    @property
    def items(self) -> int:
        """All items."""
        return self.both + self.only_reference + self.only_candidate + self.neither

    @property
    def difference(self) -> float:
        """Share right of the candidate minus that of the reference."""
        return (self.only_candidate - self.only_reference) / self.items

    @property
    def discordance(self) -> float:
        """Share of items on which they differ."""
        return (self.only_candidate + self.only_reference) / self.items


def pairs(reference: Sequence[bool], candidate: Sequence[bool]) -> Pairs:
    """The table of two runs over the same items, in the same order."""
    joined = list(zip(reference, candidate, strict=True))
    return Pairs(
        both=joined.count((True, True)),
        only_reference=joined.count((True, False)),
        only_candidate=joined.count((False, True)),
        neither=joined.count((False, False)),
    )


def mcnemar(table: Pairs) -> float:
    """Two-sided exact p-value that both have the same share of right answers.

    Formula: of n differing items, min(1, 2·P(X ≤ min)) with X binomial(n, ½).
    Source: McNemar 1947, in its exact form. Full agreement gives 1.
    """
    differing = table.only_reference + table.only_candidate
    fewer = min(table.only_reference, table.only_candidate)
    return min(1.0, 2.0 * binomial_at_most(fewer, differing, 0.5))


def paired_interval(table: Pairs, confidence: float = CONFIDENCE) -> Interval:
    """The score interval of the difference of two paired shares.

    It keeps its coverage where items differ rarely or never, where others collapse to a point.
    Source: Tango, Equivalence test and confidence interval for the difference in proportions for
    the paired-sample design, Statistics in Medicine 17, 1998.
    """
    limit = _NORMAL.inv_cdf(1 - (1 - confidence) / 2)
    difference = table.difference
    low = _score_bound(table, difference, -1.0, limit)
    high = _score_bound(table, difference, 1.0, limit)
    return Interval(low=low, high=high)


def _score_bound(table: Pairs, inside: float, outside: float, limit: float) -> float:
    """Where between `inside` and `outside` the score statistic reaches the limit."""
    for _ in range(_BISECTIONS):
        middle = (inside + outside) / 2
        if abs(_score(table, middle)) <= limit:
            inside = middle
        else:
            outside = middle
    return (inside + outside) / 2


def _score(table: Pairs, delta: float) -> float:
    n, b, c = table.items, table.only_candidate, table.only_reference
    linear = -b - c + (2 * n - b + c) * delta
    constant = -c * delta * (1 - delta)
    root = math.sqrt(max(0.0, linear * linear - 8 * n * constant))
    nuisance = (root - linear) / (4 * n)
    variance = n * (2 * nuisance + delta * (1 - delta))
    distance = b - c - n * delta
    if variance <= 0:
        return 0.0 if abs(distance) < _ROUNDING else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def clustered_interval(
    differences: Sequence[float], chance: Chance, confidence: float = CONFIDENCE
) -> Interval:
    """The bootstrap interval of the mean of per-item differences.

    An item with several samples is one cluster: its mean is what is resampled. Items that never
    differ say no more than that differences are rarer than 3.84 / (n + 3.84) or so: the interval
    is never narrower than the score interval of as many agreeing items.
    """
    drawn = bootstrap(differences, mean, chance, confidence=confidence)
    agreeing = Pairs(both=len(differences), only_reference=0, only_candidate=0, neither=0)
    least = paired_interval(agreeing, confidence).high
    centre = mean(differences)
    return Interval(low=min(drawn.low, centre - least), high=max(drawn.high, centre + least))


def sign_flip(differences: Sequence[float], chance: Chance, resamples: int = RESAMPLES) -> float:
    """Two-sided p-value that the per-item differences are centred on zero.

    Each item's sign is as likely either way when the two are equal. Formula: (1 + as extreme) /
    (1 + resamples). Source: Phipson and Smyth, Permutation p-values should never be zero, 2010.
    """
    observed = abs(math.fsum(differences))
    if observed == 0:
        return 1.0
    extreme = sum(
        abs(math.fsum(value if chance() < 0.5 else -value for value in differences))  # noqa: PLR2004 - a coin
        >= observed - _ROUNDING
        for _ in range(resamples)
    )
    return (1 + extreme) / (1 + resamples)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """P-values adjusted for their number, in the order given.

    Source: Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    count = len(p_values)
    adjusted = [0.0] * count
    highest = 0.0
    for rank, place in enumerate(sorted(range(count), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (count - rank) * p_values[place]))
        adjusted[place] = highest
    return tuple(adjusted)


def is_equivalent(interval: Interval, margin: float) -> bool:
    """True when two one-sided tests both say so: the interval at 1 − 2·alpha lies inside ±margin.

    Source: Schuirmann, A comparison of the two one-sided tests procedure, 1987.
    """
    return -margin < interval.low and interval.high < margin


def minimum_detectable_effect(
    items: int, discordance: float, *, alpha: float = ALPHA, power: float = POWER
) -> float:
    """The least true difference that a comparison finds with probability `power`.

    Formula: (z(1 − alpha/2) + z(power)) · sqrt(discordance / items), at most 1; and never less
    than the fewest items, all to one side, that the exact test calls a difference (6 at 5 %).
    """
    if items == 0:
        return 1.0
    z = _NORMAL.inv_cdf(1 - alpha / 2) + _NORMAL.inv_cdf(power)
    fewest = math.floor(math.log2(2 / alpha)) + 1
    return min(1.0, max(z * math.sqrt(discordance / items), fewest / items))


def items_for_equivalence(
    margin: float, discordance: float, *, alpha: float = ALPHA, power: float = POWER
) -> int:
    """Items with which two equal deployments are found equivalent with probability `power`.

    Formula: discordance · ((z(1 − alpha) + z((1 + power)/2)) / margin)², and never fewer than it
    takes when no item differs: z(1 − alpha)² · (1 − margin) / margin.
    """
    z = _NORMAL.inv_cdf(1 - alpha)
    spread = discordance * ((z + _NORMAL.inv_cdf((1 + power) / 2)) / margin) ** 2
    return math.ceil(max(spread, z * z * (1 - margin) / margin))
