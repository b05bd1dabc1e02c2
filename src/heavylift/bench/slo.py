"""Service level objectives: parsing, judging, and the search for the most that meets one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heavylift.bench.records import Distribution, Sample
from heavylift.slo import Goal, parse_goals


@dataclass(frozen=True, kw_only=True, slots=True)
class Slo:
    """All bounds together, and the text they came from."""

    goals: tuple[Goal, ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> Slo:
        """From `ttft_p99=2s,tpot_p99=50ms`. Raises USE060 for anything else."""
        return cls(goals=parse_goals(text), text=text)

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
    again: int | None = field(default=None, init=False)
    stopped: bool = field(default=False, init=False)

    def next(self) -> int | None:
        """The concurrency to try next."""
        if self.stopped or self.missed == 1:
            return None
        if self.again is not None:
            return self.again
        if self.missed is None:
            return self._double()
        best = self.best or 0
        if self.missed - best <= max(1, int(self.tolerance * best)):
            return None
        return (best + self.missed) // 2

    def note(self, concurrency: int, *, met: bool, valid: bool) -> None:
        """Take the outcome of a try. What could not be measured is tried once more, as the client's
        machine may have been busy for a moment; twice in a row ends the search.
        """
        if not valid:
            self.stopped = self.again == concurrency
            self.again = concurrency
            return
        self.again = None
        if met:
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
