"""Checks of BIOS settings, PCIe, links between cards, and NUMA."""

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
from heavylift.preflight.checks.view import AMD, NVIDIA, View, number_of
from heavylift.records.finding import Severity
from heavylift.telemetry import amd_smi, kfd, nvidia_links
from heavylift.telemetry.kernel_log import KernelEventKind
from heavylift.telemetry.proc import parse_cpu_list
from heavylift.units import format_gib


def bar(view: View, check: CheckFacts) -> Outcome:
    """The host can address the whole memory of every card (Above 4G Decoding, Resizable BAR)."""
    refused = _kernel_lines(view, KernelEventKind.AMD_BAR)
    if refused:
        return bad("refused", len(refused), *refused[:3], severity=Severity.FAIL)
    sizes = {
        card.bus_id or str(place): (card.bar_bytes, card.total_bytes)
        for place, card in enumerate(view.cards)
        if card.bar_bytes is not None and card.total_bytes
    }
    if not sizes:
        raise NotObservedError("not_stated", "")
    ratio = number_of(check, "ratio")
    small = [
        f"{name}: {format_gib(size)} / {format_gib(total)} GiB"
        for name, (size, total) in sizes.items()
        if size < total * ratio
    ]
    if small:
        return bad("small", f"{len(small)} / {len(sizes)}", *small)
    return ok(len(sizes))


def _kernel_lines(view: View, *kinds: KernelEventKind) -> tuple[str, ...]:
    try:
        return view.kernel_lines(*kinds)
    except NotObservedError:
        return ()


def iommu(view: View, _check: CheckFacts) -> Outcome:
    """The IOMMU is as the cards' vendor wants it: the two advise differently."""
    options = view.kernel_options
    words = {f"{name}={value}" for name, value in options.items() if "iommu" in name}
    shown = " ".join(sorted(words)) or "iommu=?"
    active = bool(view.paths("/sys/class/iommu/*"))
    kinds = set(view.files("/sys/kernel/iommu_groups/").values())
    # What the kernel does outranks what it was told: some are built to pass through by default.
    passed = {kind.strip() for kind in kinds} == {"identity"} or (
        options.get("iommu") == "pt" or options.get("iommu.passthrough") == "1"
    )
    off = "off" in (options.get("iommu"), options.get("amd_iommu"), options.get("intel_iommu"))
    observed = f"{shown}; {'on' if active else 'off'}"
    if AMD in view.vendors:
        if active and not passed:
            return bad("amd_no_pt", observed, expected="iommu=pt")
        return ok(observed) if active else info("amd_off", observed)
    if active and not passed and not off and not _joined_by_links(view):
        return bad("nvidia_on", observed, expected="iommu=pt")
    return ok(observed)


def _joined_by_links(view: View) -> bool:
    """True when cards talk over links of their own, past PCIe; False also when that is not told."""
    try:
        return not _slow_pairs(view)
    except (NotObservedError, NotApplicableError):
        return False


def acs(view: View, check: CheckFacts) -> Outcome:
    """Bridges let cards talk to one another directly: ACS redirection is off."""
    if _joined_by_links(view):
        return info("linked", None)
    bridges = [device for device in view.lspci if device.is_bridge]
    told = [device for device in bridges if device.acs is not None]
    above = _above_cards(view)
    if above:
        told = [device for device in told if _with_domain(device.address) in above]
    if not told:
        raise NotObservedError("needs_root", "tool:lspci -vvv")
    harmful = set(str(check.values["bits"]).split())
    on = [
        f"{device.address}: {' '.join(device.acs or ())}"
        for device in told
        if harmful & set(device.acs or ())
    ]
    return bad("redirects", len(on), *on[:8]) if on else ok(f"{len(told)} bridges")


def _above_cards(view: View) -> set[str]:
    """Addresses on the way from the host to the cards; empty where the paths were not seen."""
    cards = [device.address for vendor in (AMD, NVIDIA) for device in view.pci_gpus(vendor)]
    found: set[str] = set()
    for address in cards:
        path = view.snapshot.observations.get(f"link:/sys/bus/pci/devices/{address}")
        if path is not None:
            found |= set(path.text.split("/")) - {address}
    return found


def _with_domain(address: str) -> str:
    """The address with its domain, which lspci leaves out where all are in the first."""
    return address if address.count(":") > 1 else f"0000:{address}"


def link(view: View, _check: CheckFacts) -> Outcome:
    """Each card's PCIe link is as wide as the card and the slot can be."""
    rows: list[tuple[str, int | None, int | None]] = [
        (device.address, device.link_width, device.link_width_max)
        for vendor in (AMD, NVIDIA)
        for device in view.pci_gpus(vendor)
    ]
    if not any(width for _, width, _ in rows):
        rows = [(gpu.bus_id or "?", gpu.link_width, gpu.link_width_max) for gpu in view.nvidia.gpus]
    known = [(name, width, most) for name, width, most in rows if width and most]
    if not known:
        raise NotObservedError("not_stated", "")
    # The speed of an idle link drops to save power; its width does not.
    narrow = [f"{name}: x{width} / x{most}" for name, width, most in known if width < most]
    if narrow:
        return bad("narrow", len(narrow), *narrow)
    return ok(f"{len(known)} × x{min(width for _, width, _ in known)}")


