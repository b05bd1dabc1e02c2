"""Axes: logarithmic tracks of the sliders, ticks and places of the charts. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

STEPS_PER_DOUBLING: Final = 4
LEAST_CONTEXT: Final = 4096
MOST_CONCURRENCY: Final = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """A slider over doublings from `low` to `high`. `step` is what its values are whole in."""

    low: int
    high: int
    step: int = 1

    @property
    def positions(self) -> int:
        """The last position; the first is 0."""
        return math.ceil(math.log2(self.high / self.low) * STEPS_PER_DOUBLING)

    def place(self, value: int) -> float:
        """Where a value lies, as a part of the track; what is beyond it lies at its ends."""
        bounded = min(max(value, self.low), self.high)
        return math.log2(bounded / self.low) * STEPS_PER_DOUBLING / self.positions

    def position(self, value: int) -> int:
        """The position nearest to a value."""
        return round(self.place(value) * self.positions)


def context_track(most: int) -> Track:
    """The track of the context of a model that takes `most` tokens."""
    low = min(LEAST_CONTEXT, most)
    return Track(low=low, high=max(most, low * 2), step=1024)


def concurrency_track() -> Track:
    """The track of the sequences at once."""
    return Track(low=1, high=MOST_CONCURRENCY)


def round_ticks(high: float, wanted: int = 4) -> tuple[float, ...]:
    """Round numbers from 0 to at least `high`, about `wanted` steps."""
    rough = high / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return tuple(step * number for number in range(math.ceil(high / step - 1e-9) + 1))


def decade_ticks(low: float, high: float) -> tuple[float, ...]:
    """1, 2 and 5 of every decade from at most `low` to at least `high`, both positive."""
    first = math.floor(math.log10(low))
    found = [
        factor * 10.0**power
        for power in range(first - 1, math.ceil(math.log10(high)) + 2)
        for factor in (1, 2, 5)
    ]
    below = max(tick for tick in found if tick <= low)
    above = min(tick for tick in found if tick >= high)
    return tuple(tick for tick in found if below <= tick <= above)
