"""Intervals. Every uncertain number of the project is one of these, never a point with a guess."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A whole number known to lie between `low` and `high`, both included.

    `high` is None when no upper bound is known. Unit: said by the field that holds it.
    """

    low: int
    high: int | None

    @classmethod
    def exactly(cls, value: int) -> Interval:
        """The interval that holds one value."""
        return cls(low=value, high=value)

    @property
    def is_point(self) -> bool:
        """True when both ends are known and equal."""
        return self.low == self.high

    def __add__(self, other: Interval) -> Interval:
        high = None if self.high is None or other.high is None else self.high + other.high
        return Interval(low=self.low + other.low, high=high)

    def __contains__(self, value: int) -> bool:
        return self.low <= value and (self.high is None or value <= self.high)


ZERO = Interval(low=0, high=0)
UNKNOWN = Interval(low=0, high=None)
