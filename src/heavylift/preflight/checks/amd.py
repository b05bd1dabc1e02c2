"""Checks of AMD cards: module, device nodes, rights, topology, memory, partitions, health."""

from __future__ import annotations

from collections import Counter
from typing import Final

from heavylift.facts.schema import CheckFacts
from heavylift.preflight.checks.outcome import (
    NotApplicableError,
    NotObservedError,
    Outcome,
    bad,
    info,
    ok,
    well,
)
from heavylift.preflight.checks.view import AMD, View, number_of
from heavylift.records.finding import Severity
from heavylift.records.snapshot import State
from heavylift.telemetry import amd_smi
from heavylift.telemetry.kernel_log import KernelEventKind
from heavylift.telemetry.proc import parse_groups
from heavylift.telemetry.values import version
from heavylift.units import format_gib

_KFD: Final = "/dev/kfd"
_ALL_MAY: Final = 0o006


def pci(view: View, _check: CheckFacts) -> Outcome:
    """As many AMD cards on the PCI bus as the plan wants."""
    cards = view.pci_gpus(AMD)
    evidence = tuple(card.address for card in cards)
    wanted = view.planned_gpus
    if wanted is None:
        return info("counted", len(cards), *evidence)
    if len(cards) < wanted:
        return bad("missing", len(cards), *evidence, expected=wanted)
    return ok(len(cards), *evidence, expected=wanted)


def module(view: View, _check: CheckFacts) -> Outcome:
    """The amdgpu driver is in the kernel, as a module or built in."""
    if not view.exists("/sys/module/amdgpu"):
        return bad("absent", "/sys/module/amdgpu")
    found = view.snapshot.observations.get("read:/sys/module/amdgpu/version")
    stated = found.text.strip() if found is not None and found.state is State.OK else ""
    return ok(stated) if stated else well("in_tree")


def kfd_node(view: View, _check: CheckFacts) -> Outcome:
    """/dev/kfd is there."""
    if view.exists(_KFD):
        return ok(_KFD)
    reasons = view_lines(view, KernelEventKind.AMD_UNSUPPORTED, KernelEventKind.NO_ATOMICS)
    return bad("absent", _KFD, *reasons)


def view_lines(view: View, *kinds: KernelEventKind) -> tuple[str, ...]:
    """Kernel lines as evidence; none where the log could not be read."""
    try:
        return view.kernel_lines(*kinds)[:5]
    except NotObservedError:
        return ()


_OPEN_CASES: Final = {
    "EACCES": "eacces",
    "EPERM": "eperm",
    "EINVAL": "einval",
    "ENOMEM": "enomem",
    "EBUSY": "ebusy",
}


def kfd_open(view: View, _check: CheckFacts) -> Outcome:
    """The user may open /dev/kfd for reading and writing; else by which errno it is refused."""
    found = view.observation(f"open:{_KFD}")
    if found.state is State.OK:
        return well("opened")
    if found.state in (State.TIME_LIMIT, State.NOT_RUN):
        raise NotObservedError(str(found.state), f"open:{_KFD}")
    if found.state is State.ABSENT:
        raise NotApplicableError("no_kfd")
    return bad(_OPEN_CASES.get(found.detail, "refused"), found.detail)


def groups(view: View, _check: CheckFacts) -> Outcome:
    """The user has, by number, the groups that own the device nodes (or need none)."""
    nodes = [_KFD, *view.paths("/dev/dri/renderD*")]
    own = set(view.status.groups)
    names = parse_groups(view.file("/etc/group"))
    lacking: dict[int, list[str]] = {}
    for node in nodes:
        if node == _KFD and not view.exists(_KFD):
            raise NotApplicableError("no_kfd")
        stat = view.stat(node)
        gid, mode = int(stat["gid"]), int(stat["mode"])
        everyone = mode & _ALL_MAY == _ALL_MAY
        if not everyone and gid not in own and view.status.uid != 0:
            lacking.setdefault(gid, []).append(node)
    if lacking:
        shown = ", ".join(f"{gid} ({names.get(gid, '?')})" for gid in sorted(lacking))
        evidence = tuple(f"{gid}: {' '.join(paths)}" for gid, paths in sorted(lacking.items()))
        return bad("missing", shown, *evidence, gids=" ".join(map(str, sorted(lacking))))
    return ok(" ".join(str(gid) for gid in sorted(own)))


