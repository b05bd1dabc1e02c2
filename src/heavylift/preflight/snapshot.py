"""Takes a snapshot of this host: sysfs and /proc first, then tools, each within a time limit."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from heavylift import __version__
from heavylift.errors import HeavyliftError
from heavylift.preflight.places import (
    DRM_FILES,
    ENGINE_STEPS,
    FILES,
    KERNEL_WORDS,
    NAMES,
    PCI_FILES,
    PRESENT,
    TOOLS,
    TREES,
)
from heavylift.preflight.reading import Item, observe, run_tool
from heavylift.records.snapshot import SCHEMA, Observation, Snapshot, State
from heavylift.telemetry.kernel_log import INTEREST
from heavylift.telemetry.pci import parse_sysfs
from heavylift.telemetry.values import as_mapping

ENGINE_PROBE: Final = Path(__file__).with_name("engine_probe.py")
WEIGHTS: Final = (".gguf", ".safetensors")
"""Suffixes of files of weights."""

FILE_BYTES: Final = 256 * 2**20
"""The largest snapshot file that is read."""

_TOOL_THREADS: Final = 4
_KERNEL_LINES: Final = 5000
_NETWORK_VENDORS: Final = (0x15B3, 0x1DD8, 0x14E4)
"""PCI vendors of RDMA adapters: their links are read like those of cards."""

OnStep = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What to look at besides the host itself.

    `checkpoint`: a folder or file of weights. `engine_python`: the interpreter of an engine's
    environment. `folders`: places whose room matters.
    """

    checkpoint: Path | None = None
    engine_python: Path | None = None
    folders: tuple[Path, ...] = ()


def take_snapshot(wanted: Wanted | None = None, *, on_step: OnStep | None = None) -> Snapshot:
    """A snapshot of this host. Never raises for what it finds; takes minutes at worst.

    `on_step` is called with `files`, `tools`, `checkpoint` and `engine` as each begins.
    """
    wanted = wanted or Wanted()
    step = on_step or (lambda _name: None)
    step("files")
    found = observe(_first_items(wanted))
    found |= observe(_second_items(found))
    _shorten(found)
    step("tools")
    found |= _tools()
    if wanted.checkpoint is not None:
        step("checkpoint")
        found |= _checkpoint(wanted.checkpoint)
    step("engine")
    found |= _engine(wanted.engine_python)
    return Snapshot(
        host=socket.gethostname(),
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        heavylift_version=__version__,
        observations=dict(sorted(found.items())),
    )


def _first_items(wanted: Wanted) -> list[Item]:
    items = [Item(operation="read", argument=path, limit_bytes=2**20) for path in FILES]
    items += [Item(operation="stat", argument=path) for path in PRESENT]
    items += [Item(operation="glob", argument=pattern, limit_bytes=10_000) for pattern in TREES]
    items += [Item(operation="glob", argument=pattern, limit_bytes=1000) for pattern in NAMES]
    items += [
        Item(operation="glob", argument=pattern, limit_bytes=1000) for pattern in _lock_patterns()
    ]
    items += [
        Item(operation="open", argument="/dev/kfd", limit_s=5.0),
        Item(operation="environ"),
        Item(operation="link", argument="/proc/self/ns/ipc"),
        Item(operation="link", argument="/proc/1/ns/ipc"),
        Item(operation="link", argument="/proc/self/ns/net"),
        Item(operation="link", argument="/proc/1/ns/net"),
    ]
    items += [Item(operation="space", argument=str(path)) for path in _folders(wanted)]
    if wanted.checkpoint is not None:
        items.append(
            Item(
                operation="write",
                argument=str(_folder_of(wanted.checkpoint)),
                limit_bytes=2**20,
                limit_s=10.0,
            )
        )
    return items


def _folder_of(checkpoint: Path) -> Path:
    """Where a checkpoint lies, by its name alone: asking the disk could take for ever."""
    return checkpoint.parent if checkpoint.suffix in WEIGHTS else checkpoint


