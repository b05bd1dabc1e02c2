"""Checks of NVIDIA cards: driver, devices, CUDA pairing, memory, MIG, errors, fabric."""

from __future__ import annotations

from collections import Counter
from typing import Final

from heavylift.facts.schema import CheckFacts
from heavylift.preflight.checks.amd import free_memory
from heavylift.preflight.checks.outcome import (
    NotApplicableError,
    NotObservedError,
    Outcome,
    bad,
    info,
    ok,
    well,
)
from heavylift.preflight.checks.view import NVIDIA, View, number_of
from heavylift.records.snapshot import State
from heavylift.telemetry.kernel_log import KernelEventKind
from heavylift.telemetry.proc import parse_docker_info
from heavylift.telemetry.values import version
from heavylift.units import format_gib

_SMI: Final = "tool:nvidia-smi -q -x"


def module(view: View, _check: CheckFacts) -> Outcome:
    """The driver is loaded and its device nodes are there."""
    paths = ("/dev/nvidiactl", "/dev/nvidia-uvm")
    missing = [path for path in paths if not view.exists(path)]
    if not view.paths("/dev/nvidia[0-9]*"):
        missing.append("/dev/nvidia0")
    loaded = view.snapshot.observations.get("read:/proc/driver/nvidia/version")
    line = loaded.text.splitlines()[0] if loaded is not None and loaded.text else ""
    if missing:
        return bad("uvm" if missing == ["/dev/nvidia-uvm"] else "absent", " ".join(missing), line)
    return ok(line or "/dev/nvidiactl")


def smi(view: View, _check: CheckFacts) -> Outcome:
    """nvidia-smi answers and lists as many cards as the plan wants."""
    found = view.observation(_SMI)
    said = f"{found.text}\n{found.detail}"
    if found.state is State.FAILED:
        line = next((row.strip() for row in said.splitlines() if row.strip()), "")
        return bad("mismatch" if "mismatch" in said else "error", line, line)
    cards = view.nvidia.gpus
    evidence = tuple(f"{gpu.index}: {gpu.name}, {gpu.bus_id}" for gpu in cards)
    wanted = view.planned_gpus
    if wanted is not None and len(cards) < wanted:
        return bad("fewer", len(cards), *evidence, expected=wanted)
    if not cards:
        return bad("none", 0)
    return ok(len(cards), *evidence, expected=wanted)


def driver_min(view: View, check: CheckFacts) -> Outcome:
    """The driver serves the CUDA release that the engine's torch is built for."""
    driver = view.nvidia.driver_version
    if driver is None:
        raise NotObservedError("not_stated", _SMI)
    build = _cuda_build(view, check)
    # A floor per CUDA release: of those not above the build, the newest counts.
    floors = {
        version(key): str(floor) for key, floor in check.values.items() if key.startswith("cuda ")
    }
    served = [key for key in floors if key <= version(build)]
    if not served:
        raise NotObservedError("no_rule", build)
    floor = floors[max(served)]
    observed = f"{driver}, CUDA {build}"
    if version(driver) < version(floor):
        return bad("old", observed, expected=floor)
    return ok(observed, expected=floor)


def _cuda_build(view: View, check: CheckFacts) -> str:
    """The CUDA release of the torch build; without an engine, that of the recipe's image."""
    try:
        cuda = view.engine("torch").get("cuda")
    except NotObservedError:
        cuda = None
    if isinstance(cuda, str):
        return cuda
    recipe = view.target.recipe
    image = None if recipe is None else check.values.get(f"image {recipe.image}")
    if image is None:
        raise NotObservedError("no_engine_python", "engine:torch")
    return str(image)


def compute_cap(view: View, _check: CheckFacts) -> Outcome:
    """The cards are of the architecture that was planned for."""
    found = Counter(f"sm_{cap.replace('.', '')}" for cap in view.nvidia_compute_caps)
    observed = ", ".join(f"{count} × {name}" for name, count in sorted(found.items()))
    if view.target.gpu is None or view.target.gpu.vendor != NVIDIA:
        return info("seen", observed)
    wanted = view.target.gpu.architecture
    if set(found) != {wanted}:
        return bad("other", observed, expected=wanted)
    return ok(observed, expected=wanted)