def render_nodes(view: View, _check: CheckFacts) -> Outcome:
    """As many render nodes as cards in the KFD topology."""
    nodes = view.paths("/dev/dri/renderD*")
    cards = [node for node in view.kfd_nodes if node.is_gpu]
    if len(nodes) < len({node.render_minor for node in cards}):
        return bad("fewer", len(nodes), *nodes, expected=len(cards))
    return ok(len(nodes), expected=len(cards))


def kfd_topology(view: View, _check: CheckFacts) -> Outcome:
    """The kernel offers for computing as many cards as the plan wants, or as the bus has."""
    cards = [node for node in view.kfd_nodes if node.is_gpu]
    evidence = tuple(f"node {node.number}: {node.gfx}, {node.bus_id}" for node in cards)
    wanted = view.planned_gpus
    if wanted is None:
        wanted = len(view.pci_gpus(AMD))
    if len(cards) < wanted:
        return bad("fewer", len(cards), *evidence, expected=wanted)
    return ok(len(cards), *evidence, expected=wanted)


def _archs(view: View) -> Counter[str]:
    try:
        found = Counter(node.gfx for node in view.kfd_nodes if node.is_gpu and node.gfx)
    except NotObservedError:
        found = Counter(agent.name for agent in view.rocminfo.gpus if agent.name)
    if not found:
        raise NotObservedError("no_card_listed", "/sys/class/kfd/kfd/topology")
    return found


def arch(view: View, _check: CheckFacts) -> Outcome:
    """The cards are of the architecture that was planned for."""
    found = _archs(view)
    observed = ", ".join(f"{count} × {name}" for name, count in sorted(found.items()))
    if view.target.gpu is None or view.target.gpu.vendor != AMD:
        return info("seen", observed)
    wanted = view.target.gpu.architecture
    if set(found) != {wanted}:
        return bad("other", observed, expected=wanted)
    return ok(observed, expected=wanted)


def partition(view: View, check: CheckFacts) -> Outcome:
    """Cards are whole (SPX, NPS1), as a tensor parallel plan counts them."""
    modes = {
        (card.compute_partition, card.memory_partition)
        for card in view.drm_cards
        if card.compute_partition or card.memory_partition
    }
    if not modes:
        modes = {
            (gpu.compute_partition, gpu.memory_partition)
            for gpu in view.amd_tool_gpus
            if gpu.compute_partition or gpu.memory_partition
        }
    if not modes:
        raise NotObservedError("not_stated", "tool:amd-smi static --json")
    whole = (str(check.values["compute"]), str(check.values["memory"]))
    shown = ", ".join(sorted("/".join(part or "?" for part in mode) for mode in modes))
    split = any((compute or whole[0], memory or whole[1]) != whole for compute, memory in modes)
    expected = "/".join(whole)
    return bad("split", shown, expected=expected) if split else ok(shown, expected=expected)


def _memory(view: View) -> dict[str, int]:
    """Bytes of memory by card: the kernel's banks, else sysfs or the tools."""
    try:
        banks = {
            f"node {node.number}": node.memory_bytes
            for node in view.kfd_nodes
            if node.is_gpu and node.memory_bytes
        }
    except NotObservedError:
        banks = {}
    if banks:
        return banks
    found = {
        card.bus_id or f"card {place}": card.total_bytes
        for place, card in enumerate(view.of_vendor(AMD))
        if card.total_bytes
    }
    if not found:
        raise NotObservedError("not_stated", "/sys/class/kfd/kfd/topology")
    return found


