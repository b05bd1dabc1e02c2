"""Statistics that several stages need: quantiles, binomial intervals, the cluster bootstrap.

Pure: chance is an argument, a function that gives numbers in [0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")
Chance = Callable[[], float]

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 2000
_BISECTIONS: Final = 60
"""Halvings of [0, 1]: past the precision of a double."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A confidence interval, both ends included."""

    low: float
    high: float


def quantile(ordered: Sequence[float], share: float) -> float:
    """The `share` quantile (0 to 1) of values in ascending order, linear between neighbours.

    Formula: value at position share·(n − 1), the usual default ("type 7").
    Source: Hyndman and Fan, Sample quantiles in statistical packages, 1996.
    Raises ValueError when there are no values.
    """
    if not ordered:
        raise ValueError(share)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    """The median of values in any order."""
    return quantile(sorted(values), 0.5)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return math.fsum(values) / len(values)


def binomial_at_most(successes: int, trials: int, probability: float) -> float:
    """P(X ≤ successes) of a binomial variable."""
    if successes >= trials or probability <= 0.0:
        return 1.0
    if successes < 0 or probability >= 1.0:
        return 0.0
    log_p, log_q = math.log(probability), math.log1p(-probability)
    total = math.fsum(
        math.exp(_log_choose(trials, k) + k * log_p + (trials - k) * log_q)
        for k in range(successes + 1)
    )
    return min(1.0, total)


def rate_interval(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """The exact interval of a rate: its coverage is never below `confidence`.

    Source: Clopper and Pearson, The use of confidence or fiducial limits, 1934.
    No trials know nothing: [0, 1].
    """
    if trials == 0:
        return Interval(low=0.0, high=1.0)
    tail = (1.0 - confidence) / 2.0
    low = 0.0
    if successes > 0:
        # P(X ≥ successes) grows with the probability and is `tail` at the lower end.
        low = _crossing(lambda p: 1.0 - binomial_at_most(successes - 1, trials, p) >= tail)
    high = 1.0
    if successes < trials:
        high = _crossing(lambda p: binomial_at_most(successes, trials, p) <= tail)
    return Interval(low=low, high=high)


def bootstrap(
    clusters: Sequence[T],
    statistic: Callable[[Sequence[T]], float],
    chance: Chance,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval:
    """The percentile bootstrap interval of a statistic of independent clusters.

    A cluster is whatever was drawn together (an item with all its samples, a pair of requests):
    resampling inside a cluster would take repetition for evidence.
    Source: Efron and Tibshirani, An introduction to the bootstrap, 1993, chapter 13.
    """
    count = len(clusters)
    values = sorted(
        statistic([clusters[int(chance() * count)] for _ in range(count)]) for _ in range(resamples)
    )
    tail = (1.0 - confidence) / 2.0
    return Interval(low=quantile(values, tail), high=quantile(values, 1.0 - tail))


def _log_choose(trials: int, chosen: int) -> float:
    return math.lgamma(trials + 1) - math.lgamma(chosen + 1) - math.lgamma(trials - chosen + 1)


def _crossing(reached: Callable[[float], bool]) -> float:
    """The least probability for which `reached`, which turns from False to True once."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if reached(middle):
            high = middle
        else:
            low = middle
    return (low + high) / 2.0
