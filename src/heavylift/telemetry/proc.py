"""Files of /proc and /etc, and small system tools: memory, mounts, limits, sockets, devices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.telemetry.values import (
    as_list,
    as_mapping,
    as_text,
    decode_json,
    number,
    pairs,
    unreadable,
    whole,
)

UNLIMITED: Final = -1
"""What a limit of `unlimited` is here."""

_KIB: Final = 1024


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo in bytes by name (`MemTotal`, …). Counts without a unit stay as they are."""
    found = {}
    for key, value in pairs(text, ":").items():
        amount = whole(value)
        if amount is not None:
            found[key] = amount * _KIB if value.endswith("kB") else amount
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A mounted file system. `root` is the part of it that is mounted, where that is told."""

    target: str
    fstype: str
    source: str
    options: tuple[str, ...]
    root: str | None = None


_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """/proc/self/mountinfo; lines of another form are passed over."""
    mounts = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if separator and len(before) >= 6 and len(after) >= 2:  # noqa: PLR2004 - fields of proc(5)
            mounts.append(
                Mount(
                    target=_unescape(before[4]),
                    root=_unescape(before[3]),
                    options=tuple(
                        before[5].split(",") + (after[2].split(",") if after[2:] else [])
                    ),
                    fstype=after[0],
                    source=_unescape(after[1]),
                )
            )
    return tuple(mounts)


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """/proc/mounts; lines of another form are passed over."""
    mounts = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4:  # noqa: PLR2004 - source, target, type, options
            mounts.append(
                Mount(
                    source=_unescape(fields[0]),
                    target=_unescape(fields[1]),
                    fstype=fields[2],
                    options=tuple(fields[3].split(",")),
                )
            )
    return tuple(mounts)


def mount_of(path: str, mounts: tuple[Mount, ...]) -> Mount | None:
    """The mount a path lies on: the longest target above it, of equal ones the last."""
    best: Mount | None = None
    for mount in mounts:
        inside = path == mount.target or path.startswith(mount.target.rstrip("/") + "/")
        if inside and (best is None or len(mount.target) >= len(best.target)):
            best = mount
    return best


@dataclass(frozen=True, kw_only=True, slots=True)
class Pressure:
    """One line of /proc/pressure/*: percent of time some or all tasks waited."""

    avg10: float
    avg60: float
    avg300: float


def parse_pressure(text: str) -> dict[str, Pressure]:
    """`some` and `full` of a pressure file; lines of another form are passed over."""
    found = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        averages = {
            key: number(value) for key, _, value in (p.partition("=") for p in rest.split())
        }
        values = [averages.get(name) for name in ("avg10", "avg60", "avg300")]
        if kind in ("some", "full") and None not in values:
            ten, sixty, three_hundred = (value or 0.0 for value in values)
            found[kind] = Pressure(avg10=ten, avg60=sixty, avg300=three_hundred)
    return found


_LIMIT: Final = re.compile(r"^(Max [a-z ]+?)\s{2,}(\d{1,20}|unlimited)\s+(\d{1,20}|unlimited)")


def parse_limits(text: str) -> dict[str, tuple[int, int]]:
    """/proc/PID/limits: soft and hard limit by name; `UNLIMITED` for unlimited."""

    def value(word: str) -> int:
        return UNLIMITED if word == "unlimited" else int(word)

    found = {}
    for line in text.splitlines():
        match = _LIMIT.match(line)
        if match:
            found[match[1]] = (value(match[2]), value(match[3]))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class RaidArray:
    """A line of /proc/mdstat. `missing` = members the array is short of."""

    name: str
    active: bool
    level: str | None
    members: int
    missing: int
    failed: tuple[str, ...]
    activity: str | None


_ARRAY: Final = re.compile(r"^(md\S+) : (active|inactive)(?: \([a-z-]+\))?(.*)$")
_MEMBERS: Final = re.compile(r"\[(\d{1,6})/(\d{1,6})\] \[[U_]+\]", re.ASCII)
_ACTIVITY: Final = re.compile(r"(recovery|resync|reshape|check)\s*=")


def parse_mdstat(text: str) -> tuple[RaidArray, ...]:
    """/proc/mdstat: the arrays; empty when there are none."""
    arrays: list[RaidArray] = []
    blocks = re.split(r"\n(?=md)", text)
    for block in blocks:
        head = _ARRAY.match(block.splitlines()[0]) if block.strip() else None
        if head is None:
            continue
        words = head[3].split()
        level = words[0] if words and "[" not in words[0] else None
        devices = [word for word in words if "[" in word]
        counted, activity = _MEMBERS.search(block), _ACTIVITY.search(block)
        arrays.append(
            RaidArray(
                name=head[1],
                active=head[2] == "active",
                level=level,
                members=len(devices),
                missing=0 if counted is None else max(0, int(counted[1]) - int(counted[2])),
                failed=tuple(word.partition("[")[0] for word in devices if word.endswith("(F)")),
                activity=None if activity is None else activity[1],
            )
        )
    return tuple(arrays)


def parse_cmdline(text: str) -> dict[str, str]:
    """/proc/cmdline: options of the kernel; a word without a value has the value ``""``."""
    found: dict[str, str] = {}
    for word in text.split():
        key, _, value = word.partition("=")
        found[key] = value
    return found


def parse_os_release(text: str) -> dict[str, str]:
    """/etc/os-release by key, without quotes."""
    return {
        key: value.strip().strip("\"'")
        for key, value in pairs(text, "=").items()
        if not key.startswith("#")
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSystem:
    """A file system as findmnt or df tells it: sizes are text of the tool."""

    target: str
    source: str
    fstype: str
    available: str | None


def parse_findmnt(text: str) -> tuple[FileSystem, ...]:
    """`findmnt --json`, with or without --df. Raises PRE101."""
    document = as_mapping(decode_json(text, "findmnt --json"))
    waiting = as_list(document.get("filesystems"))
    found = []
    while waiting:
        entry = as_mapping(waiting.pop(0))
        waiting = as_list(entry.get("children")) + waiting
        target = as_text(entry.get("target"))
        if target is not None:
            found.append(
                FileSystem(
                    target=target,
                    source=as_text(entry.get("source")) or "",
                    fstype=as_text(entry.get("fstype")) or "",
                    available=as_text(entry.get("avail")),
                )
            )
    if "filesystems" not in document:
        raise unreadable("findmnt --json", "no filesystems")
    return tuple(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceNode:
    """A line of `ls -l` for a device: who may open it."""

    path: str
    mode: str
    owner: str
    group: str


_DEVICE: Final = re.compile(
    r"^([bc][-rwxsStT]{9})[.+@]?\s+\d+\s+(\S+)\s+(\S+)\s+\d+,\s*\d+\s+.*?(/\S+|\S+)$", re.ASCII
)


def parse_ls(text: str) -> tuple[DeviceNode, ...]:
    """`ls -l` of device files; other lines are passed over."""
    return tuple(
        DeviceNode(path=match[4], mode=match[1], owner=match[2], group=match[3])
        for line in text.splitlines()
        if (match := _DEVICE.match(line.rstrip()))
    )


def parse_groups(text: str) -> dict[int, str]:
    """/etc/group: name by number."""
    found: dict[int, str] = {}
    for line in text.splitlines():
        fields = line.split(":")
        gid = whole(fields[2]) if len(fields) > 2 else None  # noqa: PLR2004 - name, password, gid
        if gid is not None:
            found.setdefault(gid, fields[0])
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessStatus:
    """What /proc/self/status says of a process's rights."""

    uid: int | None
    groups: tuple[int, ...]
    capabilities: int | None
    seccomp: int | None
    cpus_allowed: str | None


def parse_status(text: str) -> ProcessStatus:
    """/proc/PID/status."""
    values = pairs(text, ":")
    gids = [whole(word) for key in ("Gid", "Groups") for word in values.get(key, "").split()]
    effective = values.get("CapEff", "")
    return ProcessStatus(
        uid=whole(values.get("Uid")),
        groups=tuple(sorted({gid for gid in gids if gid is not None})),
        capabilities=int(effective, 16) if re.fullmatch(r"[0-9a-fA-F]{1,16}", effective) else None,
        seccomp=whole(values.get("Seccomp")),
        cpus_allowed=values.get("Cpus_allowed_list"),
    )


_LISTEN: Final = "0A"


_INODE: Final = 9
"""The column of a socket's inode in /proc/net/tcp."""


def parse_listening(text: str) -> frozenset[int]:
    """TCP ports listened on, from /proc/net/tcp or tcp6. Raises PRE101 for a text without their
    heading.
    """
    return frozenset(parse_listeners(text))


def parse_listeners(text: str) -> dict[int, tuple[int, ...]]:
    """TCP ports listened on, each with the inodes of its sockets as far as they are told. Raises
    PRE101 for a text without their heading.
    """
    if "local" not in text.partition("\n")[0]:
        raise unreadable("/proc/net/tcp", "no heading")
    found: dict[int, list[int]] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[3] == _LISTEN:  # noqa: PLR2004 - sl, local, remote, state
            port = fields[1].rpartition(":")[2]
            if re.fullmatch(r"[0-9A-Fa-f]{1,4}", port):
                inode = whole(fields[_INODE]) if len(fields) > _INODE else None
                found.setdefault(int(port, 16), []).extend([] if inode is None else [inode])
    return {port: tuple(inodes) for port, inodes in found.items()}


def own_memory_bytes(status: str) -> int | None:
    """What a process holds that no file backs, from /proc/PID/status; None = the kernel's own.

    Formula: RssAnon + RssShmem.
    """
    values = pairs(status, ":")
    kib = [whole(values.get(name)) for name in ("RssAnon", "RssShmem")]
    known = [size for size in kib if size is not None]
    return _KIB * sum(known) if known else None


def count_sockets(text: str) -> int:
    """Lines of /proc/net/tcp that are sockets."""
    return sum(1 for line in text.splitlines() if re.match(r"\s*\d+:", line))


def parse_default_interfaces(text: str) -> tuple[str, ...]:
    """Interfaces of the default routes in /proc/net/route, in order."""
    found: list[str] = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000" and fields[0] not in found:  # noqa: PLR2004 - columns of the file
            found.append(fields[0])
    return tuple(found)


def parse_cpu_list(text: str) -> int:
    """How many CPUs a list such as `0-63,128-191` names."""
    total = 0
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        first = whole(low)
        last = whole(high) if high else first
        if first is not None and last is not None and last >= first:
            total += last - first + 1
    return total


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerInfo:
    """What `docker info` says that bears on GPUs."""

    runtimes: tuple[str, ...]
    default_runtime: str | None
    cgroup_driver: str | None
    root_dir: str | None
    cdi_dirs: tuple[str, ...]
    server_version: str | None


def parse_docker_info(text: str) -> DockerInfo:
    """`docker info` as JSON, or its text. Raises PRE101 when it is neither."""
    if text.lstrip().startswith("{"):
        document = as_mapping(decode_json(text, "docker info"))
        return DockerInfo(
            runtimes=tuple(sorted(as_mapping(document.get("Runtimes")))),
            default_runtime=as_text(document.get("DefaultRuntime")),
            cgroup_driver=as_text(document.get("CgroupDriver")),
            root_dir=as_text(document.get("DockerRootDir")),
            cdi_dirs=tuple(str(each) for each in as_list(document.get("CDISpecDirs"))),
            server_version=as_text(document.get("ServerVersion")),
        )
    values: Mapping[str, str] = pairs(text, ":")
    if "Server Version" not in values and "Runtimes" not in values:
        raise unreadable("docker info", text.strip()[:80] or "empty")
    return DockerInfo(
        runtimes=tuple(sorted(values.get("Runtimes", "").split())),
        default_runtime=values.get("Default Runtime"),
        cgroup_driver=values.get("Cgroup Driver"),
        root_dir=values.get("Docker Root Dir"),
        cdi_dirs=(),
        server_version=values.get("Server Version"),
    )
