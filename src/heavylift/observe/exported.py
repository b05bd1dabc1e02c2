"""The exporter's metrics: names, units, labels, and their values of a look. Pure.

One table: what is exported, what dashboards draw and what alerts ask for go by the same names.
Source: https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from heavylift.records.watch import GpuNow, Quantiles, Sight, WatchReport

PREFIX: Final = "heavylift_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A metric. `name` without the prefix; `kind` is `gauge` or `counter`."""

    name: str
    kind: str
    labels: tuple[str, ...]


_GPU: Final = ("deployment", "host", "gpu", "model")
_ENGINE: Final = ("deployment",)
_HOST: Final = ("host",)


def _gauges(labels: tuple[str, ...], *names: str) -> tuple[Family, ...]:
    return tuple(Family(name=name, kind="gauge", labels=labels) for name in names)


FAMILIES: Final[tuple[Family, ...]] = (
    *_gauges(
        _GPU,
        "gpu_memory_used_bytes",
        "gpu_memory_total_bytes",
        "gpu_memory_planned_low_bytes",
        "gpu_memory_planned_high_bytes",
        "gpu_memory_drift_bytes",
        "gpu_use_ratio",
        "gpu_temperature_celsius",
        "gpu_power_watts",
        "gpu_power_limit_watts",
        "gpu_gtt_used_bytes",
    ),
    *_gauges(
        _ENGINE,
        "gpus_seen",
        "engine_metrics_seen",
        "engine_requests_running",
        "engine_requests_waiting",
        "engine_kv_use_ratio",
        "engine_prefix_hit_ratio",
        "engine_prompt_tokens_per_second",
        "engine_output_tokens_per_second",
        "deployment_ready",
        "deployment_alive",
        "deployment_restarts",
    ),
    *(
        Family(name=f"engine_{name}", kind="counter", labels=_ENGINE)
        for name in ("preemptions", "prompt_tokens", "generation_tokens", "requests", "steps")
    ),
    *_gauges(
        ("deployment", "quantile"),
        "engine_ttft_seconds",
        "engine_tpot_seconds",
        "engine_e2e_seconds",
    ),
    *_gauges(
        ("deployment", "tokens"), "engine_prompt_length_requests", "engine_output_length_requests"
    ),
    *_gauges(("deployment", "term", "bound"), "memory_term_planned_bytes"),
    *_gauges(("deployment", "term"), "memory_term_observed_bytes"),
    *_gauges(("deployment", "code", "subject"), "finding"),
    *_gauges(
        _HOST,
        "host_memory_total_bytes",
        "host_memory_available_bytes",
        "host_swap_used_bytes",
        "host_gtt_used_bytes",
        "host_load1",
    ),
    *_gauges(("host", "path"), "host_disk_free_bytes", "host_disk_total_bytes"),
)

Value = tuple[str, tuple[str, ...], float]
"""Name of a family, its labels' values, the value."""


def names() -> frozenset[str]:
    """Every name a query may use; a counter's ends in `_total`."""
    return frozenset(
        f"{PREFIX}{family.name}{'_total' if family.kind == 'counter' else ''}"
        for family in FAMILIES
    )


def values(reports: Sequence[WatchReport]) -> tuple[Value, ...]:
    """The values of a look at several deployments; what nobody told is not among them.

    The host is that of the first: it is the same machine for all.
    """
    found: list[tuple[str, tuple[str, ...], float | None]] = []
    for report in reports:
        found += _of_gpus(report)
        found += _of_engine(report)
        found += _of_terms(report)
    if reports:
        found += _of_host(reports[0])
    return tuple((name, labels, float(value)) for name, labels, value in found if value is not None)


def _label(report: WatchReport) -> str:
    return report.name or report.url or ""


_Told = Iterator[tuple[str, tuple[str, ...], float | None]]


def _of_gpus(report: WatchReport) -> _Told:
    for gpu in report.gpus:
        labels = (_label(report), gpu.host, str(gpu.gpu), gpu.name or "")
        for name, value in _gpu(gpu):
            yield f"gpu_{name}", labels, value


