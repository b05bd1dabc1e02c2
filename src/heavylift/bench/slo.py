"""Service level objectives: parsing, judging, and the search for the most that meets one. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from heavylift.bench.records import Distribution, Sample
from heavylift.errors import HeavyliftError

METRICS: Final = ("ttft", "ttfa", "tpot", "itl", "e2e")
STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99", "max")
_GOAL: Final = re.compile(r"(ttft|ttfa|tpot|itl|e2e)_(mean|p50|p90|p95|p99|max)=([0-9.]+)(ms|s)")
_SECONDS: Final = {"ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """One bound: the statistic of the metric is at most `limit_s`."""

    metric: str
    statistic: str
    limit_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Slo:
    """All bounds together, and the text they came from."""

    goals: tuple[Goal, ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> Slo:
        """From `ttft_p99=2s,tpot_p99=50ms`. Raises USE060 for anything else."""
        goals = []
        for part in text.split(","):
            match = _GOAL.fullmatch(part.strip())
            if match is None or match[3].count(".") > 1 or match[3] == ".":
                raise HeavyliftError(
                    "USE060",
                    {
                        "part": part.strip(),
                        "metrics": ", ".join(METRICS),
                        "statistics": ", ".join(STATISTICS),
                    },
                )
            limit_s = float(match[3]) * _SECONDS[match[4]]
            goals.append(Goal(metric=match[1], statistic=match[2], limit_s=limit_s))
        return cls(goals=tuple(goals), text=text)

    def met_by(self, figures: Mapping[str, Distribution | None]) -> bool:
        """True when every bound holds. A metric that was not measured does not meet its bound."""
        return all(
            (measured := figures[goal.metric]) is not None
            and getattr(measured, goal.statistic) <= goal.limit_s
            for goal in self.goals
        )

    def holds_for(self, sample: Sample) -> bool:
        """True when this one request keeps within every limit; of gaps, the longest counts.

        A request of a single token has no time per token, and cannot miss a bound on it.
        """
        return all(
            value is None or value <= goal.limit_s
            for goal in self.goals
            for value in (_of(sample, goal.metric),)
        )


def _of(sample: Sample, metric: str) -> float | None:
    if metric == "itl":
        return max(sample.itl_s, default=None)
    value: float | None = getattr(sample, f"{metric}_s")
    return value


@dataclass(slots=True)
class Search:
    """The search for the highest concurrency that meets an SLO: doubling, then halving the gap.

    `next()` is what to try, None when it is over. It ends when the gap is within `tolerance` of
    the best (a fraction), because neighbours cannot be told apart by a run of usual length.
    """

    highest: int
    tolerance: float = 0.1
    best: int | None = field(default=None, init=False)
    missed: int | None = field(default=None, init=False)
    stopped: bool = field(default=False, init=False)

    def next(self) -> int | None:
        """The concurrency to try next."""
        if self.stopped or self.missed == 1:
            return None
        if self.missed is None:
            return self._double()
        best = self.best or 0
        if self.missed - best <= max(1, int(self.tolerance * best)):
            return None
        return (best + self.missed) // 2

    def note(self, concurrency: int, met: bool, valid: bool) -> None:
        """Take the outcome of a try. What could not be measured ends the search."""
        if not valid:
            self.stopped = True
        elif met:
            self.best = concurrency
        else:
            self.missed = concurrency

    @property
    def ended_by(self) -> str:
        """Why it is over: `slo`, `limit` or `invalid`."""
        if self.stopped:
            return "invalid"
        return "limit" if self.missed is None else "slo"

    def _double(self) -> int | None:
        if self.best is None:
            return 1
        return min(2 * self.best, self.highest) if self.best < self.highest else None