def vram(view: View, check: CheckFacts) -> Outcome:
    """Each card shows the memory that the catalogue has for it."""
    found = _memory(view)
    least, most = min(found.values()), max(found.values())
    observed = f"{len(found)} × {format_gib(least)} GiB"
    if view.target.gpu is None or view.target.gpu.vendor != AMD:
        if least != most:
            return bad("unequal", f"{format_gib(least)} – {format_gib(most)} GiB")
        return info("seen", observed)
    wanted = view.target.gpu.memory_visible.value
    expected = f"{format_gib(wanted)} GiB"
    if least < wanted * (1 - number_of(check, "shortfall_ratio")):
        return bad("less", observed, expected=expected)
    return ok(observed, expected=expected)


def vram_free(view: View, check: CheckFacts) -> Outcome:
    """Nothing holds memory of the cards."""
    return free_memory(view, check, AMD)


def free_memory(view: View, check: CheckFacts, vendor: str) -> Outcome:
    """Every card of a vendor has hardly any memory in use."""
    used = {
        card.bus_id or str(place): (card.used_bytes, card.total_bytes)
        for place, card in enumerate(view.of_vendor(vendor))
        if card.used_bytes is not None and card.total_bytes
    }
    if not used:
        raise NotObservedError("not_stated", "")
    ratio = number_of(check, "used_ratio")
    over = {
        name: f"{name}: {format_gib(held)} / {format_gib(total)} GiB"
        for name, (held, total) in used.items()
        if held / total > ratio
    }
    holders = tuple(f"{each.pid} {each.title}" for each in view.processes if each.devices)
    if over:
        return bad("held", f"{len(over)} / {len(used)}", *over.values(), *holders)
    return ok(f"{len(used)} / {len(used)}")


def rocm_driver_pair(view: View, check: CheckFacts) -> Outcome:
    """Driver and ROCm are of releases that go together."""
    rocm = view.file("/opt/rocm/.info/version")
    driver = view.snapshot.observations.get("read:/sys/module/amdgpu/version")
    stated = driver.text.strip() if driver is not None and driver.state is State.OK else ""
    observed = f"ROCm {rocm}, amdgpu {stated or '?'}"
    floor = str(check.values["capture_rocm"])
    arch_wanted = str(check.values["capture_architecture"])
    if arch_wanted in _archs(view) and version(rocm) < version(floor):
        return bad("old", observed, expected=floor)
    # Which other pairs go together is the vendor's matrix, which is not carried here.
    return info("pair", observed)


def firmware(view: View, check: CheckFacts) -> Outcome:
    """The firmware package is no known bad one, and all cards carry the same firmware."""
    package = _firmware_package(view)
    known_bad = str(check.values["bad_package"])
    if package and known_bad in package and str(check.values["bad_architecture"]) in _archs(view):
        return bad("known_bad", package)
    found = Counter(card.vbios for card in view.drm_cards if card.vbios)
    if not found:
        found = Counter(gpu.vbios for gpu in view.amd_tool_gpus if gpu.vbios)
    if not found:
        raise NotObservedError("not_stated", "tool:amd-smi static --json")
    shown = ", ".join(f"{count} × {name}" for name, count in sorted(found.items()))
    return bad("unequal", shown) if len(found) > 1 else ok(shown)


def _firmware_package(view: View) -> str:
    """The version of the linux-firmware package; empty where no package manager told it."""
    for key in ("tool:dpkg-query -W -f=${Version} linux-firmware", "tool:rpm -q linux-firmware"):
        found = view.snapshot.observations.get(key)
        if found is not None and found.state is State.OK and found.text.strip():
            return found.text.strip()
    return ""


def integrated(view: View, check: CheckFacts) -> Outcome:
    """No integrated GPU stands beside the cards, or it is hidden from the runtime."""
    sizes = {
        card.bus_id or card.name or "?": card.total_bytes
        for card in view.of_vendor(AMD)
        if card.total_bytes
    }
    if not sizes:
        raise NotObservedError("not_stated", "")
    largest = max(sizes.values())
    small = [name for name, size in sizes.items() if size < largest * number_of(check, "ratio")]
    if not small:
        return ok(len(sizes))
    environment = view.environment
    chosen = [
        f"{name}={environment[name]}"
        for name in str(check.values["variables"]).split()
        if name in environment
    ]
    if chosen:
        return ok(chosen[0], *small)
    return bad("beside", ", ".join(small), *(f"{k}: {v} B" for k, v in sizes.items()))


