"""Service level objectives as people write them: `ttft_p99=2s,tpot_p99=50ms`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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

    @property
    def share(self) -> float | None:
        """The part of requests that stays within the bound: 0.99 for p99; None for a mean."""
        if self.statistic == "max":
            return 1.0
        return int(self.statistic[1:]) / 100 if self.statistic.startswith("p") else None


def parse_goals(text: str) -> tuple[Goal, ...]:
    """All bounds of a text. Raises USE060 for anything else."""
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
    return tuple(goals)
