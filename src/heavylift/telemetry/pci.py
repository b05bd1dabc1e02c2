"""PCI devices: sysfs, `lspci -nn` and `lspci -vvv` (link, BARs, ACS, atomics)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.telemetry.values import number, unreadable, whole

AMD: Final = 0x1002
NVIDIA: Final = 0x10DE
_DISPLAY: Final = 0x03
_ACCELERATOR: Final = 0x12
_BRIDGE: Final = 0x0604

_ADDRESS: Final = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_SYSFS: Final = re.compile(rf"/devices/({_ADDRESS})/([^/]+)$", re.ASCII)
_UNIT: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True, slots=True)
class PciDevice:
    """One device. Bytes; speeds in GT/s; `acs` are the ACSCtl bits that are on.

    `atomics` False = the device or bridge is asked not to route or send atomic operations.
    """

    address: str
    vendor_id: int | None = None
    device_id: int | None = None
    class_id: int | None = None
    name: str | None = None
    numa_node: int | None = None
    driver: str | None = None
    largest_bar_bytes: int | None = None
    link_speed: float | None = None
    link_speed_max: float | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    acs: tuple[str, ...] | None = None
    atomics: bool | None = None

    @property
    def is_gpu(self) -> bool:
        """True for a display controller or an accelerator of a GPU maker."""
        return (
            self.vendor_id in (AMD, NVIDIA)
            and self.class_id is not None
            and (self.class_id >> 8 in (_DISPLAY, _ACCELERATOR))
        )

    @property
    def is_bridge(self) -> bool:
        """True for a PCI-to-PCI bridge."""
        return self.class_id == _BRIDGE


def bar_sizes(resource: str) -> tuple[int, ...]:
    """Bytes of the regions in a sysfs `resource` file (start, end, flags per line)."""
    sizes = []
    for line in resource.splitlines():
        fields = [whole(part) for part in line.split()]
        start, end = (*fields, None, None)[:2]
        if start is not None and end is not None and end > start:
            sizes.append(end - start + 1)
    return tuple(sizes)


def parse_sysfs(files: Mapping[str, str]) -> tuple[PciDevice, ...]:
    """Devices from /sys/bus/pci/devices/*/…; files of other places are passed over."""
    by_address: dict[str, dict[str, str]] = {}
    for path, content in files.items():
        match = _SYSFS.search(path.lower())
        if match:
            by_address.setdefault(match[1], {})[match[2]] = content
    return tuple(
        PciDevice(
            address=address,
            vendor_id=whole(found.get("vendor")),
            device_id=whole(found.get("device")),
            class_id=None if (code := whole(found.get("class"))) is None else code >> 8,
            numa_node=whole(found.get("numa_node")),
            driver=found.get("driver", "").rsplit("/", 1)[-1] or None,
            largest_bar_bytes=max(bar_sizes(found.get("resource", "")), default=None),
            link_speed=number(found.get("current_link_speed")),
            link_speed_max=number(found.get("max_link_speed")),
            link_width=whole(found.get("current_link_width")),
            link_width_max=whole(found.get("max_link_width")),
        )
        for address, found in sorted(by_address.items())
    )


_NN: Final = re.compile(
    rf"^({_ADDRESS}) (.+?) \[([0-9a-f]{{4}})\]: (.+) \[([0-9a-f]{{4}}):([0-9a-f]{{4}})\]",
    re.ASCII,
)


def parse_lspci_nn(text: str) -> tuple[PciDevice, ...]:
    """`lspci -nn`. Raises PRE101 when no line is a device."""
    found = tuple(
        PciDevice(
            address=match[1],
            name=match[4],
            class_id=int(match[3], 16),
            vendor_id=int(match[5], 16),
            device_id=int(match[6], 16),
        )
        for line in text.splitlines()
        if (match := _NN.match(line))
    )
    if not found:
        raise unreadable("lspci -nn", text.strip()[:80] or "empty")
    return found


_HEAD: Final = re.compile(rf"^({_ADDRESS}) ([^:]+): (.*)$", re.ASCII)
_REGION: Final = re.compile(r"Region \d+: Memory at .*\[size=(\d{1,9})([KMGT]?)\]", re.ASCII)
_LINK_CAP: Final = re.compile(r"LnkCap:.*?Speed ([\d.]{1,8})GT/s.*?Width x(\d{1,3})", re.ASCII)
_LINK_STATE: Final = re.compile(r"LnkSta:.*?Speed ([\d.]{1,8})GT/s.*?Width x(\d{1,3})", re.ASCII)
_ACS_CONTROL: Final = re.compile(r"ACSCtl:\s*(.*)")
_ATOMIC_CAPS: Final = re.compile(r"AtomicOpsCap:(.*)")


def parse_lspci_vvv(text: str) -> tuple[PciDevice, ...]:
    """`lspci -vvv`. Raises PRE101 when no line is a device.

    Without root the tool prints no capabilities: then `acs`, links and atomics are None.
    """
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if _HEAD.match(line):
            blocks.append([line])
        elif blocks:
            blocks[-1].append(line)
    if not blocks:
        raise unreadable("lspci -vvv", text.strip()[:80] or "empty")
    return tuple(_device(block) for block in blocks)


def _device(block: list[str]) -> PciDevice:
    head = _HEAD.match(block[0])
    address, kind, name = ("", "", "") if head is None else (head[1], head[2], head[3])
    body = "\n".join(block)
    regions = [int(size) * _UNIT[unit] for size, unit in _REGION.findall(body)]
    cap, state = _LINK_CAP.search(body), _LINK_STATE.search(body)
    control, atomics = _ACS_CONTROL.search(body), _ATOMIC_CAPS.search(body)
    return PciDevice(
        address=address,
        name=name,
        class_id=_BRIDGE if kind.startswith("PCI bridge") else None,
        vendor_id=NVIDIA if name.startswith("NVIDIA") else AMD if "[AMD" in name else None,
        numa_node=_numa(body),
        largest_bar_bytes=max(regions, default=None),
        link_speed=None if state is None else number(state[1]),
        link_width=None if state is None else int(state[2]),
        link_speed_max=None if cap is None else number(cap[1]),
        link_width_max=None if cap is None else int(cap[2]),
        acs=None
        if control is None
        else tuple(bit[:-1] for bit in control[1].split() if bit.endswith("+")),
        atomics=None if atomics is None else "+" in atomics[1],
    )


def _numa(body: str) -> int | None:
    match = re.search(r"NUMA node: (-?\d{1,6})", body, re.ASCII)
    return None if match is None else int(match[1])