def _lock_patterns() -> list[str]:
    home = os.environ.get("HOME", "/root")
    folders = [f"{home}/.aiter/jit", os.environ.get("AITER_JIT_DIR", "")]
    patterns = [f"{folder}/build/lock_*" for folder in folders if folder]
    extensions = os.environ.get("TORCH_EXTENSIONS_DIR", f"{home}/.cache/torch_extensions")
    return [*patterns, f"{extensions}/*/*/lock", f"{extensions}/*/lock"]


def _folders(wanted: Wanted) -> list[Path]:
    """Places that fill up: weights, hub cache, temporary files, images, kernel caches, shm."""
    home = Path(os.environ.get("HOME", "/root"))
    cache = Path(os.environ.get("XDG_CACHE_HOME", home / ".cache"))
    folders = [
        Path(os.environ.get("HF_HOME", cache / "huggingface")),
        Path(os.environ.get("TMPDIR", "/tmp")),  # noqa: S108 - asked for room, not written to
        Path("/var/lib/docker"),
        cache,
        Path("/dev/shm"),  # noqa: S108 - asked for room, not written to
        *wanted.folders,
    ]
    if wanted.checkpoint is not None:
        folders.append(_folder_of(wanted.checkpoint))
    return folders


def _second_items(found: dict[str, Observation]) -> list[Item]:
    """What the first look showed to be there: files of trees, cards, processes."""
    items: list[Item] = []
    for pattern in TREES:
        items += [Item(operation="read", argument=path) for path in _listed(found, pattern)]
    for pattern in ("/dev/dri/renderD*", "/dev/nvidia[0-9]*"):
        items += [Item(operation="stat", argument=path) for path in _listed(found, pattern)]
    for path in _listed(found, "/sys/class/drm/card*/device/vendor"):
        folder = path.removesuffix("/vendor")
        items += [Item(operation="read", argument=f"{folder}/{name}") for name in DRM_FILES]
    # Vendors and classes are small; they are read here to know which devices to look at closely.
    pci = observe(
        Item(operation="read", argument=path)
        for pattern in TREES[:3]
        for path in _listed(found, pattern)
    )
    files = {key.removeprefix("read:"): each.text for key, each in pci.items()}
    for device in parse_sysfs(files):
        if device.is_gpu or device.vendor_id in _NETWORK_VENDORS:
            folder = f"/sys/bus/pci/devices/{device.address}"
            items += [Item(operation="read", argument=f"{folder}/{name}") for name in PCI_FILES]
            items.append(Item(operation="link", argument=f"{folder}/driver"))
            # Where the link points is the way to the device, bridge by bridge.
            items.append(Item(operation="link", argument=folder))
    items += _own_cgroup(found)
    items += [
        Item(operation="process", argument=path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdecimal()
    ]
    return items


def _own_cgroup(found: dict[str, Observation]) -> list[Item]:
    for line in found["read:/proc/self/cgroup"].text.splitlines():
        if line.startswith("0::/") and len(line) > len("0::/"):
            path = f"/sys/fs/cgroup{line.removeprefix('0::')}/memory.max"
            return [Item(operation="read", argument=path)]
    return []


def _listed(found: dict[str, Observation], pattern: str) -> list[str]:
    return found[f"glob:{pattern}"].text.splitlines()


def _shorten(found: dict[str, Observation]) -> None:
    """Drop what nobody asks for: processes that do not matter, kernel options that are private."""
    seen = denied = 0
    for key in [key for key in found if key.startswith("process:")]:
        observation = found[key]
        seen += observation.state is State.OK
        denied += '"denied"' in observation.text
        if observation.state is not State.TIME_LIMIT and '"title"' not in observation.text:
            del found[key]
    found["processes:"] = Observation(
        state=State.OK if seen else State.DENIED,
        text=msgspec.json.encode({"seen": seen, "handles_denied": denied}).decode(),
    )
    kernel = found["read:/proc/cmdline"]
    words = [word for word in kernel.text.split() if KERNEL_WORDS.match(word)]
    found["read:/proc/cmdline"] = replace(kernel, text=" ".join(words))


def _tools() -> dict[str, Observation]:
    with ThreadPoolExecutor(max_workers=_TOOL_THREADS) as pool:
        results = list(pool.map(_family, TOOLS))
    return {key: observation for result in results for key, observation in result.items()}


def _family(commands: Sequence[Sequence[str]]) -> dict[str, Observation]:
    """Programs in turn; after one has hung, the same program is not started again."""
    found: dict[str, Observation] = {}
    hung: set[str] = set()
    absent: set[str] = set()
    for argv in commands:
        program = argv[0]
        key = f"tool:{' '.join(argv)}"
        if program in hung:
            found[key] = Observation(state=State.NOT_RUN, detail="time_limit")
            continue
        if program in absent:
            found[key] = Observation(state=State.ABSENT)
            continue
        observation = run_tool(argv)
        if observation.state is State.TIME_LIMIT:
            hung.add(program)
        if observation.state is State.ABSENT:
            absent.add(program)
        found[key] = (
            _of_interest(observation) if program in ("dmesg", "journalctl") else observation
        )
    return found


def _of_interest(log: Observation) -> Observation:
    """The last lines of a kernel log that bear on cards and memory, and those that go on them."""
    kept: list[str] = []
    before = False
    for line in log.text.splitlines():
        wanted = INTEREST.search(line) is not None or (before and line.startswith("   "))
        if wanted:
            kept.append(line)
        before = wanted
    return Observation(
        state=log.state,
        text="\n".join(kept[-_KERNEL_LINES:]),
        detail=log.detail,
        exit_status=log.exit_status,
        truncated=log.truncated or len(kept) > _KERNEL_LINES,
    )


def _checkpoint(path: Path) -> dict[str, Observation]:
    argv = [sys.executable, "-m", "heavylift.preflight.checkpoint_child", str(path.absolute())]
    key = f"checkpoint:{path.absolute()}"
    environment = {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    found = {key: run_tool(argv, limit_s=120.0, environment=environment)}
    largest = _largest(found[key])
    if largest is not None:
        found |= observe(
            [Item(operation="speed", argument=largest, limit_bytes=2**28, limit_s=20.0)]
        )
    return found


def _largest(report: Observation) -> str | None:
    """The path of the largest file of weights, as the reader of the checkpoint found it."""
    try:
        largest = as_mapping(msgspec.json.decode(report.text)).get("largest")
    except msgspec.DecodeError:
        return None
    return largest if isinstance(largest, str) else None


def _engine(python: Path | None) -> dict[str, Observation]:
    """The engine probe's steps, each a process of its own. Without an engine only the driver's."""
    found = {}
    for step, limit_s in ENGINE_STEPS.items():
        key = f"engine:{step}"
        if python is not None:
            argv = [str(python), str(ENGINE_PROBE), step]
        elif step == "cuinit":
            argv = [sys.executable, "-I", str(ENGINE_PROBE), step]
        else:
            found[key] = Observation(state=State.NOT_RUN, detail="no_engine_python")
            continue
        found[key] = run_tool(argv, limit_s=limit_s)
    return found


# --- files ---------------------------------------------------------------------------------------


def write_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot, readable by its owner alone. Raises PRE103 when it cannot be written."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(snapshot), indent=1))
    except OSError as error:
        raise HeavyliftError("PRE103", {"path": str(path), "reason": _reason(error)}) from error


def read_snapshot(path: Path) -> Snapshot:
    """A snapshot from a file. Raises PRE102 when it is none, PRE104 for one of another schema."""
    try:
        if path.stat().st_size > FILE_BYTES:
            raise HeavyliftError("PRE102", {"path": str(path), "reason": f"> {FILE_BYTES} B"})
        snapshot = msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise HeavyliftError("PRE102", {"path": str(path), "reason": _reason(error)}) from error
    if snapshot.schema != SCHEMA:
        raise HeavyliftError(
            "PRE104", {"path": str(path), "schema": snapshot.schema, "known": SCHEMA}
        )
    return snapshot


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
