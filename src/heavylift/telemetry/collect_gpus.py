"""Asking for the GPUs of a machine: the one place where that is done.

In this order: NVML where its package is installed, the makers' tools, the kernel's own files. The
first that tells of memory counts; one that fails or hangs is passed over. Another machine is asked
through the command that reaches it (`ssh HOST`), by its tools alone.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.records.watch import Sight
from heavylift.telemetry import nvml
from heavylift.telemetry.gpu_readings import (
    TOOLS,
    GpuReading,
    Seen,
    of_kernel,
    readings,
    with_memory,
    with_spill,
)
from heavylift.telemetry.kfd import DrmCard, parse_drm

Command = tuple[str, ...]

DRM: Final = Path("/sys/class/drm")
KERNEL: Final = "sysfs"
NVML: Final = "nvml"
ANSWER_S: Final = 15.0
"""A driver in trouble answers late or never; nobody may wait for it."""

_NODES: Final = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
_FILES: Final = (
    "vendor",
    "uevent",
    "gpu_busy_percent",
    "mem_info_vram_total",
    "mem_info_vram_used",
    "mem_info_gtt_total",
    "mem_info_gtt_used",
    "hwmon/hwmon*/temp1_input",
    "hwmon/hwmon*/power1_average",
    "hwmon/hwmon*/power1_input",
)


def tools_here() -> tuple[Command, ...]:
    """The commands of the tools that this machine has, in the order they are asked."""
    found = ((shutil.which(name), arguments) for name, *arguments in TOOLS)
    return tuple((path, *arguments) for path, arguments in found if path is not None)


def tool_here() -> Command | None:
    """The command of the first tool that this machine has; None when it has none."""
    return next(iter(tools_here()), None)


def are_there() -> bool:
    """True when this machine has GPUs of a kind that computes."""
    return any(node.exists() for node in _NODES)


def are_idle(drm: Path = DRM) -> bool | None:
    """True when every GPU is at 0 %; None when that cannot be read. May take seconds."""
    # The kernel answers without a process and first, where it does.
    kernel = of_kernel(_kernel_cards(drm), 0.0)
    uses = [gpu.use_ratio for gpu in kernel or look(drm=drm).gpus]
    known = [use for use in uses if use is not None]
    return None if not known or len(known) < len(uses) else not any(known)


def look(at_s: float = 0.0, *, drm: Path = DRM, tool: Command | None = None) -> Seen:
    """The GPUs of this machine now. `tool`: a command to ask in place of all that is here."""
    cards = _kernel_cards(drm)
    spill = [card.gtt_used_bytes for card in cards if card.gtt_used_bytes is not None]
    failed = False
    for source, ask in _ways(at_s, cards, tool):
        try:
            gpus = ask()
        except HeavyliftError:
            failed = failed or source != NVML
            continue
        return Seen(
            sight=Sight.SEEN,
            source=source,
            gpus=with_spill(gpus, cards),
            gtt_used_bytes=sum(spill) if spill else None,
        )
    return Seen(sight=Sight.TOOL_FAILED if failed else Sight.NO_TOOL)


def look_through(reach: Command, at_s: float = 0.0) -> Seen:
    """The GPUs of the machine that `reach` (words before a command) leads to."""
    for command in TOOLS:
        with contextlib.suppress(HeavyliftError):
            # ssh hands the words to a shell there: they are constants without special signs.
            gpus = readings(said((*reach, *command)), at_s)
            return Seen(sight=Sight.SEEN, source=command[0], gpus=gpus)
    return Seen(sight=Sight.TOOL_FAILED)


def _ways(
    at_s: float, cards: tuple[DrmCard, ...], tool: Command | None
) -> Iterator[tuple[str, Callable[[], tuple[GpuReading, ...]]]]:
    if tool is not None:
        yield Path(tool[0]).name, lambda: readings(said(tool), at_s)
        return
    yield NVML, lambda: _with_memory(nvml.read(at_s))
    for command in tools_here():
        yield Path(command[0]).name, lambda words=command: readings(said(words), at_s)  # type: ignore[misc]
    if with_memory(cards):
        yield KERNEL, lambda: of_kernel(cards, at_s)


def _with_memory(gpus: tuple[GpuReading, ...]) -> tuple[GpuReading, ...]:
    if any(gpu.memory_used_bytes is not None for gpu in gpus):
        return gpus
    raise HeavyliftError("PRE101", {"what": "NVML", "reason": "no GPU"})


def said(command: Command) -> str:
    """What a tool prints. Raises PRE101 when it cannot be run, fails or takes too long."""
    try:
        done = subprocess.run(  # noqa: S603 - an argument list of ours or of the caller's choice
            command,
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=ANSWER_S,
        )
    except (OSError, subprocess.SubprocessError) as problem:
        raise HeavyliftError(
            "PRE101", {"what": command[0], "reason": type(problem).__name__}
        ) from problem
    return done.stdout.decode("utf-8", "replace")


def _kernel_cards(drm: Path) -> tuple[DrmCard, ...]:
    files: dict[str, str] = {}
    for name in _FILES:
        for path in drm.glob(f"card[0-9]*/device/{name}"):
            with contextlib.suppress(OSError):
                files[_placed(path)] = path.read_text("utf-8", "replace").strip()
    return parse_drm(_only_cards(files))


def _placed(path: Path) -> str:
    parts = path.parts
    return "/sys/class/drm/" + "/".join(parts[parts.index("device") - 1 :])


def _only_cards(files: Mapping[str, str]) -> dict[str, str]:
    """Without the connectors (`card0-DP-1`), whose `device` is the card again."""
    return {path: content for path, content in files.items() if "-" not in path.split("/")[4]}
