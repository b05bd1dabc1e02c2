"""View: a snapshot with its texts parsed on demand, and what it is judged against.

Every property either gives what was observed or raises `NotObservedError`; a default never stands
in for an observation that was not made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import CheckFacts, GpuFacts, ModelFacts, RecipeFacts
from heavylift.preflight.checks.outcome import NotApplicableError, NotObservedError
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Plan
from heavylift.records.snapshot import Observation, Snapshot, State
from heavylift.telemetry import amd_smi, infiniband, kfd, nvidia_smi, pci, proc, rocm_smi, rocminfo
from heavylift.telemetry.kernel_log import KernelEvent, KernelEventKind, parse_kernel_log
from heavylift.telemetry.values import as_mapping, decode_json, known

T = TypeVar("T")

AMD: Final = "amd"
NVIDIA: Final = "nvidia"
PROBE_MARK: Final = "HEAVYLIFT_PROBE "

_VENDOR_BY_PCI: Final = {pci.AMD: AMD, pci.NVIDIA: NVIDIA}
_REFUSALS: Final = ("not permitted", "ermission denied")
_WHY_NOT_RUN: Final = ("time_limit", "no_engine_python")
_ROCM_SMI: Final = "tool:rocm-smi "
_KERNEL_LINE: Final = re.compile(
    r"(?:<\d+>|\w+\s*:\w+\s*:\s*)?"
    r"(?:\[\s*(?:\d+\.\d+|[A-Z][a-z]{2} )|\d{4}-\d\d-\d\d[T ]|[A-Z][a-z]{2} [ \d]\d \d\d:|-- )"
)
_KERNEL_LOGS: Final = (
    "tool:dmesg --time-format=iso",
    "tool:journalctl -k -b -o short-iso --no-pager",
)


def _first_that_reads(*parsers: Callable[[str], T]) -> Callable[[str], T]:
    """A parser that takes a text in any of several forms; the first one's error where none fits."""

    def parse(text: str) -> T:
        refusals: list[HeavyliftError] = []
        for parser in parsers:
            try:
                return parser(text)
            except HeavyliftError as refusal:
                refusals.append(refusal)
        raise refusals[0]

    return parse