def vram_free(view: View, check: CheckFacts) -> Outcome:
    """Cards show the memory of the catalogue, and nothing holds it."""
    for card in view.of_vendor(NVIDIA):
        facts = view.facts_of(card.name)
        if facts is None or card.total_bytes is None:
            continue
        wanted = facts.memory_visible.value
        if card.total_bytes < wanted * (1 - number_of(check, "shortfall_ratio")):
            seen = f"{card.name}: {format_gib(card.total_bytes)} GiB"
            return bad("less", seen, expected=f"{format_gib(wanted)} GiB")
    return free_memory(view, check, NVIDIA)


def mig(view: View, _check: CheckFacts) -> Outcome:
    """No card is cut into MIG slices."""
    modes = {gpu.index: gpu.mig for gpu in view.nvidia.gpus}
    if not modes:
        raise NotObservedError("no_card_listed", _SMI)
    if None in modes.values():
        raise NotObservedError("not_stated", _SMI)
    cut = [f"GPU {index}" for index, mode in modes.items() if mode]
    return bad("cut", len(cut), *cut) if cut else ok("Disabled")


def ecc(view: View, _check: CheckFacts) -> Outcome:
    """No uncorrectable error, no row that waits to be remapped, no recovery asked for."""
    wrong: dict[str, list[str]] = {"failure": [], "pending": [], "uncorrected": [], "recovery": []}
    told = False
    for gpu in view.nvidia.gpus:
        told |= gpu.ecc_uncorrected_volatile is not None or gpu.remapped_pending is not None
        name = f"GPU {gpu.index}"
        if gpu.remapped_failure:
            wrong["failure"].append(name)
        if gpu.remapped_pending:
            wrong["pending"].append(name)
        if gpu.ecc_uncorrected_volatile:
            wrong["uncorrected"].append(f"{name}: {gpu.ecc_uncorrected_volatile}")
        if gpu.recovery_action not in (None, "None"):
            wrong["recovery"].append(f"{name}: {gpu.recovery_action}")
    case = next((case for case, cards in wrong.items() if cards), None)
    if case is not None:
        return bad(case, len(wrong[case]), *wrong[case])
    if not told:
        # Cards for games have no ECC to ask about.
        raise NotObservedError("not_stated", _SMI)
    return ok(0)


def xid(view: View, check: CheckFacts) -> Outcome:
    """The kernel log has no XID of a class that means a broken card or link."""
    lost = view.kernel_lines(KernelEventKind.FALLEN_OFF_BUS, KernelEventKind.NVIDIA_PROBE_FAILED)
    if lost:
        return bad("lost", len(lost), *lost[:5])
    grave = {int(number) for number in str(check.values["classes"]).split()}
    events = [event for event in view.kernel_events if event.kind is KernelEventKind.XID]
    hit = [event for event in events if event.number in grave]
    if hit:
        numbers = ", ".join(str(number) for number in sorted({event.number or 0 for event in hit}))
        return bad("grave", numbers, *(event.line for event in hit[:5]), device=hit[0].device)
    if events:
        numbers = ", ".join(str(n) for n in sorted({event.number or 0 for event in events}))
        return info("other", numbers, *(event.line for event in events[:3]))
    return ok(0)


