"""Records of a benchmark: one request, one stage, the report. Seconds and tokens throughout."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.records.served_model import ServedModel
from heavylift.telemetry.gpu_readings import GpuReading
from heavylift.wire.failures import Failure

SCHEMA: Final = 1


class LoadKind(StrEnum):
    """How requests are sent."""

    CLOSED = "closed"
    """A fixed number at once: the next starts when one ends."""
    POISSON = "poisson"
    """Independent arrivals at a mean rate, whatever the server does."""
    CONSTANT = "constant"
    """Arrivals at equal gaps."""
    TRACE = "trace"
    """Arrivals at the times of a recorded trace."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The load of one stage.

    `concurrency` counts for a closed loop, `rate_per_s` for Poisson and constant arrivals.
    `in_flight_limit` bounds an open loop: reaching it makes the result invalid.
    """

    kind: LoadKind
    requests: int
    concurrency: int | None = None
    rate_per_s: float | None = None
    in_flight_limit: int = 4096

    @property
    def label(self) -> str:
        """Its name among the stages of a run: `closed 8`, `poisson 2.5`, `trace`."""
        amount = self.concurrency if self.kind is LoadKind.CLOSED else self.rate_per_s
        return str(self.kind) if amount is None else f"{self.kind} {amount:g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One request. Times are seconds after the stage began, latencies after the request was
    written. `failure` None = a finished, well-formed answer.

    `index` names the prompt: equal in two runs with equal seed and workload. `turn` counts from 0
    inside a conversation. `completion_tokens` is the server's count, or that of the chunks when
    `counted_by_server` is False. `tokens_in_first_chunk` is 1 unless the server said. `load` is the
    label of its stage's load; None in files of earlier versions.
    """

    index: int
    turn: int = 0
    load: str | None = None
    prompt_digest: str
    scheduled_s: float
    started_s: float
    ended_s: float
    connect_s: float | None = None
    ttft_s: float | None = None
    ttfa_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    itl_s: tuple[float, ...] = ()
    stamp_error_s: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int = 0
    reasoning_tokens: int | None = None
    tokens_in_first_chunk: int = 1
    chunks: int = 0
    counted_by_server: bool = True
    wanted_tokens: int | None = None
    finish_reason: str | None = None
    failure: Failure | None = None
    status: int | None = None
    error: str | None = None
    resent: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """A distribution of `count` values, in seconds."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    min: float
    max: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestCounts:
    """Requests of a stage; `failures` by class."""

    ok: int
    failed: int
    failures: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientHealth:
    """What the client itself had to do: the ground on which a result is valid or not.

    `loop_lag_*`: how late the client's event loop ran a timer. `cpu_ratio`: its processor time
    over wall time; 1.0 = a whole core.
    """

    loop_lag_p50_s: float
    loop_lag_p99_s: float
    cpu_ratio: float
    schedule_delay_p99_s: float
    connect_p99_s: float
    reached_in_flight_limit: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerPoint:
    """The engine's own metrics at one time (seconds after the stage began). None = not offered."""

    at_s: float
    running: float | None = None
    waiting: float | None = None
    kv_use_ratio: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What the samples of one stage say by themselves. Latencies are of successful requests only;
    None = none was.

    `itl_is_chunk_gap`: chunks hold several tokens each, so the gaps are not per token.
    `counted_by_server` False = chunks were counted in place of tokens, at least for some.
    `goodput_per_s` None = no SLO was given. `window_s`: first send to last byte.
    """

    requests: RequestCounts
    window_s: float
    ttft_s: Distribution | None
    ttfa_s: Distribution | None
    tpot_s: Distribution | None
    itl_s: Distribution | None
    e2e_s: Distribution | None
    stamp_error_s: Distribution | None
    itl_is_chunk_gap: bool
    counted_by_server: bool
    chunks_per_token: float | None
    output_tokens_per_s: float
    total_tokens_per_s: float | None
    achieved_per_s: float
    error_rate: float
    goodput_per_s: float | None
    slo_met: bool | None
    prompt_tokens_mean: float | None
    output_tokens_mean: float | None
    reasoning_share: float | None
    cached_share: float | None
    output_length_deviation: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What the rack was expected to do at this stage's load, beside what was measured.

    `bound_tpot_s` is the time the memory takes for the bytes of a step at its full bandwidth: no
    engine is faster. `bound_ratio` = bound / measured. The band is a forecast; `place` is where the
    measured time lies: `inside`, `faster` or `slower`. `experts_ratio`: the part of a layer's
    experts that a step reads; None for a dense model.
    """

    measured_tpot_s: float
    bound_tpot_s: float
    bound_ratio: float
    band_low_s: float
    band_high_s: float
    place: str
    evidence: str
    experts_ratio: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage(Figures):
    """One stage of load: its figures, what was going on in the client, the engine and the GPUs
    meanwhile, and whether it is valid. `offered_per_s` None = a closed loop offers no rate.
    """

    load: Load
    offered_per_s: float | None
    client: ClientHealth
    server: tuple[ServerPoint, ...]
    gpus: tuple[GpuReading, ...] = ()
    forecast: Forecast | None = None
    valid: bool
    invalid_reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The outcome of a search for the highest concurrency under an SLO.

    `concurrency` None = not even one request at a time met it. `ended_by`: `slo` a higher one was
    tried and missed; `limit` the highest allowed one still met it; `invalid` the client could not
    measure further.
    """

    concurrency: int | None
    slo: str
    ended_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A benchmark. The figures beside `stages` are those of the headline stage: the one found,
    else the last.
    """

    target: ServedModel
    started_at: str
    heavylift_version: str
    seed: int
    settings: dict[str, str | int | float | bool | None]
    ttft_s: Distribution | None
    ttfa_s: Distribution | None
    tpot_s: Distribution | None
    itl_s: Distribution | None
    e2e_s: Distribution | None
    output_tokens_per_s: float
    goodput_per_s: float | None
    requests: RequestCounts
    valid: bool
    invalid_reasons: tuple[str, ...]
    stages: tuple[Stage, ...]
    found: Found | None = None
    samples_file: str | None = None
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricChange:
    """One metric in two runs: B − A with its interval. `is_worse` None = the interval holds 0."""

    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    is_worse: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two runs side by side. `pairs`: requests with the same prompt that succeeded in both; 0 =
    unpaired. Latencies are of those alone: `errors` compares the share of requests that failed.

    `requests_*`: how many succeeded and failed. `loads`: where a run had several stages, those that
    both runs had, which alone are compared. `target_*`: what was measured; None = the file
    holds only its requests.
    """

    a: str
    b: str
    pairs: int
    requests_a: RequestCounts
    requests_b: RequestCounts
    errors: MetricChange
    changes: tuple[MetricChange, ...]
    loads: tuple[str, ...] = ()
    target_a: ServedModel | None = None
    target_b: ServedModel | None = None
    schema: int = SCHEMA