def atomics(view: View, _check: CheckFacts) -> Outcome:
    """The way to the cards carries PCIe atomic operations."""
    lines = view.kernel_lines(KernelEventKind.NO_ATOMICS)
    if lines:
        return bad("refused", len(lines), *lines[:3])
    # Where the kernel took a card for computing, it has found atomics to be there.
    if any(node.is_gpu for node in view.kfd_nodes):
        return well("in_use")
    raise NotObservedError("not_stated", "tool:lspci -vvv")


def links(view: View, _check: CheckFacts) -> Outcome:
    """All cards of a tensor parallel group are joined by NVLink or XGMI."""
    slow = _slow_pairs(view)
    if slow:
        counted = Counter(kind for _, kind in slow)
        shown = ", ".join(f"{count} × {kind}" for kind, count in sorted(counted.items()))
        return bad("pcie", shown, *(f"{pair}: {kind}" for pair, kind in slow[:8]))
    return well("linked")


def _slow_pairs(view: View) -> list[tuple[str, str]]:
    """Pairs of cards that are joined by something slower than their vendor's link."""
    if NVIDIA in view.vendors:
        matrix = view.parsed(nvidia_links.parse_topology, "tool:nvidia-smi topo -m")
        if len(matrix.gpus) < 2:  # noqa: PLR2004 - a pair
            raise NotApplicableError("one_gpu")
        return [
            (f"GPU{a}–GPU{b}", kind)
            for (a, b), kind in matrix.links.items()
            if a < b and not kind.startswith("NV")
        ]
    nodes = {node.number: node for node in view.kfd_nodes if node.is_gpu}
    if len(nodes) < 2:  # noqa: PLR2004 - a pair
        raise NotApplicableError("one_gpu")
    joined = {
        (node.number, each.node_to)
        for node in nodes.values()
        for each in node.links
        if each.kind == kfd.XGMI
    }
    if not any(node.links for node in nodes.values()):
        found = view.parsed(amd_smi.parse_topology, "tool:amd-smi topology --json")
        return [(f"{e.first}–{e.second}", e.kind) for e in found if e.kind != "XGMI"]
    return [
        (f"node {a}–{b}", "PCIe")
        for a in nodes
        for b in nodes
        if a < b and (a, b) not in joined and (b, a) not in joined
    ]


def p2p_test(view: View, check: CheckFacts) -> Outcome:
    """A sum over two cards comes back right, in time and fast enough."""
    found = view.engine("all_reduce")
    if "hung_s" in found:
        return bad("hung", int(found["hung_s"]))
    if int(found.get("devices", 0)) < 2:  # noqa: PLR2004 - a pair
        raise NotObservedError("engine_sees_too_few", "engine:all_reduce")
    if "exact" not in found:
        return bad("died", str(found.get("exit_codes")))
    if not found["exact"]:
        return bad("wrong", "false")
    rate = float(found["bus_gb_per_s"])
    floor = number_of(check, "floor_gb_per_s")
    if rate < floor:
        return bad("slow", f"{rate:.1f}", expected=f"{floor:g}", severity=Severity.WARN)
    return ok(f"{rate:.1f} GB/s")


def numa_balancing(view: View, _check: CheckFacts) -> Outcome:
    """The kernel does not move pages between NUMA nodes by itself."""
    value = view.file("/proc/sys/kernel/numa_balancing")
    if value == "0":
        return ok(value)
    # One node has nothing to balance.
    if view.file("/sys/devices/system/node/online") == "0":
        return well("one_node", value)
    return bad("on", value, expected="0")


def numa_map(view: View, _check: CheckFacts) -> Outcome:
    """Which NUMA node each card hangs on, for binding its process."""
    if view.file("/sys/devices/system/node/online") == "0":
        raise NotApplicableError("one_numa_node")
    found = {
        device.address: device.numa_node
        for vendor in (AMD, NVIDIA)
        for device in view.pci_gpus(vendor)
        if device.numa_node is not None
    }
    if not found:
        raise NotObservedError("not_stated", "")
    lines = tuple(f"{address}: {node}" for address, node in found.items())
    if any(node < 0 for node in found.values()):
        return info("not_told", len(found), *lines)
    return info("bind", len(set(found.values())), *lines)


def x2apic(view: View, check: CheckFacts) -> Outcome:
    """All CPUs the machine has are online."""
    online = parse_cpu_list(view.file("/sys/devices/system/cpu/online"))
    present = parse_cpu_list(view.file("/sys/devices/system/cpu/present"))
    if online < present:
        return bad("offline", online, expected=present)
    edge = int(number_of(check, "edge_cpus"))
    if online == edge - 1 and "nox2apic" in view.kernel_options:
        return bad("edge", online, expected=edge)
    return ok(online)


CHECKS: Final = {
    "bios.bar": bar,
    "bios.iommu": iommu,
    "bios.acs": acs,
    "pci.link": link,
    "pci.atomics": atomics,
    "topo.links": links,
    "topo.p2p_test": p2p_test,
    "host.numa_balancing": numa_balancing,
    "host.numa_map": numa_map,
    "host.x2apic": x2apic,
}