def _gpu(gpu: GpuNow) -> Iterable[tuple[str, float | None]]:
    return (
        ("memory_used_bytes", gpu.memory_used_bytes),
        ("memory_total_bytes", gpu.memory_total_bytes),
        ("memory_planned_low_bytes", gpu.planned_low_bytes),
        ("memory_planned_high_bytes", gpu.planned_high_bytes),
        ("memory_drift_bytes", gpu.drift_bytes),
        ("use_ratio", gpu.use_ratio),
        ("temperature_celsius", gpu.temperature_c),
        ("power_watts", gpu.power_w),
        ("power_limit_watts", gpu.power_limit_w),
        ("gtt_used_bytes", gpu.gtt_used_bytes),
    )


def _of_engine(report: WatchReport) -> _Told:
    engine, labels = report.engine, (_label(report),)
    yield "gpus_seen", labels, len(report.gpus)
    if engine.sight is not Sight.NO_ENGINE:
        yield "engine_metrics_seen", labels, float(engine.sight is Sight.SEEN)
    if report.phase is not None:
        yield "deployment_ready", labels, float(report.phase == "ready")
        # Suspect is not dead: the second proof is being taken.
        yield "deployment_alive", labels, float(report.alive in ("alive", "suspect"))
        yield "deployment_restarts", labels, report.restarts
    yield "engine_requests_running", labels, engine.running
    yield "engine_requests_waiting", labels, engine.waiting
    yield "engine_kv_use_ratio", labels, engine.kv_use_ratio
    yield "engine_prefix_hit_ratio", labels, engine.prefix_hit_ratio
    yield "engine_prompt_tokens_per_second", labels, engine.prompt_tokens_per_s
    yield "engine_output_tokens_per_second", labels, engine.output_tokens_per_s
    yield "engine_preemptions", labels, engine.preemptions
    yield "engine_prompt_tokens", labels, engine.prompt_tokens
    yield "engine_generation_tokens", labels, engine.generation_tokens
    yield "engine_requests", labels, engine.requests
    yield "engine_steps", labels, engine.steps
    yield from _times("engine_ttft_seconds", labels, engine.ttft)
    yield from _times("engine_tpot_seconds", labels, engine.tpot)
    yield from _times("engine_e2e_seconds", labels, engine.e2e)
    for name, bins in (("prompt", engine.prompt_lengths), ("output", engine.output_lengths)):
        for each in bins:
            most = "+Inf" if each.most_tokens is None else str(each.most_tokens)
            yield f"engine_{name}_length_requests", (*labels, most), float(each.requests)


def _times(name: str, labels: tuple[str, ...], times: Quantiles | None) -> _Told:
    # Since the start is no figure of this moment.
    if times is not None and times.basis == "window":
        yield name, (*labels, "0.5"), times.p50_s
        yield name, (*labels, "0.99"), times.p99_s


def _of_terms(report: WatchReport) -> _Told:
    deployment = _label(report)
    for term in report.terms:
        low, high = term.planned_low_bytes, term.planned_high_bytes
        yield "memory_term_planned_bytes", (deployment, term.term, "low"), low
        yield "memory_term_planned_bytes", (deployment, term.term, "high"), high
        yield "memory_term_observed_bytes", (deployment, term.term), term.observed_bytes
    for finding in report.findings:
        yield "finding", (deployment, finding.code, finding.subject), 1.0


def _of_host(report: WatchReport) -> _Told:
    host = report.host
    labels = (host.name,)
    yield "host_memory_total_bytes", labels, host.memory_total_bytes
    yield "host_memory_available_bytes", labels, host.memory_available_bytes
    yield "host_swap_used_bytes", labels, host.swap_used_bytes
    yield "host_gtt_used_bytes", labels, host.gtt_used_bytes
    yield "host_load1", labels, host.load_1m
    for disk in host.disks:
        yield "host_disk_free_bytes", (host.name, disk.path), disk.free_bytes
        yield "host_disk_total_bytes", (host.name, disk.path), disk.total_bytes
