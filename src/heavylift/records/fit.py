"""What a rack holds: every model and variant of the catalogue that fits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heavylift.records.plan import EngineChoice, Layout, PlanVerdict, Rack, Status
from heavylift.records.ranges import Interval

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class FitRow:
    """One form of a model that fits, on the engine that is taken for it, for one sequence.

    `raised`: it fits only once the driver gives the GPU more of the machine's memory.
    """

    model: str
    title: str
    variant: str
    variant_title: str
    total_parameters: int | None
    active_parameters: int | None
    checkpoint_bytes: int
    engine: str
    engine_version: str
    layout: Layout
    kv_cache_dtype: str
    verdict: PlanVerdict
    status: Status
    max_context_tokens: Interval
    headroom_bytes: int
    engines: tuple[EngineChoice, ...]
    command: str
    raised: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FitMiss:
    """One form that does not fit: bytes of the worst GPU, or of the weights alone; or an error's
    code where no layout or engine takes it.
    """

    model: str
    title: str
    variant: str
    short_bytes: int | None
    code: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FitList:
    """What fits, the most capable first, and what does not, the nearest miss first."""

    rack: Rack
    visible_bytes: int
    raised_bytes: int | None
    setting: str | None
    rows: tuple[FitRow, ...]
    misses: tuple[FitMiss, ...]
    schema: int = SCHEMA
