"""Checks of networks: interfaces, RDMA adapters, and what several hosts must have in common."""

from __future__ import annotations

import contextlib
from typing import Final

from heavylift.facts.schema import CheckFacts
from heavylift.preflight.checks.outcome import (
    NotApplicableError,
    NotObservedError,
    Outcome,
    bad,
    info,
    ok,
)
from heavylift.preflight.checks.view import AMD, View, number_of
from heavylift.records.snapshot import State
from heavylift.telemetry.infiniband import IbPort
from heavylift.telemetry.kernel_log import KernelEventKind
from heavylift.telemetry.proc import parse_default_interfaces
from heavylift.telemetry.values import version

_ACTIVE: Final = "ACTIVE"
_UP: Final = ("LinkUp", _ACTIVE)


def interface(view: View, check: CheckFacts) -> Outcome:
    """The interface that collectives are told to use is there and is the one with the route."""
    present = {
        path.split("/")[4]: view.file(path).strip()
        for path in view.paths("/sys/class/net/*/operstate")
    }
    default = parse_default_interfaces(view.text("read:/proc/net/route"))
    names = str(check.values["variables"]).split()
    told = {name: view.environment[name] for name in names if name in view.environment}
    shown = " ".join(f"{name}={value}" for name, value in told.items()) or "?"
    wanted = {
        # ^docker excludes, =eth0 is exact, eth is a beginning.
        word.lstrip("=")
        for value in told.values()
        for word in value.split(",")
        if not value.startswith("^")
    }
    absent = [word for word in wanted if not any(name.startswith(word) for name in present)]
    if absent:
        return bad("absent", ", ".join(absent), *sorted(present))
    if not default:
        return bad("no_route", shown, *sorted(present))
    if len(set(told.values())) > 1:
        return bad("differ", shown)
    if not told:
        return bad("not_set", ", ".join(default), expected=default[0])
    return ok(shown)


def _ports(view: View) -> list[tuple[str, IbPort]]:
    return [(device.name, port) for device in view.infiniband for port in device.ports]


def ports(view: View, _check: CheckFacts) -> Outcome:
    """RDMA ports are active, and equal in rate."""
    found = _ports(view)
    down = [
        f"{name}/{port.number}: {port.state}, {port.physical}"
        for name, port in found
        if port.state != _ACTIVE or port.physical not in (*_UP, None)
    ]
    if len(down) == len(found):
        return bad("all_down", len(down), *down)
    if down:
        return bad("down", f"{len(down)} / {len(found)}", *down)
    rates = {port.rate_gb_per_s for _, port in found if port.rate_gb_per_s is not None}
    lines = tuple(f"{name}/{port.number}: {port.rate_gb_per_s} Gb/s" for name, port in found)
    if len(rates) > 1:
        return info("unequal", ", ".join(f"{rate:g}" for rate in sorted(rates)), *lines)
    return ok(f"{len(found)} × {max(rates, default=0):g} Gb/s", *lines)


def counters(view: View, check: CheckFacts) -> Outcome:
    """RDMA ports have not counted errors."""
    names = str(check.values["counters"]).split()
    told = False
    lines = []
    for name, port in _ports(view):
        for counter in names:
            value = port.counters.get(counter)
            told |= value is not None
            if value:
                lines.append(f"{name}/{port.number}: {counter} {value}")
    if not told:
        raise NotObservedError("not_stated", "/sys/class/infiniband")
    return bad("counted", len(lines), *lines[:8]) if lines else ok(0)


def gid(view: View, check: CheckFacts) -> Outcome:
    """Every RoCE port has a RoCE v2 GID with a routable IPv4 address, at the same index."""
    indexes: dict[str, int | None] = {}
    for name, port in _ports(view):
        if port.link_layer != "Ethernet":
            continue
        routable = [
            entry.index
            for entry in port.gids
            if entry.routable_v4 and (entry.kind or "").endswith("v2")
        ]
        if not port.gids:
            raise NotObservedError("not_stated", f"/sys/class/infiniband/{name}/ports")
        indexes[f"{name}/{port.number}"] = max(routable, default=None)
    if not indexes:
        raise NotApplicableError("no_roce")
    lines = tuple(f"{name}: {index}" for name, index in indexes.items())
    without = [name for name, index in indexes.items() if index is None]
    if without:
        return bad("none", ", ".join(without), *lines)
    told = view.environment.get(str(check.values["variable"]))
    if len(set(indexes.values())) > 1 and told is not None:
        return bad("unequal", told, *lines)
    index = next(iter(indexes.values()))
    if told is not None and told != str(index):
        return bad("wrong", told, *lines, expected=index)
    return ok(index, *lines)


def rail(view: View, check: CheckFacts) -> Outcome:
    """With several RoCE rails, collectives are kept on their own rail unless rails are routed."""
    ethernet = [name for name, port in _ports(view) if port.link_layer == "Ethernet"]
    if len(ethernet) < 2:  # noqa: PLR2004 - several
        raise NotApplicableError("one_rail")
    value = view.environment.get(str(check.values["variable"]))
    if value is None:
        return bad("not_set", len(ethernet), *ethernet)
    return ok(value)


