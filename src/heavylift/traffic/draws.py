"""Draws that traffic is made of. Pure: chance is an argument, a function of numbers in [0, 1)."""

from __future__ import annotations

import math
from typing import Final

from heavylift.stats import Chance

_MOST_STRETCH: Final = 64.0
"""No drawn size is more than this many times its median: tails beyond are not known."""


def normal(chance: Chance) -> float:
    """A standard normal draw (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log1p(-chance()))
    return radius * math.cos(2.0 * math.pi * chance())


def lognormal(median: float, sigma: float, chance: Chance) -> int:
    """A size of at least 1, log-normal about its median."""
    factor = min(_MOST_STRETCH, math.exp(sigma * normal(chance))) if sigma else 1.0
    return max(1, round(median * factor))


def gamma(mean: float, variation: float, chance: Chance) -> float:
    """A gap of a renewal process with that coefficient of variation; exponential at 1.

    Source: Marsaglia and Tsang, A simple method for generating gamma variables, 2000.
    """
    if variation <= 0:
        return mean
    if variation == 1:
        return -mean * math.log1p(-chance())
    shape = 1 / (variation * variation)
    boost = 1.0
    if shape < 1:
        boost = (1.0 - chance()) ** (1 / shape)
        shape += 1
    third = shape - 1 / 3
    scale = 1 / math.sqrt(9 * third)
    while True:
        drawn = normal(chance)
        cube = (1 + scale * drawn) ** 3
        if cube > 0 and math.log1p(-chance()) < drawn * drawn / 2 + third - third * cube + third * (
            math.log(cube)
        ):
            break
    return mean * boost * third * cube * variation * variation


def weibull(shape: float, chance: Chance) -> float:
    """A gap of a Weibull renewal process of scale 1.

    Formula: (−ln(1 − u)) ^ (1 / shape)
    """
    return float((-math.log1p(-chance())) ** (1 / shape))
