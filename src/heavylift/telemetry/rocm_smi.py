"""rocm-smi: JSON, CSV and text, whose key names differ from release to release."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from typing import Final

from heavylift.telemetry.amd_smi import AmdGpu
from heavylift.telemetry.values import (
    as_mapping,
    as_text,
    decode_json,
    known,
    number,
    size_bytes,
    unreadable,
    whole,
)

_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("card series", "card model name", "device name"),
    "gfx": ("gfx version",),
    "device_id": ("device id", "gpu id", "card model"),
    "bus_id": ("pci bus",),
    "unique_id": ("unique id",),
    "vbios": ("vbios version",),
    "compute_partition": ("compute partition",),
    "memory_partition": ("memory partition",),
}
_NO_NUMA: Final = 2**32 - 1
"""Minus one, as a release printed it that took the number for unsigned."""


def parse_json(text: str) -> tuple[AmdGpu, ...]:
    """`rocm-smi … --json`. Raises PRE101 when it is no such document."""
    document = as_mapping(decode_json(text, "rocm-smi --json"))
    system = _lower(as_mapping(document.get("system")))
    cards = [
        (int(match[1]), _lower(as_mapping(value)))
        for key, value in document.items()
        if (match := re.fullmatch(r"card(\d{1,6})", str(key), re.ASCII))
    ]
    if not cards and not system:
        raise unreadable("rocm-smi --json", "no card")
    driver = known(system.get("driver version"))
    return tuple(_gpu(index, values, driver) for index, values in cards)


def parse_csv(text: str) -> tuple[AmdGpu, ...]:
    """`rocm-smi … --csv`. Raises PRE101 when it has no `device` column."""
    lines = [line for line in text.replace("\0", "").splitlines() if line.strip()]
    start = next((place for place, line in enumerate(lines) if line.startswith("device,")), None)
    if start is None:
        raise unreadable("rocm-smi --csv", lines[0] if lines else "empty")
    try:
        rows = list(csv.DictReader(lines[start:]))
    except csv.Error as error:
        raise unreadable("rocm-smi --csv", str(error)) from error
    gpus = []
    for row in rows:
        match = re.fullmatch(r"card(\d{1,6})", row.get("device") or "", re.ASCII)
        if match:
            gpus.append(_gpu(int(match[1]), _lower(row), None))
    return tuple(gpus)


_LINE: Final = re.compile(r"GPU\[(\d{1,6})\]\s*:\s*([^:]+):\s*(.*)", re.ASCII)


def parse_text(text: str) -> tuple[AmdGpu, ...]:
    """`rocm-smi` in text: `GPU[0] : key: value` lines, or the short table. Raises PRE101."""
    driver = next(
        (known(line.partition(":")[2]) for line in text.splitlines() if "Driver version:" in line),
        None,
    )
    cards: dict[int, dict[str, str]] = {}
    for match in _LINE.finditer(text):
        cards.setdefault(int(match[1]), {}).setdefault(match[2].strip().lower(), match[3].strip())
    if cards:
        return tuple(_gpu(index, values, driver) for index, values in sorted(cards.items()))
    gpus = _table(text, driver)
    if not gpus and "ROCm S" not in text and "ROCm s" not in text:
        raise unreadable("rocm-smi", text.strip()[:80] or "empty")
    return gpus


def _table(text: str, driver: str | None) -> tuple[AmdGpu, ...]:
    rows = [line.split() for line in text.splitlines()]
    heads = [row for row in rows if row and row[0] in ("GPU", "Device") and "VRAM%" in row]
    if not heads:
        return ()
    gpus = []
    for row in rows[rows.index(heads[0]) + 1 :]:
        index = whole(row[0]) if row else None
        if index is not None:
            cells = dict(zip(heads[0], row, strict=False))
            gpus.append(
                AmdGpu(
                    index=index,
                    temperature_c=number(cells.get("Temp")),
                    power_w=number(cells.get("AvgPwr")),
                    driver_version=driver,
                )
            )
    return tuple(gpus)


def _lower(values: Mapping[str, object]) -> dict[str, str]:
    return {
        str(key).strip().lower(): text
        for key, value in values.items()
        if (text := as_text(value)) is not None
    }


def _gpu(index: int, values: Mapping[str, str], driver: str | None) -> AmdGpu:
    def found(field: str) -> str | None:
        return next((known(values[key]) for key in _KEYS[field] if known(values.get(key))), None)

    numa = whole(values.get("(topology) numa node"))
    return AmdGpu(
        index=index,
        name=found("name"),
        gfx=found("gfx"),
        device_id=found("device_id"),
        bus_id=found("bus_id"),
        unique_id=found("unique_id"),
        vbios=found("vbios"),
        compute_partition=found("compute_partition"),
        memory_partition=found("memory_partition"),
        memory_total_bytes=size_bytes(values.get("vram total memory (b)"), unit="B"),
        memory_used_bytes=size_bytes(values.get("vram total used memory (b)"), unit="B"),
        visible_memory_bytes=size_bytes(values.get("vis_vram total memory (b)"), unit="B"),
        numa_node=None if numa == _NO_NUMA else numa,
        temperature_c=number(
            known(values.get("temperature (sensor edge) (c)"))
            or values.get("temperature (sensor junction) (c)")
        ),
        power_w=number(
            values.get("current socket graphics package power (w)")
            or values.get("average graphics package power (w)")
        ),
        power_limit_w=number(values.get("max graphics package power (w)")),
        use_percent=number(values.get("gpu use (%)")),
        gtt_used_bytes=size_bytes(values.get("gtt total used memory (b)"), unit="B"),
        gtt_total_bytes=size_bytes(values.get("gtt total memory (b)"), unit="B"),
        driver_version=driver,
    )
