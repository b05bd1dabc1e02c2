"""What each GPU holds and does now, from whichever of the usual tools printed it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from heavylift.errors import HeavyliftError


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuReading:
    """One GPU at one time. `at_s`: since the start of the watch. None = the tool did not say."""

    at_s: float
    gpu: int
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    use_ratio: float | None = None


TOOLS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "nvidia-smi",
        "--query-gpu=index,memory.used,memory.total,power.draw,utilization.gpu",
        "--format=csv",
    ),
    ("amd-smi", "metric", "--mem-usage", "--power", "--usage", "--json"),
    ("rocm-smi", "--showmeminfo", "vram", "--showuse", "--showpower", "--json"),
)
"""Commands that say it, as argument lists; the first tool that is there is asked."""


def _readers() -> tuple[Callable[[str], Iterable[Any]], ...]:
    # Loaded where a tool has answered: who only keeps readings need not know the tools.
    from heavylift.telemetry import amd_smi, nvidia_smi, rocm_smi  # noqa: PLC0415

    return (
        lambda text: nvidia_smi.parse_query_csv(text).gpus,
        lambda text: nvidia_smi.parse_query_xml(text).gpus,
        amd_smi.parse_json,
        amd_smi.parse_monitor,
        rocm_smi.parse_json,
        lambda text: nvidia_smi.parse_table(text).gpus,
    )


def readings(text: str, at_s: float) -> tuple[GpuReading, ...]:
    """The GPUs in a tool's output, whichever tool it was. Raises PRE101 when it was none."""
    for read in _readers():
        try:
            gpus = tuple(read(text))
        except HeavyliftError:
            continue
        found = tuple(_reading(gpu, place, at_s) for place, gpu in enumerate(gpus))
        if any(each.memory_used_bytes is not None for each in found):
            return found
    raise HeavyliftError("PRE101", {"what": "gpu tool", "reason": text.strip()[:200]})


def _reading(gpu: Any, place: int, at_s: float) -> GpuReading:
    return GpuReading(
        at_s=at_s,
        gpu=place if gpu.index is None else gpu.index,
        memory_used_bytes=gpu.memory_used_bytes,
        memory_total_bytes=gpu.memory_total_bytes,
        power_w=gpu.power_w,
        use_ratio=None if gpu.use_percent is None else gpu.use_percent / 100,
    )
