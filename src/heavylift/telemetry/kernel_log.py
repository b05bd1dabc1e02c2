"""The kernel log, by `dmesg` or `journalctl -k`: what it says of cards, memory and PCIe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class KernelEventKind(StrEnum):
    """What an event is about."""

    XID = "xid"
    FALLEN_OFF_BUS = "fallen_off_bus"
    NVIDIA_PROBE_FAILED = "nvidia_probe_failed"
    AMD_INIT_FAILED = "amd_init_failed"
    AMD_UNSUPPORTED = "amd_unsupported"
    AMD_RING_TIMEOUT = "amd_ring_timeout"
    AMD_VRAM_LOST = "amd_vram_lost"
    AMD_BAR = "amd_bar"
    HARDWARE_ERROR = "hardware_error"
    NO_ATOMICS = "no_atomics"
    OOM_KILL = "oom_kill"
    IOMMU_FAULT = "iommu_fault"
    PEER_DMABUF = "peer_dmabuf"


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelEvent:
    """One event. `number` is the XID; `device` a PCI address where the line names one."""

    kind: KernelEventKind
    line: str
    number: int | None = None
    device: str | None = None


_DEVICE: Final = re.compile(r"\b(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?\b")
_XID: Final = re.compile(r"NVRM: Xid \(([^)]{0,40})\): (\d{1,6})", re.ASCII)
# What is in front of a message: [ 1843.308145], or `kern  :warn  : time`, or `date host kernel:`.
_STAMP: Final = re.compile(
    r"^\s*(?:\[[\s0-9.T:+-]+\]|[a-z]+\s*:[a-z]+\s*:\s*\S+|\S+T\S+ \S+ kernel:)\s*"
)

_SIGNS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (KernelEventKind.FALLEN_OFF_BUS, r"fallen off the bus|device lost from bus"),
        (KernelEventKind.NVIDIA_PROBE_FAILED, r"NVRM: The NVIDIA probe routine failed"),
        (
            KernelEventKind.AMD_BAR,
            r"amdgpu.*(?:probe.*failed with error -12|Unable to create.*BAR|BAR.*can't assign)",
        ),
        (
            KernelEventKind.AMD_INIT_FAILED,
            (
                r"Fatal error during GPU init|invalid ip discovery binary"
                r"|amdgpu.*probe.*failed with error|amdgpu.*probe of \S+ failed"
            ),
        ),
        (KernelEventKind.AMD_UNSUPPORTED, r"(?:kfd|amdgpu).*not supported in kfd"),
        (KernelEventKind.NO_ATOMICS, r"PCI.? ?[Ee]? ?(?:rejects )?atomics|[Pp]latform.*no.*atomic"),
        (KernelEventKind.AMD_RING_TIMEOUT, r"amdgpu.*ring \S+ timeout"),
        (KernelEventKind.AMD_VRAM_LOST, r"VRAM is lost"),
        (KernelEventKind.HARDWARE_ERROR, r"uncorrectable hardware error|amdgpu.*poison.*consum"),
        (KernelEventKind.OOM_KILL, r"[Oo]ut of memory: Kill(?:ed)? process|oom-kill:"),
        (KernelEventKind.IOMMU_FAULT, r"AMD-Vi: .*IO_PAGE_FAULT|DMAR: .*fault addr"),
        (KernelEventKind.PEER_DMABUF, r"mlx5dv_reg_dmabuf_mr"),
    )
)
INTEREST: Final = re.compile(
    r"NVRM|nvidia|amdgpu|kfd|\[drm\]|[Oo]ut of memory|oom-kill|AMD-Vi|DMAR|iommu|atomics"
    r"|Hardware Error|fallen off|mlx5|PCIe Bus Error|BAR "
)
"""Lines a snapshot keeps: what these events are read from, and their neighbourhood."""


def parse_kernel_log(text: str) -> tuple[KernelEvent, ...]:
    """The events of a kernel log, in order. Empty when it says nothing of interest."""
    return tuple(_events(_joined(text.splitlines())))


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Messages: an indented line without a stamp of its own goes on the one above."""
    message = ""
    for line in lines:
        if message and line.startswith("   ") and not _STAMP.match(line):
            message = f"{message} {line.strip()}"
            continue
        if message:
            yield message
        message = line.rstrip()
    if message:
        yield message


def _events(messages: Iterable[str]) -> Iterator[KernelEvent]:
    for message in messages:
        xid = _XID.search(message)
        if xid:
            device = _DEVICE.search(xid[1])
            yield KernelEvent(
                kind=KernelEventKind.XID,
                line=message,
                number=int(xid[2]),
                device=None if device is None else device[0],
            )
            continue
        kind = next((kind for kind, pattern in _SIGNS if pattern.search(message)), None)
        if kind is not None:
            device = _DEVICE.search(_STAMP.sub("", message))
            yield KernelEvent(kind=kind, line=message, device=None if device is None else device[0])
