"""What is seen of a running service: its GPUs, its engine, its host; what `top` shows.

None in any field = nobody told. Every figure is of one moment (`at`), or, where it is a rate or a
quantile, of the seconds that `window_s` names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.records.finding import Finding
from heavylift.records.plan import Note

SCHEMA: Final = 1


class Sight(StrEnum):
    """Whether something could be seen, and if not, why not."""

    SEEN = "seen"
    NO_TOOL = "no_tool"
    """Neither a library nor a program nor the kernel tells of a GPU here."""
    TOOL_FAILED = "tool_failed"
    """There is a tool, and it told nothing."""
    ELSEWHERE = "elsewhere"
    """They are in another machine, which nobody here can ask."""
    NO_ENGINE = "no_engine"
    """No engine was named, and none of ours runs."""
    NOT_READY = "not_ready"
    """A deployment of ours that does not serve now."""
    NO_ANSWER = "no_answer"
    NO_METRICS = "no_metrics"
    """It answers, and offers no page of metrics."""
    NO_KNOWN_METRICS = "no_known_metrics"
    """It offers a page on which none of the names we know stands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuNow:
    """One GPU. `planned_*`: what the plan lets it hold; `high` None = the plan knows no bound.

    `gtt_used_bytes` is host memory that an AMD card uses as its own. `drift_bytes`: how far the
    memory in use lies outside the planned interval (0 = inside, negative = below).
    """

    gpu: int
    host: str
    name: str | None = None
    source: str | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    use_ratio: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    gtt_used_bytes: int | None = None
    gtt_total_bytes: int | None = None
    planned_low_bytes: int | None = None
    planned_high_bytes: int | None = None
    drift_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantiles:
    """A time in seconds. `basis`: `window`, or `since_start` where nothing ended in the window."""

    p50_s: float
    p99_s: float
    basis: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthBin:
    """Requests of the window with at most so many tokens, and more than the bin before; None = no
    bound.
    """

    most_tokens: int | None
    requests: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineNow:
    """The engine, as its own metrics tell. Counters count from its start."""

    sight: Sight
    running: float | None = None
    waiting: float | None = None
    kv_use_ratio: float | None = None
    preemptions: float | None = None
    preemptions_in_window: float | None = None
    prefix_hit_ratio: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prompt_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    requests: float | None = None
    steps: float | None = None
    """What its scheduler did; moves while it works."""
    ttft: Quantiles | None = None
    tpot: Quantiles | None = None
    e2e: Quantiles | None = None
    """A whole request, from its arrival to its end."""
    prompt_lengths: tuple[LengthBin, ...] = ()
    output_lengths: tuple[LengthBin, ...] = ()
    window_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """The file system that a folder lies on."""

    path: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HostNow:
    """The machine that is looked from. `gtt_used_bytes`: of all its AMD cards together."""

    name: str
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    gtt_used_bytes: int | None = None
    load_1m: float | None = None
    cpus: int | None = None
    disks: tuple[Disk, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TermNow:
    """A memory term of the fullest GPU in bytes: planned, and as the engine's log or the GPU tells.

    `basis`: `log`, or `gpu`: what the GPU holds beside the terms of the log. `is_inside` None =
    not observed, or nothing planned to hold it against.
    """

    term: str
    planned_low_bytes: int | None = None
    planned_high_bytes: int | None = None
    observed_bytes: int | None = None
    basis: str | None = None
    is_inside: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """Memory of the fullest GPU for sequences of `max_model_len` tokens: needed, and held."""

    max_model_len: int
    need_bytes: int
    held_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchReport:
    """One look. `at` is UTC; `at_s` the same in seconds since 1970.

    `sight` says whether GPUs were seen; `sources` which tools told. `reserves`: the engine takes
    its share of the memory at once, whatever is needed of it: then used memory is no need.
    """

    at: str
    at_s: float
    name: str | None
    url: str | None
    title: str | None
    sight: Sight
    gpus: tuple[GpuNow, ...]
    engine: EngineNow
    host: HostNow
    sources: tuple[str, ...] = ()
    phase: str | None = None
    alive: str | None = None
    restarts: int | None = None
    reserves: bool | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[Note, ...] = ()
    terms: tuple[TermNow, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    schema: int = field(default=SCHEMA)
