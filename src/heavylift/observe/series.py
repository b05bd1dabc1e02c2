"""Figures over time: what is kept of a look, for how long, and how finely. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.records.series import LEVELS, Level
from heavylift.records.watch import EngineNow, GpuNow, HostNow, WatchReport

_GPU: tuple[str, ...] = (
    "memory_used_bytes",
    "use_ratio",
    "temperature_c",
    "power_w",
    "gtt_used_bytes",
)
_ENGINE: tuple[str, ...] = (
    "running",
    "waiting",
    "kv_use_ratio",
    "preemptions",
    "prefix_hit_ratio",
    "prompt_tokens_per_s",
    "output_tokens_per_s",
)
_HOST: tuple[str, ...] = (
    "memory_available_bytes",
    "swap_used_bytes",
    "gtt_used_bytes",
    "load_1m",
)


def figures(report: WatchReport) -> dict[str, float]:
    """The figures of a look by name (`gpu.HOST.0.power_w`, `engine.running`); unknown ones are not
    there.
    """
    return dict((*_of_gpus(report.gpus), *_of_engine(report.engine), *_of_host(report.host)))


def _of_gpus(gpus: tuple[GpuNow, ...]) -> Iterator[tuple[str, float]]:
    for gpu in gpus:
        for name in _GPU:
            value = getattr(gpu, name)
            if value is not None:
                yield f"gpu.{gpu.host}.{gpu.gpu}.{name}", float(value)


def _of_engine(engine: EngineNow) -> Iterator[tuple[str, float]]:
    for name in _ENGINE:
        value = getattr(engine, name)
        if value is not None:
            yield f"engine.{name}", float(value)
    lengths = (("prompt_length", engine.prompt_lengths), ("output_length", engine.output_lengths))
    for name, bins in lengths:
        for each in bins:
            most = "more" if each.most_tokens is None else each.most_tokens
            yield f"engine.{name}.{most}", float(each.requests)
    timed = (("ttft", engine.ttft), ("tpot", engine.tpot), ("e2e", engine.e2e))
    for name, times in timed:
        # Since the start is no figure of this moment.
        if times is not None and times.basis == "window":
            yield f"engine.{name}_p50_s", times.p50_s
            yield f"engine.{name}_p99_s", times.p99_s


def _of_host(host: HostNow) -> Iterator[tuple[str, float]]:
    for name in _HOST:
        value = getattr(host, name)
        if value is not None:
            yield f"host.{name}", float(value)
    for disk in host.disks:
        yield f"host.disk_free_bytes.{disk.path}", float(disk.free_bytes)


def level_for(span_s: float, levels: tuple[Level, ...] = LEVELS) -> Level:
    """The finest level that keeps the last `span_s` seconds; the coarsest where none does."""
    return next((level for level in levels if level.keep_s >= span_s), levels[-1])
