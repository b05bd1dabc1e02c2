"""RDMA adapters: /sys/class/infiniband and `ibv_devinfo`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.telemetry.values import known, number, unreadable, whole

_HCA: Final = re.compile(r"/infiniband/([^/]+)/(.+)$")
_PORT: Final = re.compile(r"ports/(\d{1,4})/(.+)$", re.ASCII)
_ZERO_GID: Final = re.compile(r"[0:]*")
_MAPPED_V4: Final = "0000:0000:0000:0000:0000:ffff:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gid:
    """An entry of a port's GID table; `kind` is `RoCE v2`, `IB/RoCE v1` or None."""

    index: int
    value: str
    kind: str | None

    @property
    def routable_v4(self) -> bool:
        """True for an IPv4 address mapped into a GID."""
        return self.value.startswith(_MAPPED_V4)


@dataclass(frozen=True, kw_only=True, slots=True)
class IbPort:
    """A port. `state` is `ACTIVE`, `DOWN`, …; the rate in Gb/s; counters since they were reset."""

    number: int
    state: str | None
    physical: str | None
    link_layer: str | None
    rate_gb_per_s: float | None
    counters: Mapping[str, int]
    gids: tuple[Gid, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class IbDevice:
    """An adapter."""

    name: str
    firmware: str | None
    board: str | None
    ports: tuple[IbPort, ...]


def parse_sysfs(files: Mapping[str, str]) -> tuple[IbDevice, ...]:
    """Adapters from /sys/class/infiniband/*/…; files of other places are passed over."""
    by_name: dict[str, dict[str, str]] = {}
    for path, content in files.items():
        match = _HCA.search(path)
        if match:
            by_name.setdefault(match[1], {})[match[2]] = content
    return tuple(
        IbDevice(
            name=name,
            firmware=known(found.get("fw_ver")),
            board=known(found.get("board_id")),
            ports=_ports(found),
        )
        for name, found in sorted(by_name.items())
    )


def _ports(files: Mapping[str, str]) -> tuple[IbPort, ...]:
    by_port: dict[int, dict[str, str]] = {}
    for path, content in files.items():
        match = _PORT.match(path)
        if match:
            by_port.setdefault(int(match[1]), {})[match[2]] = content
    return tuple(
        IbPort(
            number=port,
            state=_word(found.get("state")),
            physical=_word(found.get("phys_state")),
            link_layer=known(found.get("link_layer")),
            rate_gb_per_s=number(found.get("rate")),
            counters={
                path.rsplit("/", 1)[-1]: count
                for path, content in sorted(found.items())
                if path.startswith(("counters/", "hw_counters/"))
                and (count := whole(content)) is not None
            },
            gids=_gids(found),
        )
        for port, found in sorted(by_port.items())
    )


def _gids(files: Mapping[str, str]) -> tuple[Gid, ...]:
    found = []
    for path, content in files.items():
        index = whole(path.removeprefix("gids/")) if path.startswith("gids/") else None
        if index is not None and not _ZERO_GID.fullmatch(content.strip()):
            kind = known(files.get(f"gid_attrs/types/{index}"))
            found.append(Gid(index=index, value=content.strip(), kind=kind))
    return tuple(sorted(found, key=lambda gid: gid.index))


def _word(text: str | None) -> str | None:
    """`ACTIVE` from `4: ACTIVE`."""
    value = known(text)
    return None if value is None else value.rpartition(":")[2].strip()


def parse_devinfo(text: str) -> tuple[IbDevice, ...]:
    """`ibv_devinfo`. Raises PRE101 when it names no adapter."""
    devices: list[dict[str, str]] = []
    ports: list[list[dict[str, str]]] = []
    for line in text.splitlines():
        key, separator, value = line.strip().partition(":")
        if not separator:
            continue
        if key == "hca_id":
            devices.append({"hca_id": value.strip()})
            ports.append([])
        elif key == "port" and devices:
            ports[-1].append({"port": value.strip()})
        elif devices:
            (ports[-1][-1] if ports[-1] else devices[-1]).setdefault(key, value.strip())
    if not devices:
        raise unreadable("ibv_devinfo", text.strip()[:80] or "empty")
    return tuple(
        IbDevice(
            name=device["hca_id"],
            firmware=known(device.get("fw_ver")),
            board=known(device.get("board_id")),
            ports=tuple(
                IbPort(
                    number=whole(port["port"]) or 0,
                    state=_devinfo_state(port.get("state")),
                    physical=None,
                    link_layer=known(port.get("link_layer")) or _layer(device.get("transport")),
                    rate_gb_per_s=None,
                    counters={},
                    gids=(),
                )
                for port in listed
            ),
        )
        for device, listed in zip(devices, ports, strict=True)
    )


def _devinfo_state(text: str | None) -> str | None:
    """`ACTIVE` from `PORT_ACTIVE (4)`."""
    value = known(text)
    return None if value is None else value.split(" ", 1)[0].removeprefix("PORT_")


def _layer(transport: str | None) -> str | None:
    value = known(transport)
    return None if value is None else value.split(" ", 1)[0]
