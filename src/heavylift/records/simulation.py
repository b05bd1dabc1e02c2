"""Simulation: what a fleet makes of traffic, at the slow end, the middle and the fast end.

Every figure is of simulated time. A band has as its ends the runs of the same requests at the two
ends of the speed's interval; `middle` is the run between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.records.plan import Layout, Note, Rack
from heavylift.records.speed import Band, SpeedBasis

SCHEMA: Final = 1


class PaceEnd(StrEnum):
    """Which end of the speed's interval a run takes."""

    SLOW = "slow"
    MIDDLE = "middle"
    FAST = "fast"


class FleetVerdict(StrEnum):
    """Whether the objectives are met: at every speed of the interval, at some, at none."""

    MEETS = "meets"
    DEPENDS = "depends"
    MISSES = "misses"
    NOT_ASKED = "not_asked"


class Limit(StrEnum):
    """What binds: seats or memory keep requests waiting, prompts do, a step is as long as it is,
    replicas are down; or nothing does.
    """

    SEATS = "seats"
    KV_POOL = "kv_pool"
    PREFILL = "prefill"
    DECODE = "decode"
    OUTAGES = "outages"
    NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantiles:
    """A latency in seconds over all counted requests, each within half a percent."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetRun:
    """One run. Rates are of the whole fleet.

    `within_ratio`: requests inside every limit. `queue_grows`: more came than was served, so waits
    have no end of their own. `hit_ratio`: prompt tokens found in prefix caches. `refused` were
    longer than a whole pool, `broken` began again because their replica went down.
    """

    pace: PaceEnd
    factor: float
    requests: int
    ttft_s: Quantiles
    tpot_s: Quantiles
    e2e_s: Quantiles
    met: bool
    within_ratio: float
    requests_per_s: float
    output_tokens_per_s: float
    queue_grows: bool
    busy_ratio: float
    prefill_ratio: float
    decode_batch: float
    hit_ratio: float
    preemptions: int
    refused: int
    broken: int
    failures: int
    binding: Limit


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """What comes: a generator's name or a file, its rate, and means over the counted requests."""

    name: str
    recorded: bool
    rate_per_s: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetLayout:
    """The machines: racks that serve, and racks that only compute prompts (0 = none)."""

    rack: Rack
    layout: Layout
    racks: int
    prefill_rack: Rack | None = None
    prefill_layout: Layout | None = None
    prefill_racks: int = 0

    @property
    def gpu_count(self) -> int:
        """GPUs in all."""
        more = self.prefill_rack.gpu_count * self.prefill_racks if self.prefill_rack else 0
        return self.rack.gpu_count * self.racks + more


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """What a change does to the highest rate, requests per second, at the middle speed."""

    change: str
    rate_per_s: float
    ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetCost:
    """USD per million output tokens at the highest rate within the objectives."""

    usd_per_hour: Band
    usd_per_million_output: Band
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """The whole answer.

    `highest_rate_per_s`: what this fleet serves within the objectives; low 0 = not even a little at
    the slow end. `racks_needed`: racks that serve the asked rate at the fast end and the slow end,
    None = no number of them. `tokens_held` by a replica; `start_s` is what one takes to start.
    """

    model: str
    title: str
    variant_title: str
    engine: str
    engine_title: str
    engine_version: str
    fleet: FleetLayout
    traffic: Traffic
    router: str
    slo: str
    seed: int
    basis: SpeedBasis
    runs: tuple[FleetRun, ...]
    verdict: FleetVerdict
    tokens_held: int
    state_tokens: int
    seats: int | None
    start_s: float | None
    highest_rate_per_s: Band | None = None
    racks_needed: tuple[int | None, int | None] | None = None
    gains: tuple[Gain, ...] = ()
    cost: FleetCost | None = None
    notes: tuple[Note, ...] = field(default_factory=tuple)
    schema: int = SCHEMA