def fabric(view: View, _check: CheckFacts) -> Outcome:
    """On NVSwitch machines the fabric is up and its manager is of the driver's version."""
    states = {gpu.index: (gpu.fabric_state, gpu.fabric_status) for gpu in view.nvidia.gpus}
    told = {index: both for index, both in states.items() if both[0] is not None}
    if not told:
        raise NotApplicableError("no_fabric")
    wrong = [
        f"GPU {index}: {state} / {status}"
        for index, (state, status) in told.items()
        if state != "Completed" or status not in (None, "Success")
    ]
    if wrong:
        return bad("down", len(wrong), *wrong)
    manager = view.snapshot.observations.get("tool:nv-fabricmanager --version")
    driver = view.nvidia.driver_version
    if manager is not None and manager.state is State.OK and driver is not None:
        stated = version(manager.text)
        if stated and stated != version(driver):
            return bad("version", manager.text.strip()[:80], expected=driver)
    return ok("Completed / Success")


def cuinit(view: View, check: CheckFacts) -> Outcome:
    """CUDA starts: cuInit in a process of its own."""
    found = view.engine("cuinit")
    if found.get("library") is None:
        return bad("library", str(found.get("reason", "")))
    code = int(found.get("code", -1))
    if code == 0:
        return ok(f"{found.get('devices')}")
    case = f"code_{code}" if f"code_{code}" in check.case_fixes else "code"
    return bad(case, code)


def persistence(view: View, _check: CheckFacts) -> Outcome:
    """Persistence mode is on, so that a card is not set up anew for every process."""
    off = [f"GPU {gpu.index}" for gpu in view.nvidia.gpus if gpu.persistence is False]
    if not view.nvidia.gpus:
        raise NotObservedError("no_card_listed", _SMI)
    if all(gpu.persistence is None for gpu in view.nvidia.gpus):
        raise NotObservedError("not_stated", _SMI)
    return bad("off", len(off), *off) if off else ok("Enabled")


def throttle(view: View, _check: CheckFacts) -> Outcome:
    """No card is slowed down by heat or power while it is idle, and none has its power cut."""
    slow = [
        f"GPU {gpu.index}"
        for gpu in view.nvidia.gpus
        if gpu.hardware_slowdown or gpu.thermal_slowdown or gpu.power_brake
    ]
    if slow:
        return bad("slow", len(slow), *slow)
    capped = [
        f"GPU {gpu.index}: {gpu.power_limit_w:g} / {gpu.power_limit_default_w:g} W"
        for gpu in view.nvidia.gpus
        if gpu.power_limit_w is not None
        and gpu.power_limit_default_w is not None
        and gpu.power_limit_w < gpu.power_limit_default_w
    ]
    if capped:
        return bad("capped", len(capped), *capped)
    if all(gpu.hardware_slowdown is None for gpu in view.nvidia.gpus):
        raise NotObservedError("not_stated", _SMI)
    return well("none")


def toolkit(view: View, check: CheckFacts) -> Outcome:
    """Docker can hand cards to containers."""
    key = next((each for each in view.keys("tool") if each.startswith("docker info")), None)
    if key is None:
        raise NotObservedError("not_collected", "tool:docker info")
    docker = view.observation(f"tool:{key}")
    if docker.state is State.ABSENT:
        raise NotApplicableError("no_docker")
    info_ = parse_docker_info(view.text(f"tool:{key}"))
    versions = view.snapshot.observations.get("tool:nvidia-ctk --version")
    stated = versions.text if versions is not None and versions.state is State.OK else ""
    floor = str(check.values["toolkit"])
    if version(stated) and version(stated) < version(floor):
        return bad("old", stated.splitlines()[0], expected=floor)
    if "nvidia" not in info_.runtimes and not (info_.cdi_dirs and version(stated)):
        return bad("absent", " ".join(info_.runtimes))
    return ok(" ".join(info_.runtimes))


CHECKS: Final = {
    "nv.module": module,
    "nv.smi": smi,
    "nv.driver_min": driver_min,
    "nv.compute_cap": compute_cap,
    "nv.vram_free": vram_free,
    "nv.mig": mig,
    "nv.ecc": ecc,
    "nv.xid": xid,
    "nv.fabric": fabric,
    "nv.cuinit": cuinit,
    "nv.persistence": persistence,
    "nv.throttle": throttle,
    "nv.toolkit": toolkit,
}