def peer_memory(view: View, check: CheckFacts) -> Outcome:
    """Adapters may read card memory directly."""
    try:
        refused = view.kernel_lines(KernelEventKind.PEER_DMABUF)
    except NotObservedError:
        refused = ()
    if refused:
        return bad("dmabuf", len(refused), *refused[:3])
    modules = view.text("read:/proc/modules")
    if "nvidia_peermem" in modules or view.exists("/sys/module/nvidia_peermem"):
        return ok("nvidia_peermem")
    kernel = version(view.file("/proc/sys/kernel/osrelease"))
    if kernel >= version(str(check.values["dmabuf_kernel"])):
        return ok("dmabuf", f"kernel {'.'.join(map(str, kernel))}")
    return bad("absent", "nvidia_peermem")


def gpu_initiated(view: View, check: CheckFacts) -> Outcome:
    """For expert parallelism over RDMA: the driver lets cards ring an adapter's doorbell."""
    plan = view.plan
    if plan.layout.expert_parallel_size <= 1 or plan.rack.nodes == 1:
        raise NotApplicableError("no_expert_parallel_over_rdma")
    parameters = view.file("/proc/driver/nvidia/params")
    option = str(check.values["option"])
    line = next((row for row in parameters.splitlines() if "RegistryDwords" in row), "")
    if option not in line:
        return bad("not_set", line or "RegistryDwords", expected=f"{option}=1")
    return ok(line)


def ray_cluster(view: View, check: CheckFacts) -> Outcome:
    """A Ray cluster that is running is the one that is meant, and has its cards."""
    found = view.observation("tool:ray status")
    address = view.environment.get("RAY_ADDRESS")
    running = any("ray" in each.title.lower().split("::")[0] for each in view.processes)
    if address is None and not running:
        raise NotApplicableError("no_ray")
    if found.state is State.ABSENT:
        raise NotObservedError("absent", "tool:ray status")
    if found.state is not State.OK:
        return bad(
            "unreachable", address or "local", found.detail.splitlines()[0] if found.detail else ""
        )
    line = next((row.strip() for row in found.text.splitlines() if row.strip().endswith("GPU")), "")
    if not line:
        return bad("no_gpu", address or "local")
    used, _, total = line.split(" ")[0].partition("/")
    wanted = view.target.plan.rack.gpu_count if view.target.plan is not None else 0
    if total and float(total) < wanted:
        return bad("fewer", total, line, expected=wanted)
    if used and float(used) > number_of(check, "used_gpus"):
        return bad("used", used, line)
    return ok(line)


def software_of(view: View) -> dict[str, str]:
    """What must be equal on all hosts: driver, cards, firmware, ROCm, kernel, engine."""
    found: dict[str, str] = {}

    def note(name: str, value: str | None) -> None:
        if value:
            found[name] = value

    try:
        report = view.nvidia
        note("nvidia_driver", report.driver_version)
        note("cards", ", ".join(sorted({gpu.name or "?" for gpu in report.gpus})))
        note("card_count", str(len(report.gpus)))
        note("firmware", ", ".join(sorted({gpu.vbios or "?" for gpu in report.gpus})))
    except NotObservedError:
        pass
    for name, path in (
        ("amdgpu_driver", "/sys/module/amdgpu/version"),
        ("rocm", "/opt/rocm/.info/version"),
        ("kernel", "/proc/sys/kernel/osrelease"),
    ):
        each = view.snapshot.observations.get(f"read:{path}")
        note(name, None if each is None or each.state is not State.OK else each.text.strip())
    try:
        if AMD in view.vendors:
            cards = [node for node in view.kfd_nodes if node.is_gpu]
            note("cards", ", ".join(sorted({node.gfx or "?" for node in cards})))
            note("card_count", str(len(cards)))
            note("firmware", ", ".join(sorted({c.vbios for c in view.drm_cards if c.vbios})))
    except NotObservedError:
        pass
    try:
        for package, stated in view.engine("versions").items():
            note(f"package_{package}", str(stated))
    except NotObservedError:
        pass
    with contextlib.suppress(NotObservedError, NotApplicableError):
        note("checkpoint_bytes", str(view.checkpoint.get("bytes", "")))
    return found


def nodes_equal(views: list[View]) -> Outcome:
    """All hosts have the same driver, cards, firmware, ROCm, kernel and engine."""
    if len(views) < 2:  # noqa: PLR2004 - several
        raise NotApplicableError("one_host")
    by_host = {view.snapshot.host: software_of(view) for view in views}
    names = sorted({name for values in by_host.values() for name in values})
    compared = [name for name in names if name != "kernel"]
    if not compared:
        raise NotObservedError("nothing_to_compare", "")
    different = [
        f"{name}: "
        + ", ".join(f"{host} {values.get(name, '?')}" for host, values in by_host.items())
        for name in names
        if len({values.get(name, "?") for values in by_host.values()}) > 1
    ]
    if different:
        return bad("differ", len(different), *different)
    return ok(", ".join(compared), hosts_line(by_host))


def hosts_line(by_host: dict[str, dict[str, str]]) -> str:
    """The names of the hosts that were compared."""
    return ", ".join(by_host)


CHECKS: Final = {
    "net.ifname": interface,
    "ib.ports": ports,
    "ib.counters": counters,
    "ib.gid": gid,
    "ib.rail": rail,
    "ib.peermem": peer_memory,
    "ib.ibgda": gpu_initiated,
    "ray.cluster": ray_cluster,
}
"""`node.equal` is not among them: it looks at all hosts at once."""
