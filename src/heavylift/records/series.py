"""Figures over time as they are kept: finely for an hour, by the minute for a day, and so on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """How finely figures are kept, and for how long; seconds."""

    period_s: int
    keep_s: int

    @property
    def most_buckets(self) -> int:
        """The most buckets of one figure at this level: those kept, the one that fills, and one
        that another writer's clock may be ahead.
        """
        return -(-self.keep_s // self.period_s) + 2


SCHEMA: Final = 1

LEVELS: Final = (
    Level(period_s=1, keep_s=3_600),
    Level(period_s=60, keep_s=86_400),
    Level(period_s=600, keep_s=31 * 86_400),
)
"""Seconds for an hour, minutes for a day, ten minutes for a month."""

MOST_FIGURES: Final = 2_000
"""Figures kept in one file: 100 GPUs have 500. More are not taken, so that a file stays bounded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """One figure over `period_s` seconds from `at_s` (since 1970): how often it was seen, its
    extremes, its mean, and what it was last.
    """

    at_s: int
    period_s: int
    count: int
    low: float
    high: float
    mean: float
    last: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureHistory:
    """The course of one figure, in order of time; seconds without a look have no bucket."""

    name: str
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What was kept of the last `span_s` seconds, each bucket `period_s` long."""

    name: str | None
    span_s: float
    period_s: int
    figures: tuple[FigureHistory, ...]
    schema: int = SCHEMA
