"""Speed: how fast a layout serves a workload, as bands with the evidence they rest on.

No figure of speed is a point. A `Band` is what a step-time model gives, spread by how far published
measurements of the same class fell from that model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.records.plan import Layout, Note, Rack
from heavylift.records.ranges import Interval

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """A positive quantity that lies between `low` and `high`. Unit: said by the field."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """How many times the high is the low."""
        return self.high / self.low

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


class Evidence(StrEnum):
    """What the width of a band rests on, narrowest first.

    `anchored`: the user's own service was measured. `known`: published rows of this class agree.
    `thin`: rows of this class, too few or far apart: its own middle, a wide band. `unseen`: none.
    """

    ANCHORED = "anchored"
    KNOWN = "known"
    THIN = "thin"
    UNSEEN = "unseen"


class SpeedPart(StrEnum):
    """The parts of the time of a token, and what a request may wait for."""

    FIXED = "fixed"
    DENSE_WEIGHTS = "dense_weights"
    EXPERT_WEIGHTS = "expert_weights"
    KV_CACHE = "kv_cache"
    RECURRENT_STATE = "recurrent_state"
    COMPUTE = "compute"
    COLLECTIVES = "collectives"
    PREFILL = "prefill"
    QUEUE = "queue"


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedTerm:
    """One part of the time of an output token: its share of the whole, and what it counts."""

    id: SpeedPart
    share_ratio: float
    formula: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Speculation:
    """Speculative decoding: `accepted_tokens` per step of `draft_tokens` drafted ones."""

    method: str
    draft_tokens: int
    accepted_tokens: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedWorkload:
    """Requests as they come: `concurrency` clients that each send the next when one is answered.

    `cached_ratio` is the part of the input that a prefix cache spares.
    """

    concurrency: int
    input_tokens: int
    output_tokens: int
    cached_ratio: float = 0.0
    speculation: Speculation | None = None

    @property
    def context_tokens(self) -> int:
        """Tokens a finished sequence holds."""
        return self.input_tokens + self.output_tokens

    @property
    def uncached_tokens(self) -> float:
        """Tokens that prefill computes: of a prompt that is cached whole, still its last one."""
        return max(min(1.0, self.input_tokens), self.input_tokens * (1 - self.cached_ratio))


@dataclass(frozen=True, kw_only=True, slots=True)
class AnchorPoint:
    """One measured point of the user's own service. Seconds per output token and sequence."""

    concurrency: int
    input_tokens: int
    output_tokens: int
    tpot_s: float
    cached_ratio: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedBasis:
    """What a band rests on: the class, how many rows and sweeps, of which versions and days.

    `low_ratio` and `high_ratio` spread the model's time. `reason` is a code that says why a class
    counts as unseen (`no_rows`, `few_rows`, `rows_disagree`); empty otherwise.
    """

    evidence: Evidence
    gpu: str
    engine: str
    crosses_nodes: bool
    low_ratio: float
    high_ratio: float
    rows: int
    sweeps: int
    reason: str = ""
    versions: tuple[str, ...] = ()
    first: str = ""
    last: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """The whole answer for one layout and workload.

    `decode_batch` sequences are decoded at once, over all replicas; the other clients wait for
    prefill or for room. `room_sequences` is what KV and state hold. `tpot_floor_s` is the time the
    memory needs for the bytes at its full bandwidth: a bound, never a forecast. `refusal` says why
    the asked concurrency cannot be decoded at once; the bands are then those of what fits.
    """

    model: str
    title: str
    variant: str
    variant_title: str
    engine: str
    engine_title: str
    engine_version: str
    rack: Rack
    layout: Layout
    workload: SpeedWorkload
    basis: SpeedBasis
    tpot_s: Band
    ttft_s: Band
    output_tokens_per_s: Band
    output_tokens_per_s_per_gpu: Band
    tpot_floor_s: float
    decode_batch: float
    distinct_experts: float | None
    experts: int | None
    room_sequences: Interval
    terms: tuple[SpeedTerm, ...]
    binding: SpeedPart
    refusal: Note | None = None
    notes: tuple[Note, ...] = field(default_factory=tuple)
    schema: int = SCHEMA
