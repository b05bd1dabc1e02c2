"""The gate: whether a stage measured the server, or the client that was meant to measure it. Pure.

An invalid result says so, with every reason, and makes the command fail: a number that is printed
is a number that is quoted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from heavylift.bench.records import ClientHealth, Figures, Sample
from heavylift.wire.failures import Failure

_TIMEOUTS: Final = frozenset(
    {
        Failure.TIMEOUT_CONNECT,
        Failure.TIMEOUT_FIRST_BYTE,
        Failure.TIMEOUT_GAP,
        Failure.TIMEOUT_TOTAL,
    }
)
SERVER_REASONS: Final = frozenset({"no_success", "error_rate", "client_timeouts"})
"""Reasons that are the server's doing: the result is no measurement of latency, but it says that
this load is too much.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What a valid stage may have at most.

    The client's own lateness may be a tenth of the latency it reports, or 10 ms where latencies
    are tiny: below that nobody decides by the difference. A client at 90 % of its one core has no
    room left to be on time. `error_rate`: what fails is missing from the latencies.
    """

    lag_floor_s: float = 0.010
    lag_share: float = 0.1
    cpu_ratio: float = 0.9
    error_rate: float = 0.01


def reasons(
    samples: Sequence[Sample],
    figures: Figures,
    client: ClientHealth,
    *,
    prefix_is_shared: bool,
    bounds: Bounds,
) -> tuple[str, ...]:
    """Why the stage is not valid; nothing = it is.

    Kinds: `no_success`, `error_rate`, `client_timeouts`, `loop_lag`, `client_cpu`,
    `schedule_delay`, `connect_wait`, `in_flight_limit`, `repeated_prompts`, `usage_mismatch`.
    """
    late_s = max(bounds.lag_floor_s, bounds.lag_share * _median(figures))
    found = {
        "no_success": figures.requests.ok == 0,
        "error_rate": figures.error_rate > bounds.error_rate,
        "client_timeouts": any(sample.failure in _TIMEOUTS for sample in samples),
        "loop_lag": client.loop_lag_p99_s > late_s,
        "client_cpu": client.cpu_ratio > bounds.cpu_ratio,
        "schedule_delay": client.schedule_delay_p99_s > late_s,
        "connect_wait": client.connect_p99_s > max(late_s, _CONNECT_S),
        "in_flight_limit": client.reached_in_flight_limit,
        "repeated_prompts": not prefix_is_shared and _repeats(samples),
        "usage_mismatch": any(_mismatched(sample) for sample in samples),
    }
    return tuple(reason for reason, holds in found.items() if holds)


_CONNECT_S: Final = 1.0
"""A new connection is not part of any latency; only a wait that delays the load itself counts."""


def _median(figures: Figures) -> float:
    """The latency that the client's lateness would distort first."""
    return figures.ttft_s.p50 if figures.ttft_s is not None else 0.0


def _repeats(samples: Sequence[Sample]) -> bool:
    seen = Counter(sample.prompt_digest for sample in samples)
    return any(times > 1 for times in seen.values())


def _mismatched(sample: Sample) -> bool:
    """True when the server counts fewer tokens than it sent chunks with something in them."""
    if sample.failure is not None or not sample.counted_by_server:
        return False
    return sample.completion_tokens < sample.chunks
