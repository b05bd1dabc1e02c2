"""What each GPU holds and does now, from whichever of the usual tools printed it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from heavylift.errors import HeavyliftError
from heavylift.records.watch import Sight
from heavylift.telemetry.kfd import DrmCard

IN_USE: Final = 0.02
"""Share of a GPU's memory above which it is the engine's: a driver alone holds less."""
EVEN: Final = 0.10
"""The fullest GPU may hold that much more than the emptiest, as a share of the fullest: layouts
that split by layers and by heads leave a few percent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuReading:
    """One GPU at one time. `at_s`: since the start of the watch. None = the tool did not say.

    `gtt_*`: host memory that the driver of an AMD card lets it use as its own.
    """

    at_s: float
    gpu: int
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    use_ratio: float | None = None
    name: str | None = None
    temperature_c: float | None = None
    power_limit_w: float | None = None
    gtt_used_bytes: int | None = None
    gtt_total_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What was told of the GPUs of one machine, and by what. Nothing: `sight` says why."""

    sight: Sight
    source: str | None = None
    gpus: tuple[GpuReading, ...] = ()
    gtt_used_bytes: int | None = None


_NVIDIA: Final = (
    "index,name,memory.used,memory.total,power.draw,power.limit,utilization.gpu,temperature.gpu"
)

TOOLS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "nvidia-smi",
        f"--query-gpu={_NVIDIA}",
        "--format=csv",
    ),
    ("amd-smi", "metric", "--mem-usage", "--power", "--usage", "--temperature", "--json"),
    (
        "rocm-smi",
        "--showmeminfo",
        "vram",
        "gtt",
        "--showuse",
        "--showpower",
        "--showtemp",
        "--json",
    ),
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
        lambda text: nvidia_smi.parse_query(text).gpus,
        rocm_smi.parse_csv,
        rocm_smi.parse_text,
        amd_smi.parse_text,
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
        name=gpu.name,
        temperature_c=gpu.temperature_c,
        power_limit_w=gpu.power_limit_w,
        # Cards of the other maker have no such memory, and their tool no such fields.
        gtt_used_bytes=getattr(gpu, "gtt_used_bytes", None),
        gtt_total_bytes=getattr(gpu, "gtt_total_bytes", None),
    )


def of_kernel(cards: Sequence[DrmCard], at_s: float) -> tuple[GpuReading, ...]:
    """The AMD cards as the kernel's own files tell; a card without memory figures is none."""
    return tuple(
        GpuReading(
            at_s=at_s,
            gpu=place,
            memory_used_bytes=card.vram_used_bytes,
            memory_total_bytes=card.vram_total_bytes,
            power_w=card.power_w,
            use_ratio=None if card.busy_percent is None else card.busy_percent / 100,
            temperature_c=card.temperature_c,
            gtt_used_bytes=card.gtt_used_bytes,
            gtt_total_bytes=card.gtt_total_bytes,
        )
        for place, card in enumerate(with_memory(cards))
    )


def with_memory(cards: Sequence[DrmCard]) -> tuple[DrmCard, ...]:
    """Cards whose memory the kernel tells, in the order of their place on the bus."""
    told = [card for card in cards if card.vram_total_bytes is not None]
    return tuple(sorted(told, key=lambda card: (card.bus_id or "", card.card)))


_SAME_BYTES: Final = 2 << 20
"""amd-smi rounds to whole MiB, rocm-smi and the kernel tell bytes."""


def with_spill(found: Sequence[GpuReading], cards: Sequence[DrmCard]) -> tuple[GpuReading, ...]:
    """Readings of a tool with the host memory that the kernel says each card uses.

    Tools number cards by their place on the bus. Where number or sizes of the cards differ from
    the kernel's, nobody can tell which is which: nothing is joined.
    """
    kernel = with_memory(cards)
    if any(reading.gtt_used_bytes is not None for reading in found):
        return tuple(found)
    if len(kernel) != len(found) or not all(
        reading.memory_total_bytes is not None
        and card.vram_total_bytes is not None
        and abs(reading.memory_total_bytes - card.vram_total_bytes) <= _SAME_BYTES
        for reading, card in zip(found, kernel, strict=True)
    ):
        return tuple(found)
    return tuple(
        replace(reading, gtt_used_bytes=card.gtt_used_bytes, gtt_total_bytes=card.gtt_total_bytes)
        for reading, card in zip(found, kernel, strict=True)
    )
