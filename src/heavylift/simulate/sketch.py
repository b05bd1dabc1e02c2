"""Quantiles of a stream in fixed memory, with a known relative error."""

from __future__ import annotations

import math
from typing import Final

RELATIVE_ERROR: Final = 0.005
"""A quantile is off by at most this part of itself."""

_GAMMA: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA: Final = math.log(_GAMMA)
_LEAST: Final = 1e-9
"""Smaller values (and 0) count as 0."""


class Sketch:
    """Counts by buckets whose bounds grow by a constant factor.

    Memory: a bucket per 1 % of growth, some 4,000 from a nanosecond to a decade.
    Source: Masson, Rim and Lee, DDSketch, VLDB 2019.
    """

    __slots__ = ("_zeros", "buckets", "count", "largest", "total")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self._zeros = 0
        self.count = 0
        self.total = 0.0
        self.largest = 0.0

    def add(self, value: float) -> None:
        """Count a value that is not negative."""
        self.count += 1
        self.total += value
        self.largest = max(self.largest, value)
        if value < _LEAST:
            self._zeros += 1
            return
        bucket = math.ceil(math.log(value) / _LOG_GAMMA)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    @property
    def mean(self) -> float:
        """The exact mean; 0 of nothing."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The `share` quantile (0 to 1): the value of that rank, within the error; 0 of none."""
        rank = share * (self.count - 1)
        passed = self._zeros
        if not self.count or rank < passed:
            return 0.0
        for bucket in sorted(self.buckets):
            passed += self.buckets[bucket]
            if rank < passed:
                return min(self.largest, 2 * _GAMMA**bucket / (_GAMMA + 1))
        return self.largest