# Releases that do not know an option print another form than was asked for.
_NVIDIA_QUERY: Final = _first_that_reads(
    nvidia_smi.parse_query_xml, nvidia_smi.parse_query, nvidia_smi.parse_table
)
_AMD_SMI: Final = _first_that_reads(amd_smi.parse_json, amd_smi.parse_text)
_ROCM_SMI_FORMS: Final = _first_that_reads(
    rocm_smi.parse_json, rocm_smi.parse_csv, rocm_smi.parse_text
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What the host is judged against; every part may be missing.

    `gpu` and `model` are the facts of the plan's (or the named) card and model, `recipe` the
    published one that the plan rests on, `heads` and the like are read from the model.
    """

    plan: Plan | None = None
    spec: LaunchSpec | None = None
    model: ModelFacts | None = None
    gpu: GpuFacts | None = None
    recipe: RecipeFacts | None = None
    cards: Mapping[str, GpuFacts] = field(default_factory=dict)
    """Cards of the catalogue, by every name they answer to, in lower case."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """A GPU as the best source shows it. Bytes; `None` = no source told."""

    vendor: str
    name: str | None
    bus_id: str | None
    total_bytes: int | None
    used_bytes: int | None
    bar_bytes: int | None
    gfx: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process that matters. `devices` are the GPU devices it holds open."""

    pid: int
    title: str
    state: str
    devices: tuple[str, ...]
    handles_denied: bool


class View:
    """One host's snapshot with its target and the facts of the check that looks at it."""

    def __init__(self, snapshot: Snapshot, target: Target) -> None:
        self.snapshot = snapshot
        self.target = target

    # --- observations ----------------------------------------------------------------------------

    def observation(self, key: str) -> Observation:
        """The observation of a probe. Raises when the snapshot has none."""
        found = self.snapshot.observations.get(key)
        if found is None:
            raise NotObservedError("not_collected", key)
        return found

    def text(self, key: str) -> str:
        """The text of a probe that succeeded. Raises with the reason when it did not."""
        found = self.observation(key)
        if found.state is not State.OK:
            raise NotObservedError(_reason(found), key)
        return found.text

    def file(self, path: str) -> str:
        """What a file holds, stripped."""
        return self.text(f"read:{path}").strip()

    def exists(self, path: str) -> bool:
        """Whether a path is there. Raises when that could not be seen."""
        found = self.observation(f"stat:{path}")
        if found.state in (State.OK, State.ABSENT):
            return found.state is State.OK
        raise NotObservedError(_reason(found), f"stat:{path}")

    def stat(self, path: str) -> Mapping[str, Any]:
        """Owner, mode and size of a path."""
        return as_mapping(self._json(f"stat:{path}"))

    def paths(self, pattern: str) -> list[str]:
        """The paths of a pattern that was looked for."""
        return self.text(f"glob:{pattern}").splitlines()

    def files(self, prefix: str) -> dict[str, str]:
        """What was read of all files under a folder, by path."""
        start = f"read:{prefix}"
        return {
            key.removeprefix("read:"): each.text
            for key, each in self.snapshot.observations.items()
            if key.startswith(start) and each.state is State.OK
        }

    def keys(self, kind: str) -> list[str]:
        """The arguments of all observations of a kind."""
        return [
            key.partition(":")[2]
            for key in self.snapshot.observations
            if key.startswith(f"{kind}:") and key != f"{kind}:"
        ]

    def room(self, path: str) -> tuple[int, int]:
        """Free and total bytes of the file system at a place."""
        values = as_mapping(self._json(f"space:{path}"))
        return int(values["free"]), int(values["total"])

    def _json(self, key: str) -> Any:
        try:
            return decode_json(self.text(key), key)
        except HeavyliftError as error:
            raise NotObservedError("unreadable", key) from error

    def engine(self, step: str) -> Mapping[str, Any]:
        """What a step of the engine probe found. Raises when it did not run or lacks a package."""
        key = f"engine:{step}"
        text = self.text(key)
        line = next((row for row in text.splitlines() if row.startswith(PROBE_MARK)), None)
        if line is None:
            raise NotObservedError("unreadable", key)
        found = as_mapping(decode_json(line.removeprefix(PROBE_MARK), key))
        if "missing" in found:
            raise NotObservedError("package_missing", str(found["missing"]))
        return found

    # --- the host --------------------------------------------------------------------------------

    @cached_property
    def wsl(self) -> bool:
        """True under WSL: Microsoft's kernel, or its GPU device."""
        release = self.snapshot.observations.get("read:/proc/sys/kernel/osrelease")
        if release is not None and "microsoft" in release.text.lower():
            return True
        return self.exists("/dev/dxg")

    @cached_property
    def container(self) -> bool:
        """True inside a container."""
        signs = [self.exists("/.dockerenv"), self.exists("/run/.containerenv")]
        words = ("docker", "kubepods", "containerd", "lxc", "libpod")
        cgroup = self.snapshot.observations.get("read:/proc/1/cgroup")
        return any(signs) or (cgroup is not None and any(word in cgroup.text for word in words))

    @cached_property
    def meminfo(self) -> dict[str, int]:
        """/proc/meminfo in bytes."""
        return proc.parse_meminfo(self.file("/proc/meminfo"))

    @cached_property
    def mounts(self) -> tuple[proc.Mount, ...]:
        """Mounted file systems."""
        return proc.parse_mountinfo(self.file("/proc/self/mountinfo"))

    @cached_property
    def status(self) -> proc.ProcessStatus:
        """Groups and capabilities of the user who took the snapshot."""
        return proc.parse_status(self.file("/proc/self/status"))

    @cached_property
    def limits(self) -> dict[str, tuple[int, int]]:
        """Resource limits of the launching shell."""
        return proc.parse_limits(self.file("/proc/self/limits"))

    @cached_property
    def kernel_options(self) -> dict[str, str]:
        """Kernel options that bear on cards."""
        return proc.parse_cmdline(self.file("/proc/cmdline"))

    @cached_property
    def environment(self) -> dict[str, str]:
        """Variables an engine would start with: the shell's, then the launch's."""
        shell = {str(k): str(v) for k, v in as_mapping(self._json("environ:")).items()}
        return shell | self.launch_environment

    @property
    def launch_environment(self) -> dict[str, str]:
        """Variables of the launch, over all ranks."""
        spec = self.target.spec
        return {} if spec is None else {k: v for rank in spec.ranks for k, v in rank.env.items()}

    @cached_property
    def kernel_events(self) -> tuple[KernelEvent, ...]:
        """What the kernel log says. Raises when no log could be read."""
        reason: NotObservedError | None = None
        for key in _KERNEL_LOGS:
            try:
                found = self.text(key)
            except NotObservedError as error:
                reason = reason or error
                continue
            # A journal that was never written looks like a quiet one.
            if not found.strip() and "No journal files" in self.observation(key).detail:
                continue
            if found.strip() and not any(map(_KERNEL_LINE.match, found.splitlines())):
                # What bears no time is no kernel log, and its silence is no quiet one.
                reason = reason or NotObservedError("unreadable", key)
                continue
            return parse_kernel_log(found)
        raise reason or NotObservedError("denied", _KERNEL_LOGS[-1])

    def kernel_lines(self, *kinds: KernelEventKind) -> tuple[str, ...]:
        """The lines of events of these kinds."""
        return tuple(event.line for event in self.kernel_events if event.kind in kinds)

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """Processes that matter: engines, compilers, holders of a card, hung ones."""
        self.text("processes:")
        found = []
        for pid in self.keys("process"):
            observation = self.observation(f"process:{pid}")
            values = as_mapping(self._json(f"process:{pid}")) if observation.text else {}
            found.append(
                Process(
                    pid=int(pid),
                    title=str(values.get("title", "")),
                    # One that does not let itself be read waits for something that does not come.
                    state=str(values.get("state", "D")),
                    devices=tuple(str(each) for each in values.get("devices", ())),
                    handles_denied=values.get("handles") == "denied",
                )
            )
        return tuple(found)

    # --- cards -----------------------------------------------------------------------------------

    @cached_property
    def pci_devices(self) -> tuple[pci.PciDevice, ...]:
        """PCI devices: sysfs, and what lspci adds where it was allowed to look."""
        files = self.files("/sys/bus/pci/devices/")
        links = {
            f"{key.removeprefix('link:').removesuffix('/driver')}/driver": each.text
            for key, each in self.snapshot.observations.items()
            if key.startswith("link:/sys/bus/pci/")
            and key.endswith("/driver")
            and each.state is State.OK
        }
        devices = pci.parse_sysfs(files | links)
        if devices:
            return devices
        return pci.parse_lspci_nn(self.text("tool:lspci -nn"))

    @cached_property
    def lspci(self) -> tuple[pci.PciDevice, ...]:
        """`lspci -vvv`, which alone shows ACS and atomics."""
        return self.parsed(pci.parse_lspci_vvv, "tool:lspci -vvv")

    def pci_gpus(self, vendor: str) -> tuple[pci.PciDevice, ...]:
        """Cards of a vendor on the PCI bus."""
        return tuple(
            device
            for device in self.pci_devices
            if device.is_gpu and _VENDOR_BY_PCI.get(device.vendor_id or 0) == vendor
        )

    @cached_property
    def vendors(self) -> frozenset[str]:
        """Vendors of the cards that are here by any sign, and of the plan's card."""
        found = {vendor for vendor in (AMD, NVIDIA) if any(True for _ in self._signs_of(vendor))}
        if self.target.gpu is not None:
            found.add(self.target.gpu.vendor)
        if not found and not self._bus_seen:
            raise NotObservedError("no_pci", "glob:/sys/bus/pci/devices/*/vendor")
        return frozenset(found)

    @property
    def _bus_seen(self) -> bool:
        try:
            return any(device.vendor_id is not None for device in self.pci_devices)
        except (NotObservedError, HeavyliftError):
            return False

    def _signs_of(self, vendor: str) -> Iterable[str]:
        """What shows that a vendor's card is here."""
        if self._bus_seen:
            yield from (device.address for device in self.pci_gpus(vendor))
        tools = {AMD: ("tool:rocminfo", _ROCM_SMI), NVIDIA: ("tool:nvidia-smi",)}[vendor]
        for key, each in self.snapshot.observations.items():
            # ROCm is often installed where no card is; its list of agents must show one.
            if key.startswith(tools) and each.state is State.OK and self._lists_cards(vendor):
                yield key
        devices = {AMD: "/dev/kfd", NVIDIA: "/dev/nvidiactl"}[vendor]
        present = self.snapshot.observations.get(f"stat:{devices}")
        if present is not None and present.state is State.OK:
            yield devices

    def _lists_cards(self, vendor: str) -> bool:
        try:
            if vendor == NVIDIA:
                return bool(self.nvidia.gpus)
            return bool(self.rocminfo.gpus)
        except NotObservedError:
            return False

    @cached_property
    def nvidia(self) -> nvidia_smi.NvidiaReport:
        """What nvidia-smi shows: the XML, completed from the CSV where that was read too."""
        key = "tool:nvidia-smi -q -x"
        csv_key = next(
            (each for each in self._tool_keys("nvidia-smi --query-gpu")), "tool:nvidia-smi"
        )
        try:
            report = self.parsed(_NVIDIA_QUERY, key)
        except NotObservedError:
            report = self.parsed(nvidia_smi.parse_query_csv, csv_key)
        return report

    @cached_property
    def nvidia_compute_caps(self) -> tuple[str, ...]:
        """Compute capabilities, which only the CSV form prints."""
        keys = list(self._tool_keys("nvidia-smi --query-gpu"))
        if not keys:
            raise NotObservedError("not_collected", "tool:nvidia-smi --query-gpu")
        report = self.parsed(nvidia_smi.parse_query_csv, keys[0])
        caps = tuple(gpu.compute_cap for gpu in report.gpus if gpu.compute_cap)
        if not caps:
            raise NotObservedError("not_stated", keys[0])
        return caps

    @cached_property
    def rocminfo(self) -> rocminfo.RocmInfo:
        """What the ROCm runtime sees. A run that failed is read for the reason it gives."""
        found = self.observation("tool:rocminfo")
        if found.state is State.FAILED and found.text:
            return rocminfo.parse_rocminfo(found.text)
        return self.parsed(rocminfo.parse_rocminfo, "tool:rocminfo")

    @cached_property
    def kfd_nodes(self) -> tuple[kfd.KfdNode, ...]:
        """Nodes of the KFD topology. Raises when it is not there."""
        nodes = kfd.parse_topology(self.files("/sys/class/kfd/"))
        if not nodes:
            raise NotObservedError("absent", "/sys/class/kfd/kfd/topology")
        return nodes

    @cached_property
    def drm_cards(self) -> tuple[kfd.DrmCard, ...]:
        """AMD cards under /sys/class/drm."""
        cards = kfd.parse_drm(self.files("/sys/class/drm/"))
        return tuple(card for card in cards if card.vendor_id == pci.AMD)

    @cached_property
    def amd_tool_gpus(self) -> tuple[amd_smi.AmdGpu, ...]:
        """What amd-smi shows, else what rocm-smi shows."""
        reports = []
        for command in ("static", "metric", "bad-pages"):
            try:
                reports.append(self.parsed(_AMD_SMI, f"tool:amd-smi {command} --json"))
            except NotObservedError as error:
                reason = error
        if reports:
            return amd_smi.merge(*reports)
        key = next(iter(self._tool_keys("rocm-smi")), None)
        if key is None:
            raise reason
        return self.parsed(_ROCM_SMI_FORMS, key)

    @cached_property
    def cards(self) -> tuple[Card, ...]:
        """All cards with their memory, from the best source there is. Raises when none is told."""
        found = [*self._amd_cards(), *self._nvidia_cards()]
        if not found:
            raise NotObservedError("no_card_listed", "")
        return tuple(found)

    def _amd_cards(self) -> Iterable[Card]:
        if self.drm_cards:
            for card in self.drm_cards:
                yield Card(
                    vendor=AMD,
                    name=None,
                    bus_id=card.card,
                    total_bytes=card.vram_total_bytes,
                    used_bytes=card.vram_used_bytes,
                    bar_bytes=card.visible_vram_bytes or card.largest_bar_bytes,
                )
            return
        try:
            tools = self.amd_tool_gpus
        except NotObservedError:
            return
        for gpu in tools:
            yield Card(
                vendor=AMD,
                name=gpu.name,
                bus_id=gpu.bus_id,
                total_bytes=gpu.memory_total_bytes,
                used_bytes=gpu.memory_used_bytes,
                bar_bytes=gpu.visible_memory_bytes,
                gfx=gpu.gfx,
            )

    def _nvidia_cards(self) -> Iterable[Card]:
        try:
            report = self.nvidia
        except NotObservedError:
            return
        for gpu in report.gpus:
            yield Card(
                vendor=NVIDIA,
                name=gpu.name,
                bus_id=gpu.bus_id,
                total_bytes=gpu.memory_total_bytes,
                used_bytes=gpu.memory_used_bytes,
                bar_bytes=gpu.bar1_total_bytes,
            )

    def of_vendor(self, vendor: str) -> tuple[Card, ...]:
        """The cards of a vendor. Raises when none of them is listed by any source."""
        found = tuple(card for card in self.cards if card.vendor == vendor)
        if not found:
            raise NotObservedError("no_card_listed", "")
        return found

    @cached_property
    def infiniband(self) -> tuple[infiniband.IbDevice, ...]:
        """RDMA adapters. Raises not-applicable when there are none."""
        devices = infiniband.parse_sysfs(self.files("/sys/class/infiniband/"))
        if devices:
            return devices
        if self.paths("/sys/class/infiniband/*/ports/*/state"):
            raise NotObservedError("denied", "/sys/class/infiniband")
        raise NotApplicableError("no_rdma")

    def parsed(self, parse: Callable[[str], T], key: str) -> T:
        """A probe's text through a parser; text it cannot read is not an observation."""
        try:
            return parse(self.text(key))
        except HeavyliftError as error:
            raise NotObservedError("unreadable", key) from error

    def _tool_keys(self, start: str) -> Iterable[str]:
        return (key for key in self.snapshot.observations if key.startswith(f"tool:{start}"))

    # --- the target ------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan. Raises not-applicable without one."""
        if self.target.plan is None:
            raise NotApplicableError("no_plan")
        return self.target.plan

    @property
    def model(self) -> ModelFacts:
        """The facts of the model. Raises not-applicable without one."""
        if self.target.model is None:
            raise NotApplicableError("no_model")
        return self.target.model

    @property
    def planned_gpus(self) -> int | None:
        """Cards the plan wants of this host; None without a plan."""
        plan = self.target.plan
        return None if plan is None else plan.rack.gpus_per_node

    @property
    def tensor_size(self) -> int:
        """Tensor parallel ranks; 1 without a plan."""
        plan = self.target.plan
        return 1 if plan is None else plan.layout.tensor_parallel_size

    @property
    def planned_nodes(self) -> int:
        """Hosts of the plan; 1 without one."""
        plan = self.target.plan
        return 1 if plan is None else plan.rack.nodes

    @cached_property
    def gpu_count(self) -> int:
        """Cards here; raises when that cannot be said."""
        return len(self.cards)

    def facts_of(self, name: str | None) -> GpuFacts | None:
        """The catalogue's card of that name, or the plan's."""
        found = None if known(name) is None else self.target.cards.get(str(name).lower())
        return found or self.target.gpu

    @cached_property
    def checkpoint(self) -> Mapping[str, Any]:
        """What was read of the checkpoint. Raises not-applicable when none was looked at."""
        keys = self.keys("checkpoint")
        if not keys:
            raise NotApplicableError("no_checkpoint")
        return as_mapping(self._json(f"checkpoint:{keys[0]}"))

    @property
    def checkpoint_bytes(self) -> int | None:
        """Bytes of the weights: the plan's, else those on disk."""
        if self.target.plan is not None:
            return self.target.plan.checkpoint_bytes
        try:
            size = self.checkpoint.get("bytes")
        except (NotApplicableError, NotObservedError):
            return None
        return size if isinstance(size, int) else None


def _reason(found: Observation) -> str:
    """The code of why an observation holds nothing."""
    if found.state is State.NOT_RUN and found.detail in _WHY_NOT_RUN:
        return found.detail
    if found.state is State.FAILED and any(sign in found.detail for sign in _REFUSALS):
        return State.DENIED
    return str(found.state)


def number_of(check: CheckFacts, name: str) -> float:
    """A limit of a check, from its facts."""
    return float(check.values[name])
