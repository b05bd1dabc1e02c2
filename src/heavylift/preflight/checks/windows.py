"""Checks under WSL, where cards come through /dev/dxg and much is rightly absent."""

from __future__ import annotations

from typing import Final

from heavylift.facts.schema import CheckFacts
from heavylift.preflight.checks.outcome import NotObservedError, Outcome, bad, info, ok, well
from heavylift.preflight.checks.view import View
from heavylift.records.snapshot import State
from heavylift.units import format_gib

INSTALL_LOG: Final = "/mnt/c/Program Files/AMD/CIM/Log/Install.log"


def dxg(view: View, _check: CheckFacts) -> Outcome:
    """/dev/dxg, through which WSL hands cards over, is there."""
    return ok("/dev/dxg") if view.exists("/dev/dxg") else bad("absent", "/dev/dxg")


def no_kfd(view: View, _check: CheckFacts) -> Outcome:
    """/dev/kfd is absent under WSL and that is right; the ROCm runtime is what to ask."""
    runtime = view.observation("tool:rocminfo")
    if runtime.state is State.ABSENT:
        return info("no_runtime", "rocminfo")
    found = view.rocminfo
    if not found.gpus:
        return info("no_agent", found.error or "0", *([found.error] if found.error else []))
    return ok(", ".join(agent.marketing_name or agent.name or "?" for agent in found.gpus))


def torch_runtime(view: View, _check: CheckFacts) -> Outcome:
    """The HSA runtime beside torch is the one for WSL, not the one for bare metal."""
    libraries = [str(path) for path in view.engine("torch").get("hsa_runtime", ())]
    inside = [path for path in libraries if "/torch/lib/" in path]
    if inside:
        return bad("bundled", inside[0], *inside)
    return ok(libraries[0]) if libraries else well("none")


def memory(view: View, _check: CheckFacts) -> Outcome:
    """The memory Windows gives to WSL holds what loading needs."""
    total = view.meminfo.get("MemTotal")
    if total is None:
        raise NotObservedError("not_stated", "read:/proc/meminfo")
    shown = f"{format_gib(total)} GiB"
    plan = view.target.plan
    if plan is None:
        return info("given", shown)
    needed = plan.host.host_ram_bytes.low
    if total < needed:
        return bad("less", shown, expected=f"{format_gib(needed)} GiB")
    return ok(shown)


def amd_installer(view: View, _check: CheckFacts) -> Outcome:
    """The installer of the Windows driver did not end with the errors that mean a wrong package."""
    log = view.file(INSTALL_LOG)
    for code in ("182", "186"):
        line = next((row for row in log.splitlines() if f"Error {code}" in row), None)
        if line is not None:
            return bad(f"error_{code}", code, line.strip())
    return well("none")


CHECKS: Final = {
    "wsl.dxg": dxg,
    "wsl.amd_no_kfd": no_kfd,
    "wsl.torch_runtime": torch_runtime,
    "wsl.memory": memory,
    "win.amd_installer": amd_installer,
}
