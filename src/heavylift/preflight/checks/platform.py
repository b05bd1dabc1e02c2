"""Checks of the platform: distribution, WSL, container, virtual machine."""

from __future__ import annotations

from typing import Final

from heavylift.facts.schema import CheckFacts
from heavylift.preflight.checks.outcome import NotObservedError, Outcome, bad, info, ok, well
from heavylift.preflight.checks.view import View
from heavylift.telemetry.proc import parse_os_release

_WHO_MADE_IT: Final = (
    "tool:systemd-detect-virt",
    "read:/sys/class/dmi/id/sys_vendor",
    "read:/sys/class/dmi/id/product_name",
)
_VIRTUAL: Final = ("kvm", "qemu", "vmware", "xen", "microsoft", "amazon", "oracle", "parallels")


def os_release(view: View, check: CheckFacts) -> Outcome:
    """The distribution is one that GPU drivers are published for, and the kernel is told."""
    release = parse_os_release(view.file("/etc/os-release"))
    kernel = view.file("/proc/sys/kernel/osrelease")
    name = release.get("PRETTY_NAME", release.get("ID", "?"))
    observed = f"{name}, {kernel}"
    families = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    known = set(str(check.values["families"]).split())
    if families & known:
        return ok(observed)
    return bad("not_listed", observed, expected=" ".join(sorted(known)))


def wsl(view: View, _check: CheckFacts) -> Outcome:
    """Whether this is WSL: other rules hold there."""
    kernel = view.file("/proc/sys/kernel/osrelease")
    return info("wsl" if view.wsl else "native", kernel)


def container(view: View, _check: CheckFacts) -> Outcome:
    """Whether this is a container: limits are those of its cgroup."""
    return info("container" if view.container else "host", view.container)


def virtual_machine(view: View, _check: CheckFacts) -> Outcome:
    """Bare metal, or a machine whose NUMA nodes are shown to the guest."""
    kind = _virtualisation(view)
    if kind is None:
        return well("bare_metal")
    nodes = view.file("/sys/devices/system/node/online")
    if nodes == "0" and view.gpu_count > 1:
        return bad("flat", f"{kind}, NUMA {nodes}")
    return ok(f"{kind}, NUMA {nodes}")


def _virtualisation(view: View) -> str | None:
    """The hypervisor's name; None on bare metal. A container answers for itself, not its host."""
    words = []
    for key in _WHO_MADE_IT:
        found = view.snapshot.observations.get(key)
        # The tool ends with 1 on bare metal: its word counts, not its status.
        if found is not None and found.text.strip():
            words.append(found.text.strip())
    for word in words:
        if any(sign in word.lower() for sign in _VIRTUAL):
            return word
    if not words or words == ["docker"]:
        raise NotObservedError("not_stated", "tool:systemd-detect-virt")
    return None


CHECKS: Final = {
    "os.release": os_release,
    "plat.wsl": wsl,
    "plat.container": container,
    "plat.vm": virtual_machine,
}
