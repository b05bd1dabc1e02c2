"""nvidia-smi on links: `nvlink -s` and the matrix of `topo -m`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.telemetry.values import first_line, known, number, unreadable


@dataclass(frozen=True, kw_only=True, slots=True)
class NvlinkState:
    """The NVLinks of one card: GB/s of each active one, how many are not, or why none are told."""

    index: int
    active_gb_per_s: tuple[float, ...]
    inactive: int
    remark: str | None = None


def parse_nvlink(text: str) -> tuple[NvlinkState, ...]:
    """`nvidia-smi nvlink -s`. Empty for cards without NVLink, which print nothing."""
    found: list[tuple[int, list[float], list[int], list[str]]] = []
    for line in text.splitlines():
        if match := re.match(r"GPU (\d{1,6}):", line):
            found.append((int(match[1]), [], [], []))
        elif not found or not line.strip():
            continue
        elif match := re.match(r"\s*Link (\d+):\s*(.*)", line):
            speed = number(match[2])
            if speed is None:
                found[-1][2].append(int(match[1][:9]))
            else:
                found[-1][1].append(speed)
        else:
            found[-1][3].append(line.strip())
    return tuple(
        NvlinkState(
            index=index,
            active_gb_per_s=tuple(active),
            inactive=len(inactive),
            remark=remarks[0] if remarks else None,
        )
        for index, active, inactive, remarks in found
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaTopology:
    """The matrix of `topo -m`: `links[(0, 1)]` is `NV18`, `PIX`, `NODE`, … between two cards.

    `cpu_affinity` and `numa_affinity` are by card, where they are printed.
    """

    gpus: tuple[int, ...]
    links: Mapping[tuple[int, int], str]
    cpu_affinity: Mapping[int, str]
    numa_affinity: Mapping[int, str]


_ESCAPES: Final = re.compile(r"\x1b?\[[0-9;]{0,8}m")
_LINK: Final = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS")


def parse_topology(text: str) -> NvidiaTopology:
    """`nvidia-smi topo -m`. Raises PRE101 when there is no matrix."""
    lines = [_ESCAPES.sub("", line) for line in text.splitlines()]
    head = next((line for line in lines if re.match(r"\s*GPU\d", line)), None)
    if head is None:
        raise unreadable("nvidia-smi topo -m", first_line(text))
    # Newer releases separate columns by tabs, and leave cells empty; older ones by many spaces.
    split = (lambda line: line.split("\t")) if "\t" in head else _by_spaces
    columns = [cell.strip() for cell in split(head)]
    if columns and columns[0]:
        columns.insert(0, "")
    links: dict[tuple[int, int], str] = {}
    affinity: dict[str, dict[int, str]] = {"CPU Affinity": {}, "NUMA Affinity": {}}
    gpus: list[int] = []
    for line in lines:
        cells = [cell.strip() for cell in split(line)]
        row = re.fullmatch(r"GPU(\d{1,6})", cells[0]) if cells and line is not head else None
        if row is None:
            continue
        own = int(row[1])
        gpus.append(own)
        for column, cell in zip(columns, cells, strict=False):
            other = re.fullmatch(r"GPU(\d{1,6})", column)
            if other and _LINK.fullmatch(cell):
                links[own, int(other[1])] = cell
            elif column in affinity and known(cell):
                affinity[column][own] = cell
    if not gpus:
        raise unreadable("nvidia-smi topo -m", first_line(text))
    return NvidiaTopology(
        gpus=tuple(gpus),
        links=links,
        cpu_affinity=affinity["CPU Affinity"],
        numa_affinity=affinity["NUMA Affinity"],
    )


def _by_spaces(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.rstrip())
