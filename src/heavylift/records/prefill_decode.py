"""Prefill and decode on ranks of their own: sizes, bytes handed over, and whether it pays."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from heavylift.records.plan import Layout, Note, Rack
from heavylift.records.ranges import Interval
from heavylift.records.speed import Band, SpeedBasis, SpeedWorkload

SCHEMA: Final = 1


class SplitVerdict(StrEnum):
    """Whether a split service gives more output per GPU within the limit than a whole one.

    `not_possible`: the limit is out of reach for either, or a pool lacks the memory.
    """

    PAYS = "pays"
    DOES_NOT_PAY = "does_not_pay"
    DEPENDS = "depends"
    NOT_POSSIBLE = "not_possible"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """One unit of a pool: a rack that holds the model once or more, and what it does.

    `requests_per_s` of one unit, at the use that split services reach. `batch` sequences decode at
    once on a unit within the limit; None for prefill. `room_sequences` is what KV and state hold.
    """

    rack: Rack
    layout: Layout
    requests_per_s: Band
    batch: Band | None
    room_sequences: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """Bytes of one request from pool to pool.

    `state_bytes` and `kv_bytes_per_token` are logical, each counted once. On the wire a cache that
    every receiving rank needs whole goes to each of them: `wire_copies` times.
    """

    state_bytes: int
    kv_bytes_per_token: int
    wire_state_bytes: int
    wire_kv_bytes_per_token: int
    wire_copies: float
    tokens: int

    @property
    def logical_bytes(self) -> int:
        """Bytes of a request, counted once."""
        return self.state_bytes + self.kv_bytes_per_token * self.tokens

    @property
    def wire_bytes(self) -> int:
        """Bytes of a request on the wire."""
        return self.wire_state_bytes + self.wire_kv_bytes_per_token * self.tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class HandoverTime:
    """Seconds of a request over one link, alone, and the requests a second it carries."""

    link: str
    title: str
    gb_per_s: float
    seconds: float
    requests_per_s: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitNeed:
    """Units that serve the stated clients, at one speed. `whole_units` None: the limit is out of
    reach with prefill in the batch.
    """

    prefill_units: int
    decode_units: int
    whole_units: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefillDecode:
    """The whole answer.

    `ratio` is prefill units per decode unit at matched rates; `prefill_units` and `decode_units`
    the smallest whole numbers near it. `gain` is output per GPU, split over whole, both within the
    limit and filled. `needs` counts units for the stated clients at the fast and the slow end, and
    then decides. `depends_on` names what turns the verdict when it changes.
    """

    model: str
    title: str
    engine: str
    engine_title: str
    engine_version: str
    workload: SpeedWorkload
    tpot_limit_s: float
    prefill: Pool
    decode: Pool
    ratio: Band | None
    prefill_units: int
    decode_units: int
    split_per_gpu: Band | None
    whole_per_gpu: Band | None
    gain: Band | None
    needs: tuple[SplitNeed, ...]
    handover: Handover
    times: tuple[HandoverTime, ...]
    verdict: SplitVerdict
    reasons: tuple[Note, ...]
    depends_on: tuple[Note, ...]
    risks: tuple[Note, ...]
    basis: SpeedBasis
    schema: int = SCHEMA
