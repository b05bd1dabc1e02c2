"""The kernel's own view of AMD cards: KFD topology and the amdgpu files of sysfs.

Input is a mapping from path to content, as read from /sys or from a recording of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.telemetry.pci import bar_sizes
from heavylift.telemetry.values import known, number, pairs, whole

XGMI: Final = 11
PCIE: Final = 2
_FRAMEBUFFER_HEAPS: Final = (1, 2)
"""Heap types of mem_banks that are memory of the card: 1 visible to the host, 2 not."""

_NODE: Final = re.compile(r"/topology/nodes/(\d{1,6})/(.+)$", re.ASCII)
_LINK: Final = re.compile(r"(?:io|p2p)_links/\d+/properties")
_BANK: Final = re.compile(r"mem_banks/\d+/properties")


@dataclass(frozen=True, kw_only=True, slots=True)
class KfdLink:
    """A link to another node of the topology; `kind` 11 is XGMI, 2 is PCIe."""

    node_to: int
    kind: int
    weight: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class KfdNode:
    """A node: a CPU socket, a card, or a partition of one. `gpu_id` 0 = a CPU."""

    number: int
    gpu_id: int | None
    simd_count: int
    gfx: str | None
    vendor_id: int | None
    device_id: int | None
    domain: int | None
    location_id: int | None
    render_minor: int | None
    unique_id: int | None
    num_xcc: int | None
    memory_bytes: int | None
    links: tuple[KfdLink, ...]

    @property
    def is_gpu(self) -> bool:
        """True for a card or a partition."""
        return self.simd_count > 0

    @property
    def bus_id(self) -> str | None:
        """`0000:0a:00.0`, from domain and location."""
        if self.location_id is None:
            return None
        bus, rest = (self.location_id >> 8) & 0xFF, self.location_id & 0xFF
        return f"{self.domain or 0:04x}:{bus:02x}:{rest >> 3:02x}.{rest & 7}"


def gfx_name(version: int) -> str | None:
    """`gfx942` from 90402: major, minor and stepping as two digits each, the last two in hex.

    Source: the kernel's `gfx_target_version` (major * 10000 + minor * 100 + stepping).
    """
    if version <= 0:
        return None
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def parse_topology(files: Mapping[str, str]) -> tuple[KfdNode, ...]:
    """The nodes, in order of number. Files of other places are passed over."""
    by_node: dict[int, dict[str, str]] = {}
    for path, content in files.items():
        match = _NODE.search(path)
        if match:
            by_node.setdefault(int(match[1]), {})[match[2]] = content
    return tuple(_node(number, by_node[number]) for number in sorted(by_node))


def _node(number: int, files: Mapping[str, str]) -> KfdNode:
    properties = {key: whole(value) for key, value in pairs(files.get("properties", "")).items()}
    banks = [pairs(content) for path, content in files.items() if _BANK.fullmatch(path)]
    sizes = [
        size
        for bank in banks
        if whole(bank.get("heap_type")) in _FRAMEBUFFER_HEAPS
        and (size := whole(bank.get("size_in_bytes"))) is not None
    ]
    links = [pairs(content) for path, content in sorted(files.items()) if _LINK.fullmatch(path)]
    return KfdNode(
        number=number,
        gpu_id=whole(files.get("gpu_id")),
        simd_count=properties.get("simd_count") or 0,
        gfx=gfx_name(properties.get("gfx_target_version") or 0),
        vendor_id=properties.get("vendor_id"),
        device_id=properties.get("device_id"),
        domain=properties.get("domain"),
        location_id=properties.get("location_id"),
        render_minor=properties.get("drm_render_minor"),
        unique_id=properties.get("unique_id"),
        num_xcc=properties.get("num_xcc"),
        # local_mem_size is 0 on recent cards; the banks hold the figure.
        memory_bytes=sum(sizes) if sizes else None,
        links=tuple(
            KfdLink(node_to=to, kind=kind, weight=whole(link.get("weight")))
            for link in links
            if (to := whole(link.get("node_to"))) is not None
            and (kind := whole(link.get("type"))) is not None
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DrmCard:
    """The amdgpu files of one card under /sys/class/drm. Bytes; watts; degrees Celsius.

    GTT is host memory that the driver lets the card use as its own.
    """

    card: str
    vendor_id: int | None
    device_id: int | None
    vram_total_bytes: int | None
    vram_used_bytes: int | None
    visible_vram_bytes: int | None
    largest_bar_bytes: int | None
    numa_node: int | None
    vbios: str | None
    unique_id: str | None
    compute_partition: str | None
    memory_partition: str | None
    bus_id: str | None = None
    gtt_total_bytes: int | None = None
    gtt_used_bytes: int | None = None
    busy_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


_CARD: Final = re.compile(r"/drm/(card\d{1,6})/device/(?:hwmon/hwmon\d{1,6}/)?([^/]+)$", re.ASCII)


def parse_drm(files: Mapping[str, str]) -> tuple[DrmCard, ...]:
    """The cards that have a `vendor` file. Files of other places are passed over."""
    by_card: dict[str, dict[str, str]] = {}
    for path, content in files.items():
        match = _CARD.search(path)
        if match:
            by_card.setdefault(match[1], {})[match[2]] = content
    return tuple(
        DrmCard(
            card=card,
            vendor_id=whole(found.get("vendor")),
            device_id=whole(found.get("device")),
            vram_total_bytes=whole(found.get("mem_info_vram_total")),
            vram_used_bytes=whole(found.get("mem_info_vram_used")),
            visible_vram_bytes=whole(found.get("mem_info_vis_vram_total")),
            largest_bar_bytes=max(bar_sizes(found.get("resource", "")), default=None),
            numa_node=whole(found.get("numa_node")),
            vbios=known(found.get("vbios_version")),
            unique_id=known(found.get("unique_id")),
            compute_partition=known(found.get("current_compute_partition")),
            memory_partition=known(found.get("current_memory_partition")),
            bus_id=known(pairs(found.get("uevent", ""), "=").get("PCI_SLOT_NAME")),
            gtt_total_bytes=whole(found.get("mem_info_gtt_total")),
            gtt_used_bytes=whole(found.get("mem_info_gtt_used")),
            busy_percent=number(found.get("gpu_busy_percent")),
            # hwmon counts in thousandths of a degree and millionths of a watt.
            temperature_c=_divided(found.get("temp1_input"), 1000),
            power_w=_divided(found.get("power1_average") or found.get("power1_input"), 1_000_000),
        )
        for card, found in sorted(by_card.items(), key=lambda item: int(item[0][4:]))
        if "vendor" in found
    )


def _divided(text: str | None, by: int) -> float | None:
    value = number(text)
    return None if value is None else value / by
