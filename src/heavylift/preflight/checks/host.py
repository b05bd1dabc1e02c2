"""Checks of the host: memory, shared memory, limits, ports, processes, disks, containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from heavylift.facts.schema import CheckFacts
from heavylift.preflight.checks.outcome import (
    NotApplicableError,
    NotObservedError,
    Outcome,
    bad,
    info,
    ok,
)
from heavylift.preflight.checks.view import View, number_of
from heavylift.records.finding import Severity
from heavylift.records.snapshot import State
from heavylift.telemetry import proc
from heavylift.telemetry.kernel_log import KernelEventKind
from heavylift.telemetry.values import as_mapping, decode_json, whole
from heavylift.units import GB, GIB, format_gb, format_gib

_TCP6: Final = "read:/proc/net/tcp6"
_SHM: Final = "/dev/shm"  # noqa: S108 - looked at, not written to
_NO_CGROUP_LIMIT: Final = 2**60
"""cgroup v1 writes a number near 2**63 for "no limit"."""


# --- memory --------------------------------------------------------------------------------------


def memory(view: View, _check: CheckFacts) -> Outcome:
    """Host memory (or the container's share of it) holds what loading takes."""
    available = view.meminfo.get("MemAvailable")
    if available is None:
        raise NotObservedError("not_stated", "read:/proc/meminfo")
    limit = min([available, *_cgroup_limits(view)])
    shown = f"{format_gib(limit)} GiB"
    plan = view.target.plan
    if plan is None:
        return info("available", shown)
    needed = plan.host.host_ram_bytes.low
    if limit < needed:
        return bad("less", shown, expected=f"{format_gib(needed)} GiB")
    # The makers' advice of as much host memory as card memory is for comfort, not for starting.
    cards = plan.per_gpu.visible_bytes * plan.rack.gpus_per_node
    total = view.meminfo.get("MemTotal", 0)
    if total < cards:
        advice = f"{format_gib(cards)} GiB"
        return info("below_advice", f"{format_gib(total)} GiB", advice=advice)
    return ok(shown, expected=f"{format_gib(needed)} GiB")


def _cgroup_limits(view: View) -> Iterator[int]:
    for key, found in view.snapshot.observations.items():
        if key.startswith("read:/sys/fs/cgroup/") and found.state is State.OK:
            limit = whole(found.text)
            if limit is not None and limit < _NO_CGROUP_LIMIT:
                yield limit


def swap(view: View, _check: CheckFacts) -> Outcome:
    """How much swap there is: weights in it are as good as hung."""
    total = view.meminfo.get("SwapTotal")
    if total is None:
        raise NotObservedError("not_stated", "read:/proc/meminfo")
    used = total - view.meminfo.get("SwapFree", total)
    if used > total // 2 and total:
        return info("used", f"{format_gib(used)} / {format_gib(total)} GiB")
    return ok(f"{format_gib(total)} GiB")


def oom_history(view: View, _check: CheckFacts) -> Outcome:
    """The kernel has not had to kill a process for want of memory since boot."""
    lines = view.kernel_lines(KernelEventKind.OOM_KILL)
    return bad("killed", len(lines), *lines[-3:]) if lines else ok(0)


def pressure(view: View, check: CheckFacts) -> Outcome:
    """Tasks do not wait for memory."""
    found = proc.parse_pressure(view.file("/proc/pressure/memory")).get("some")
    if found is None:
        raise NotObservedError("unreadable", "read:/proc/pressure/memory")
    shown = f"some avg60={found.avg60:g}"
    if found.avg60 >= number_of(check, "percent"):
        return bad("waiting", shown)
    return ok(shown)


# --- shared memory -------------------------------------------------------------------------------


def shm_size(view: View, check: CheckFacts) -> Outcome:
    """Shared memory is large enough for the messages of a collective."""
    _, total = view.room(_SHM)
    shown = f"{format_gib(total)} GiB"
    floor = int(number_of(check, "floor_bytes"))
    if total >= floor:
        return ok(shown)
    tiny = total <= number_of(check, "tiny_bytes")
    several = max(view.tensor_size, view.planned_gpus or 1) > 1
    severity = Severity.FAIL if tiny and several else Severity.WARN
    return bad("small", shown, expected=f"{format_gib(floor)} GiB", severity=severity)


def shm_free(view: View, check: CheckFacts) -> Outcome:
    """Shared memory is not filled with what dead processes left."""
    free, total = view.room(_SHM)
    stale = [
        path
        for pattern in ("nccl-*", "psm_*", "sem.mp-*")
        for path in view.paths(f"{_SHM}/{pattern}")
    ]
    shown = f"{format_gib(free)} / {format_gib(total)} GiB"
    engines = [each for each in view.processes if _is_engine(each.title)]
    if total and free / total < number_of(check, "free_ratio"):
        return bad("full", shown, *stale[:5])
    if stale and not engines:
        return bad("stale", len(stale), *stale[:5])
    return ok(shown)


# --- limits and ports ----------------------------------------------------------------------------


def memlock(view: View, _check: CheckFacts) -> Outcome:
    """Memory may be pinned without limit, as RDMA and ROCm need it."""
    found = view.limits.get("Max locked memory")
    if found is None:
        raise NotObservedError("not_stated", "read:/proc/self/limits")
    soft, hard = found
    if soft == proc.UNLIMITED:
        return ok("unlimited")
    shown = f"{soft:,} B"
    case = "low" if hard != proc.UNLIMITED else "soft"
    try:
        rdma = bool(view.infiniband)
    except (NotApplicableError, NotObservedError):
        rdma = False
    severity = None if rdma and view.planned_nodes > 1 else Severity.WARN
    return bad(case, shown, expected="unlimited", severity=severity)


def nofile(view: View, check: CheckFacts) -> Outcome:
    """Enough files and sockets may be open."""
    found = view.limits.get("Max open files")
    if found is None:
        raise NotObservedError("not_stated", "read:/proc/self/limits")
    floor = int(number_of(check, "floor"))
    soft = found[0]
    if soft != proc.UNLIMITED and soft < floor:
        return bad("low", soft, expected=floor)
    return ok("unlimited" if soft == proc.UNLIMITED else soft)


def ephemeral_ports(view: View, check: CheckFacts) -> Outcome:
    """Ports for outgoing connections are not used up."""
    fields = [whole(word) for word in view.file("/proc/sys/net/ipv4/ip_local_port_range").split()]
    low, high = (*fields, None, None)[:2]
    if low is None or high is None or high < low:
        raise NotObservedError("unreadable", "read:/proc/sys/net/ipv4/ip_local_port_range")
    used = sum(proc.count_sockets(view.file(f"/proc/net/{name}")) for name in ("tcp", "tcp6"))
    size = high - low + 1
    shown = f"{used:,} / {size:,}"
    if used > size * number_of(check, "used_ratio"):
        return bad("used", shown)
    if size < number_of(check, "floor"):
        return bad("narrow", size, expected=int(number_of(check, "floor")))
    return ok(shown)


def api_port(view: View, check: CheckFacts) -> Outcome:
    """Nobody listens on the ports of the launch."""
    spec = view.target.spec
    wanted = (
        {int(port) for port in str(check.values["ports"]).split()}
        if spec is None
        else {port for rank in spec.ranks for port in rank.ports.values()}
    )
    listening = view.parsed(proc.parse_listening, "read:/proc/net/tcp")
    if view.observation(_TCP6).state is not State.ABSENT:  # a kernel without IPv6
        listening |= view.parsed(proc.parse_listening, _TCP6)
    taken = sorted(wanted & listening)
    if taken:
        return bad("taken", ", ".join(map(str, taken)), port=taken[0])
    return ok(", ".join(map(str, sorted(wanted))))


# --- processes -----------------------------------------------------------------------------------

_ENGINE_WORDS: Final = (
    "vllm",
    "enginecore",
    "worker_tp",
    "sglang",
    "ray::",
    "llama-server",
    "trtllm",
    "tokenspeed",
    "ollama",
)


def _is_engine(title: str) -> bool:
    return any(word in title.lower() for word in _ENGINE_WORDS)


def leftovers(view: View, _check: CheckFacts) -> Outcome:
    """No process of an earlier engine holds a card."""
    holders = [each for each in view.processes if each.devices]
    engines = [each for each in view.processes if _is_engine(each.title) and not each.devices]
    hung = [each for each in view.processes if each.state == "D" and each.devices]
    lines = [f"{each.pid} {each.title} ({each.state})" for each in (*holders, *engines)]
    pids = " ".join(str(each.pid) for each in holders)
    if hung:
        return bad("hung", len(hung), *lines[:8], pids=" ".join(str(each.pid) for each in hung))
    if holders:
        return bad("holding", len(holders), *lines[:8], pids=pids)
    if engines:
        pids = " ".join(str(each.pid) for each in engines)
        return bad("running", len(engines), *lines[:8], severity=Severity.WARN, pids=pids)
    silent = next((each for each in view.processes if not each.title), None)
    if silent is not None:
        # Whoever does not let itself be read may hold anything.
        raise NotObservedError("time_limit", f"/proc/{silent.pid}")
    summary = as_mapping(decode_json(view.text("processes:"), "processes"))
    if summary.get("handles_denied"):
        # Another user's process may hold a card without our seeing it.
        raise NotObservedError("needs_root", "processes:")
    return ok(0)


# --- disks ---------------------------------------------------------------------------------------


def disk_space(view: View, check: CheckFacts) -> Outcome:
    """Every place that a launch writes to has room; the one for weights holds them."""
    weights = view.checkpoint_bytes
    floors = {"room": int(number_of(check, "floor_bytes"))}
    short: list[str] = []
    shown: list[str] = []
    hub = next((path for path in view.keys("space") if path.endswith("huggingface")), None)
    hub = view.environment.get("HF_HOME", hub or "")
    for path in view.keys("space"):
        if path == _SHM or view.observation(f"space:{path}").state is State.ABSENT:
            continue
        free, _ = view.room(path)
        # Weights that are on disk already need no second place.
        needs_weights = path == hub and weights is not None and not view.keys("checkpoint")
        need = weights if needs_weights and weights is not None else floors["room"]
        line = f"{path}: {format_gb(free)} GB"
        shown.append(line)
        if free < need:
            short.append(f"{line} < {format_gb(need)} GB")
    if not shown:
        raise NotObservedError("not_collected", "space:")
    if short:
        return bad("short", len(short), *short)
    return ok(min(shown, key=len), *shown)


def disk_quota(view: View, _check: CheckFacts) -> Outcome:
    """The user may write where the weights lie: no quota stands in the way."""
    folders = view.keys("write")
    if not folders:
        raise NotApplicableError("no_checkpoint")
    found = view.observation(f"write:{folders[0]}")
    if found.state is State.OK:
        return ok(folders[0])
    if found.detail == "EDQUOT":
        return bad("quota", found.detail, folders[0])
    if found.detail == "ENOSPC":
        return bad("full", found.detail, folders[0])
    if found.detail in ("EROFS", "EACCES", "EPERM"):
        return info("read_only", found.detail, folders[0])
    raise NotObservedError(str(found.state), f"write:{folders[0]}")


_NETWORK_DISKS: Final = ("nfs", "cifs", "lustre", "ceph", "fuse", "gpfs", "beegfs", "9p", "smb")


def disk_type(view: View, check: CheckFacts) -> Outcome:
    """The weights are read well within the time the engine is given to be ready."""
    files = view.keys("speed")
    if not files:
        raise NotApplicableError("no_checkpoint")
    path = files[0]
    values = as_mapping(decode_json(view.text(f"speed:{path}"), path))
    seconds, read = float(values["seconds"]), int(values["bytes"])
    if seconds <= 0 or read <= 0:
        raise NotObservedError("unreadable", f"speed:{path}")
    rate = read / seconds
    degraded = [array.name for array in _arrays(view) if array.missing]
    if degraded:
        return bad("degraded", ", ".join(degraded), needed_s=0)
    mount = proc.mount_of(path, view.mounts)
    kind = "?" if mount is None else mount.fstype
    shown = f"{kind}, {rate / GB:.2f} GB/s"
    weights = view.checkpoint_bytes
    if weights is None:
        return info("speed", shown)
    needed = weights / rate
    limit = float(
        view.environment.get("VLLM_ENGINE_READY_TIMEOUT_S") or number_of(check, "ready_s")
    )
    if needed > limit:
        return bad("slow", shown, needed_s=round(needed), expected=f"{limit:.0f} s")
    if kind.startswith(_NETWORK_DISKS):
        return info("network", shown, needed_s=round(needed))
    return ok(f"{shown}, {needed:.0f} s")


def _arrays(view: View) -> tuple[proc.RaidArray, ...]:
    """Software RAID arrays; none where the kernel has no md driver."""
    found = view.snapshot.observations.get("read:/proc/mdstat")
    return () if found is None or found.state is not State.OK else proc.parse_mdstat(found.text)


# --- containers ----------------------------------------------------------------------------------


def docker_devices(view: View, _check: CheckFacts) -> Outcome:
    """The container has the cards' device nodes, and seccomp lets memory be bound."""
    missing = [path for path in ("/dev/kfd", "/dev/dri") if not view.exists(path)]
    if missing:
        return bad("missing", " ".join(missing))
    if view.status.seccomp:
        return bad("seccomp", view.status.seccomp, severity=Severity.WARN)
    return ok("/dev/kfd /dev/dri")


_CAP_SYS_NICE: Final = 23


def numa_capability(view: View, _check: CheckFacts) -> Outcome:
    """The container may bind memory to NUMA nodes."""
    capabilities = view.status.capabilities
    if capabilities is None:
        raise NotObservedError("not_stated", "read:/proc/self/status")
    if capabilities >> _CAP_SYS_NICE & 1:
        return ok("CAP_SYS_NICE")
    return bad("lacking", f"{capabilities:016x}")


def namespaces(view: View, check: CheckFacts) -> Outcome:
    """The container has the host's IPC (or a large /dev/shm) and, between hosts, its network."""
    _, shm = view.room(_SHM)
    interfaces = [path.split("/")[4] for path in view.paths("/sys/class/net/*/operstate")]
    bridged = set(interfaces) <= {"lo", "eth0"}
    if view.tensor_size > 1 and shm < number_of(check, "floor_bytes"):
        return bad("ipc", f"{shm / GIB:.2f} GiB")
    if view.planned_nodes > 1 and bridged:
        return bad("network", " ".join(interfaces))
    return ok(" ".join(interfaces))


def cgroup_driver(view: View, _check: CheckFacts) -> Outcome:
    """Docker's cgroup driver does not take cards away when systemd reloads."""
    key = next((each for each in view.keys("tool") if each.startswith("docker info")), None)
    if key is None or view.observation(f"tool:{key}").state is State.ABSENT:
        raise NotApplicableError("no_docker")
    docker: Any = view.parsed(proc.parse_docker_info, f"tool:{key}")
    if docker.cgroup_driver == "systemd" and not docker.cdi_dirs:
        return bad("systemd", docker.cgroup_driver)
    if docker.cgroup_driver is None:
        raise NotObservedError("not_stated", f"tool:{key}")
    return ok(docker.cgroup_driver)


CHECKS: Final = {
    "mem.host": memory,
    "mem.swap": swap,
    "mem.oom_history": oom_history,
    "mem.psi": pressure,
    "shm.size": shm_size,
    "shm.free": shm_free,
    "lim.memlock": memlock,
    "lim.nofile": nofile,
    "lim.ports": ephemeral_ports,
    "port.api": api_port,
    "proc.leftover": leftovers,
    "disk.space": disk_space,
    "disk.quota": disk_quota,
    "disk.type": disk_type,
    "docker.devices": docker_devices,
    "docker.numa_caps": numa_capability,
    "docker.ipc": namespaces,
    "docker.cgroup": cgroup_driver,
}