def hsa_override(view: View, check: CheckFacts) -> Outcome:
    """HSA_OVERRIDE_GFX_VERSION is unset, or says what the cards are anyway."""
    start = str(check.values["variable"])
    values = {k: v for k, v in view.environment.items() if k.startswith(start)}
    if not values:
        return well("not_set")
    evidence = tuple(f"{name}={value}" for name, value in sorted(values.items()))
    # 9.4.2 -> gfx942: major, then minor and stepping as hexadecimal digits.
    said = {
        f"gfx{parts[0]}" + "".join(f"{part:x}" for part in parts[1:3])
        for parts in map(version, values.values())
        if parts
    }
    real = set(_archs(view))
    if said <= real:
        return info("same", evidence[0])
    return bad("other", ", ".join(sorted(said)), *evidence, expected=", ".join(sorted(real)))


_BAD_EVENTS: Final = (
    KernelEventKind.AMD_INIT_FAILED,
    KernelEventKind.AMD_UNSUPPORTED,
    KernelEventKind.AMD_RING_TIMEOUT,
    KernelEventKind.AMD_VRAM_LOST,
    KernelEventKind.AMD_BAR,
    KernelEventKind.HARDWARE_ERROR,
    KernelEventKind.FALLEN_OFF_BUS,
)


def kernel_log(view: View, _check: CheckFacts) -> Outcome:
    """The kernel log of this boot has no failure of a card."""
    events = [event for event in view.kernel_events if event.kind in _BAD_EVENTS]
    if not events:
        return ok(0)
    first = events[0]
    return bad(
        str(first.kind), len(events), *(event.line for event in events[:5]), device=first.device
    )


def ras(view: View, _check: CheckFacts) -> Outcome:
    """No uncorrectable memory error was counted and no bad page waits to be taken out."""
    gpus = view.amd_tool_gpus
    counts = {gpu.index: gpu.ecc_uncorrectable for gpu in gpus if gpu.ecc_uncorrectable is not None}
    pending = {gpu.index: gpu.bad_pages_pending for gpu in gpus if gpu.bad_pages_pending}
    if not counts and not pending:
        raise NotObservedError("not_stated", "tool:amd-smi metric --json")
    wrong = {index: count for index, count in counts.items() if count}
    evidence = tuple(f"GPU {index}: {count}" for index, count in sorted(wrong.items()))
    if pending:
        return bad("pending", sum(pending.values()), *evidence)
    if wrong:
        return bad("uncorrectable", sum(wrong.values()), *evidence)
    return ok(0)


def tools_agree(view: View, _check: CheckFacts) -> Outcome:
    """The vendor's tool prints something we can read."""
    for command in ("static", "metric", "process", "topology"):
        key = f"tool:amd-smi {command} --json"
        found = view.snapshot.observations.get(key)
        missing = None if found is None else amd_smi.driver_missing(found.text + found.detail)
        if missing:
            return bad("no_driver", missing, missing, severity=Severity.FAIL)
    gpus = view.amd_tool_gpus
    return info("read", len(gpus)) if not gpus else ok(len(gpus))


CHECKS: Final = {
    "amd.pci": pci,
    "amd.module": module,
    "amd.kfd_node": kfd_node,
    "amd.kfd_open": kfd_open,
    "amd.groups": groups,
    "amd.render_nodes": render_nodes,
    "amd.kfd_topology": kfd_topology,
    "amd.arch": arch,
    "amd.partition": partition,
    "amd.vram": vram,
    "amd.vram_free": vram_free,
    "amd.rocm_driver_pair": rocm_driver_pair,
    "amd.firmware": firmware,
    "amd.igpu": integrated,
    "amd.hsa_override": hsa_override,
    "amd.dmesg": kernel_log,
    "amd.ras": ras,
    "amd.smi_sane": tools_agree,
}
