"""nvidia-smi: `-q`, `-q -x`, `--query-gpu`, the table, `-L`, `topo -m`, `nvlink`, apps, version.

The same facts are printed in several forms; one table of names reads three of them, so that a field
is defined once. A field that a version does not print is None.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree as ET

from heavylift.telemetry.values import (
    Entry,
    flag,
    known,
    number,
    pairs,
    size_bytes,
    tree,
    unreadable,
    whole,
)

_XML_DEPTH: Final = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaProcess:
    """A process with memory on a card."""

    pid: int
    name: str
    used_bytes: int | None
    kind: str | None = None
    bus_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MigDevice:
    """A slice of a card. Memory is shared by the compute instances of a GPU instance."""

    index: int | None
    gpu_instance: int | None
    compute_instance: int | None
    profile: str | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaGpu:
    """One card as nvidia-smi shows it. Memory in bytes, temperatures in °C, power in W."""

    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    architecture: str | None = None
    compute_cap: str | None = None
    vbios: str | None = None
    gsp_firmware: str | None = None
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_used_bytes: int | None = None
    bar1_total_bytes: int | None = None
    persistence: bool | None = None
    mig: bool | None = None
    ecc: bool | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    remapped_pending: bool | None = None
    remapped_failure: bool | None = None
    recovery_action: str | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    link_generation: int | None = None
    link_generation_max: int | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    use_percent: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    hardware_slowdown: bool | None = None
    thermal_slowdown: bool | None = None
    power_brake: bool | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    processes: tuple[NvidiaProcess, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaReport:
    """All cards of a host, with the driver and the newest CUDA it serves."""

    gpus: tuple[NvidiaGpu, ...]
    driver_version: str | None = None
    cuda_version: str | None = None


_Reader = Callable[[str | None], Any]


def _enabled(text: str | None) -> bool | None:
    return flag(text)


def _mig(text: str | None) -> bool | None:
    """N/A is an answer here: a card that cannot be cut is not cut."""
    return None if text is None else flag(text) is True


# field, how its text is read, then where it is: in `-q`, in `-q -x`, in `--query-gpu`. Several
# places are releases that named it otherwise; the first that has a value counts.
_FIELDS: Final[
    tuple[tuple[str, _Reader, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...]
] = (
    ("name", known, ("Product Name",), ("product_name",), ("name", "gpu_name")),
    ("uuid", known, ("GPU UUID",), ("uuid",), ("uuid", "gpu_uuid")),
    ("bus_id", known, ("PCI/Bus Id",), ("pci/pci_bus_id",), ("pci.bus_id", "gpu_bus_id")),
    ("architecture", known, ("Product Architecture",), ("product_architecture",), ()),
    ("compute_cap", known, (), (), ("compute_cap",)),
    ("vbios", known, ("VBIOS Version",), ("vbios_version",), ("vbios_version",)),
    ("gsp_firmware", known, ("GSP Firmware Version",), ("gsp_firmware_version",), ()),
    (
        "memory_total_bytes",
        size_bytes,
        ("FB Memory Usage/Total",),
        ("fb_memory_usage/total",),
        ("memory.total",),
    ),
    (
        "memory_reserved_bytes",
        size_bytes,
        ("FB Memory Usage/Reserved",),
        ("fb_memory_usage/reserved",),
        ("memory.reserved",),
    ),
    (
        "memory_used_bytes",
        size_bytes,
        ("FB Memory Usage/Used",),
        ("fb_memory_usage/used",),
        ("memory.used",),
    ),
    (
        "bar1_total_bytes",
        size_bytes,
        ("BAR1 Memory Usage/Total",),
        ("bar1_memory_usage/total",),
        (),
    ),
    ("persistence", _enabled, ("Persistence Mode",), ("persistence_mode",), ("persistence_mode",)),
    ("mig", _mig, ("MIG Mode/Current",), ("mig_mode/current_mig",), ("mig.mode.current",)),
    ("ecc", _enabled, ("ECC Mode/Current",), ("ecc_mode/current_ecc",), ("ecc.mode.current",)),
    (
        "ecc_uncorrected_volatile",
        whole,
        (),
        (),
        ("ecc.errors.uncorrected.volatile.total",),
    ),
    (
        "ecc_uncorrected_aggregate",
        whole,
        (),
        (),
        ("ecc.errors.uncorrected.aggregate.total",),
    ),
    (
        "remapped_pending",
        _enabled,
        ("Remapped Rows/Pending",),
        ("remapped_rows/remapped_row_pending",),
        ("remapped_rows.pending",),
    ),
    (
        "remapped_failure",
        _enabled,
        ("Remapped Rows/Remapping Failure Occurred",),
        ("remapped_rows/remapped_row_failure",),
        ("remapped_rows.failure",),
    ),
    ("fabric_state", known, ("Fabric/State",), ("fabric/state",), ("fabric.state",)),
    ("fabric_status", known, ("Fabric/Status",), ("fabric/status",), ("fabric.status",)),
    (
        "link_generation",
        whole,
        ("PCI/GPU Link Info/PCIe Generation/Current",),
        ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",),
        ("pcie.link.gen.current", "pcie.link.gen.gpucurrent"),
    ),
    (
        "link_generation_max",
        whole,
        ("PCI/GPU Link Info/PCIe Generation/Max",),
        ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",),
        ("pcie.link.gen.max",),
    ),
    (
        "link_width",
        whole,
        ("PCI/GPU Link Info/Link Width/Current",),
        ("pci/pci_gpu_link_info/link_widths/current_link_width",),
        ("pcie.link.width.current",),
    ),
    (
        "link_width_max",
        whole,
        ("PCI/GPU Link Info/Link Width/Max",),
        ("pci/pci_gpu_link_info/link_widths/max_link_width",),
        ("pcie.link.width.max",),
    ),
    (
        "temperature_c",
        number,
        ("Temperature/GPU Current Temp",),
        ("temperature/gpu_temp",),
        ("temperature.gpu",),
    ),
    (
        "power_limit_w",
        number,
        (
            "GPU Power Readings/Current Power Limit",
            "GPU Power Readings/Enforced Power Limit",
            "Power Readings/Power Limit",
        ),
        ("gpu_power_readings/current_power_limit", "power_readings/power_limit"),
        ("power.limit", "enforced.power.limit"),
    ),
    (
        "power_w",
        number,
        ("GPU Power Readings/Average Power Draw", "Power Readings/Power Draw"),
        ("gpu_power_readings/average_power_draw", "power_readings/power_draw"),
        ("power.draw", "power.draw.average"),
    ),
    (
        "use_percent",
        number,
        ("Utilization/Gpu", "Utilization/GPU"),
        ("utilization/gpu_util",),
        ("utilization.gpu",),
    ),
    (
        "power_limit_default_w",
        number,
        ("GPU Power Readings/Default Power Limit", "Power Readings/Default Power Limit"),
        ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
        ("power.default_limit",),
    ),
    (
        "hardware_slowdown",
        _enabled,
        ("Clocks Event Reasons/HW Slowdown", "Clocks Throttle Reasons/HW Slowdown"),
        (
            "clocks_event_reasons/clocks_event_reason_hw_slowdown",
            "clocks_throttle_reasons/clocks_throttle_reason_hw_slowdown",
        ),
        ("clocks_event_reasons.hw_slowdown", "clocks_throttle_reasons.hw_slowdown"),
    ),
    (
        "thermal_slowdown",
        _enabled,
        (
            "Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown",
            "Clocks Throttle Reasons/HW Slowdown/HW Thermal Slowdown",
        ),
        (
            "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown",
            "clocks_throttle_reasons/clocks_throttle_reason_hw_thermal_slowdown",
        ),
        ("clocks_event_reasons.hw_thermal_slowdown", "clocks_throttle_reasons.hw_thermal_slowdown"),
    ),
    (
        "power_brake",
        _enabled,
        (
            "Clocks Event Reasons/HW Slowdown/HW Power Brake Slowdown",
            "Clocks Throttle Reasons/HW Slowdown/HW Power Brake Slowdown",
        ),
        (
            "clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown",
            "clocks_throttle_reasons/clocks_throttle_reason_hw_power_brake_slowdown",
        ),
        (
            "clocks_event_reasons.hw_power_brake_slowdown",
            "clocks_throttle_reasons.hw_power_brake_slowdown",
        ),
    ),
)

_TEXT: Final = 2
_XML: Final = 3
_CSV: Final = 4


def _fields(get: Callable[[str], str | None], column: int) -> dict[str, Any]:
    """The fields of a card, with `get` looking up a name of this form."""
    values: dict[str, Any] = {}
    for row in _FIELDS:
        name, read, places = row[0], row[1], row[column]
        readings = (read(get(place)) for place in places)  # type: ignore[union-attr] # a row is heterogeneous
        values[name] = next((value for value in readings if value is not None), None)
    return values


def _recovery(text: str | None) -> str | None:
    """`None` is an answer of this field ("no action needed"), not an absent value."""
    if text is None or text.strip().lower() == "none":
        return None if text is None else "None"
    return known(text)


# --- -q ------------------------------------------------------------------------------------------


def parse_query(text: str) -> NvidiaReport:
    """`nvidia-smi -q`. Raises PRE101 when it lists no GPU section at all."""
    root = tree(text.splitlines(), " :")
    gpus = [entry for entry in root.children if re.match(r"GPU [0-9A-Fa-f]+:", entry.key)]
    if not gpus and root.get("Attached GPUs") is None:
        raise unreadable("nvidia-smi -q", _first_line(text))
    return NvidiaReport(
        gpus=tuple(_query_gpu(index, gpu) for index, gpu in enumerate(gpus)),
        driver_version=known(root.get("Driver Version")),
        cuda_version=known(root.get("CUDA Version")),
    )


def _query_gpu(index: int, gpu: Entry) -> NvidiaGpu:
    values = _fields(gpu.get, _TEXT)
    return NvidiaGpu(
        **{
            **values,
            "index": index,
            "bus_id": values["bus_id"] or gpu.key.removeprefix("GPU ").strip(),
            "recovery_action": _recovery(gpu.get("GPU Recovery Action")),
            "ecc_uncorrected_volatile": _uncorrected(gpu.at("ECC Errors/Volatile")),
            "ecc_uncorrected_aggregate": _uncorrected(gpu.at("ECC Errors/Aggregate")),
            "mig_devices": tuple(_query_mig(device) for device in gpu.all("MIG Device")),
            "processes": tuple(_query_processes(gpu.at("Processes"))),
        }
    )


def _uncorrected(errors: Entry | None) -> int | None:
    """The sum of all uncorrectable counts; None when no count is given."""
    if errors is None:
        return None
    counts = [
        whole(entry.value) for entry in errors.children if "uncorrectable" in entry.key.lower()
    ]
    given = [count for count in counts if count is not None]
    return sum(given) if given else None


def _query_mig(device: Entry) -> MigDevice:
    return MigDevice(
        index=whole(device.get("Index")),
        gpu_instance=whole(device.get("GPU Instance ID")),
        compute_instance=whole(device.get("Compute Instance ID")),
        memory_total_bytes=size_bytes(
            device.get("Shared FB Memory Usage/Total") or device.get("FB Memory Usage/Total")
        ),
    )


def _query_processes(section: Entry | None) -> Iterator[NvidiaProcess]:
    for entry in [] if section is None else section.all("Process ID"):
        pid = whole(entry.value)
        if pid is not None:
            yield NvidiaProcess(
                pid=pid,
                name=entry.get("Name") or "",
                used_bytes=size_bytes(entry.get("Used GPU Memory")),
                kind=known(entry.get("Type")),
            )


# --- -q -x ---------------------------------------------------------------------------------------


def parse_query_xml(text: str) -> NvidiaReport:
    """`nvidia-smi -q -x`. Raises PRE101 when it is not that document."""
    # Entities are the one part of XML that can cost more than it holds; this tool has none.
    if "<!ENTITY" in text:
        raise unreadable("nvidia-smi -q -x", "entities")
    try:
        root = ET.fromstring(text.strip())  # noqa: S314 - entities are refused above
    except (ET.ParseError, ValueError) as error:
        raise unreadable("nvidia-smi -q -x", str(error)) from error
    if root.tag != "nvidia_smi_log":
        raise unreadable("nvidia-smi -q -x", root.tag)
    return NvidiaReport(
        gpus=tuple(
            _xml_gpu(index, _entry(gpu, 0)) for index, gpu in enumerate(root.findall("gpu"))
        ),
        driver_version=known(root.findtext("driver_version")),
        cuda_version=known(root.findtext("cuda_version")),
    )


def _entry(element: ET.Element, depth: int) -> Entry:
    children = [] if depth > _XML_DEPTH else [_entry(child, depth + 1) for child in element]
    return Entry(element.tag, (element.text or "").strip(), children)


def _xml_gpu(index: int, gpu: Entry) -> NvidiaGpu:
    devices = gpu.at("mig_devices")
    processes = gpu.at("processes")
    return NvidiaGpu(
        **{
            **_fields(gpu.get, _XML),
            "index": index,
            "recovery_action": _recovery(gpu.get("gpu_recovery_action")),
            "ecc_uncorrected_volatile": _uncorrected(gpu.at("ecc_errors/volatile")),
            "ecc_uncorrected_aggregate": _uncorrected(gpu.at("ecc_errors/aggregate")),
            "mig_devices": tuple(
                MigDevice(
                    index=whole(device.get("index")),
                    gpu_instance=whole(device.get("gpu_instance_id")),
                    compute_instance=whole(device.get("compute_instance_id")),
                    memory_total_bytes=size_bytes(device.get("fb_memory_usage/total")),
                )
                for device in ([] if devices is None else devices.all("mig_device"))
            ),
            "processes": tuple(
                NvidiaProcess(
                    pid=pid,
                    name=entry.get("process_name") or "",
                    used_bytes=size_bytes(entry.get("used_memory")),
                    kind=known(entry.get("type")),
                )
                for entry in ([] if processes is None else processes.all("process_info"))
                if (pid := whole(entry.get("pid"))) is not None
            ),
        }
    )


# --- CSV -----------------------------------------------------------------------------------------


def parse_query_csv(text: str) -> NvidiaReport:
    """`nvidia-smi --query-gpu=… --format=csv`, any choice of fields. Raises PRE101."""
    rows = list(_rows(text, "nvidia-smi --query-gpu"))
    gpus = tuple(
        NvidiaGpu(
            **{
                **_fields(row.get, _CSV),
                "index": whole(row.get("index")),
                "recovery_action": _recovery(row.get("gpu_recovery_action")),
            }
        )
        for row in rows
    )
    driver = next((known(row.get("driver_version")) for row in rows), None)
    return NvidiaReport(gpus=gpus, driver_version=driver)


def parse_compute_apps(text: str) -> tuple[NvidiaProcess, ...]:
    """`nvidia-smi --query-compute-apps=… --format=csv`. Raises PRE101."""
    return tuple(
        NvidiaProcess(
            pid=pid,
            name=row.get("process_name") or row.get("name") or "",
            used_bytes=size_bytes(row.get("used_gpu_memory") or row.get("used_memory")),
            bus_id=known(row.get("gpu_bus_id")),
        )
        for row in _rows(text, "nvidia-smi --query-compute-apps")
        if (pid := whole(row.get("pid"))) is not None
    )


def _rows(text: str, what: str) -> Iterator[Mapping[str, str]]:
    """Rows by field name. The unit of a heading goes to values that lack it (`nounits`)."""
    lines = [line for line in text.replace("\0", "").splitlines() if line.strip()]
    try:
        table = list(csv.reader(lines, skipinitialspace=True))
    except csv.Error as error:
        raise unreadable(what, str(error)) from error
    if not table or len(table[0]) < 1 or not re.match(r"[a-z_]+", table[0][0], re.ASCII):
        raise unreadable(what, _first_line(text))
    headings = [re.match(r"([^\[]*)(?:\[(.*)\])?", heading.strip()) for heading in table[0]]
    names = [
        ("", "") if match is None else (match[1].strip(), match[2] or "") for match in headings
    ]
    for row in table[1:]:
        yield {
            name: f"{value} {unit}" if unit.endswith("B") and unit not in value else value
            for (name, unit), value in zip(names, row, strict=False)
        }


# --- the table -----------------------------------------------------------------------------------


_TABLE_HEAD: Final = re.compile(
    r"Driver Version:\s*(\S+)\s+(?:CUDA|CUDA UMD) Version:\s*(\S+)", re.ASCII
)
_TABLE_GPU: Final = re.compile(
    r"\|\s+(\d+)\s+(.+?)\s+(On|Off|N/A)\s+\|\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
    r"\s+\S+\s+\|\s+(\S+)\s+\|"
)
_TABLE_MEMORY: Final = re.compile(r"(\d+)MiB\s*/\s*(\d+)MiB")
_TABLE_POWER: Final = re.compile(r"(\d+)C\s+\S+\s+(\S+)\s*W?\s*/\s*(\d+)W")
_TABLE_USE: Final = re.compile(r"\|\s+(\d+)%\s+\S[^|]*\|\s*$")
_TABLE_MIG: Final = re.compile(r"\|\s+(Enabled|Disabled)\*?\s+\|\s*$")
_TABLE_PROCESS: Final = re.compile(
    r"\|\s+\d+\s+\S+\s+\S+\s+(\d+)\s+([CGM+]+)\s+(.*?)\s+(\d+MiB|N/A)\s+\|"
)


def parse_table(text: str) -> NvidiaReport:
    """`nvidia-smi` without options. Raises PRE101 when it has no version line."""
    head = _TABLE_HEAD.search(text)
    if head is None:
        raise unreadable("nvidia-smi", _first_line(text))
    gpus: list[dict[str, Any]] = []
    processes: list[NvidiaProcess] = []
    for line in text.splitlines():
        if match := _TABLE_GPU.match(line):
            gpus.append(
                {
                    "index": int(match[1]),
                    "name": match[2],
                    "persistence": flag(match[3]),
                    "bus_id": match[4],
                    "ecc_uncorrected_volatile": whole(match[5]),
                }
            )
        elif match := _TABLE_PROCESS.match(line):
            processes.append(
                NvidiaProcess(
                    pid=int(match[1][:20]),
                    name=match[3],
                    used_bytes=size_bytes(match[4]),
                    kind=match[2],
                )
            )
        elif gpus:
            gpus[-1].update(_table_detail(line))
    first = {"processes": tuple(processes)} if len(gpus) == 1 else {}
    return NvidiaReport(
        gpus=tuple(NvidiaGpu(**{**gpu, **first}) for gpu in gpus),
        driver_version=known(head[1]),
        cuda_version=known(head[2]),
    )


def _table_detail(line: str) -> dict[str, Any]:
    """What the second and third line of a card add."""
    found: dict[str, Any] = {}
    if memory := _TABLE_MEMORY.search(line):
        found["memory_used_bytes"] = size_bytes(f"{memory[1]} MiB")
        found["memory_total_bytes"] = size_bytes(f"{memory[2]} MiB")
    if power := _TABLE_POWER.search(line):
        found["temperature_c"] = number(power[1])
        found["power_w"] = number(power[2])
        found["power_limit_w"] = number(power[3])
    if use := _TABLE_USE.search(line):
        found["use_percent"] = number(use[1])
    if mig := _TABLE_MIG.search(line):
        found["mig"] = mig[1] == "Enabled"
    return found


# --- -L, --version, nvlink, topo -----------------------------------------------------------------

_LIST_GPU: Final = re.compile(r"GPU (\d{1,6}): (.+) \(UUID: (\S+)\)")
_LIST_MIG: Final = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d{1,6}): \(UUID: (\S+)\)")


def parse_list(text: str) -> tuple[NvidiaGpu, ...]:
    """`nvidia-smi -L`: names, UUIDs and MIG slices. Empty when it lists none."""
    gpus: list[NvidiaGpu] = []
    slices: list[list[MigDevice]] = []
    for line in text.splitlines():
        if match := _LIST_GPU.match(line):
            gpus.append(NvidiaGpu(index=int(match[1]), name=match[2], uuid=match[3]))
            slices.append([])
        elif (match := _LIST_MIG.match(line)) and gpus:
            slices[-1].append(
                MigDevice(
                    index=int(match[2]), gpu_instance=None, compute_instance=None, profile=match[1]
                )
            )
    return tuple(
        NvidiaGpu(
            index=gpu.index,
            name=gpu.name,
            uuid=gpu.uuid,
            mig=True if devices else None,
            mig_devices=tuple(devices),
        )
        for gpu, devices in zip(gpus, slices, strict=True)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaVersions:
    """`nvidia-smi --version`."""

    smi: str | None
    nvml: str | None
    driver: str | None
    cuda: str | None


def parse_version(text: str) -> NvidiaVersions:
    """`nvidia-smi --version`. Raises PRE101 when it names no version at all."""
    stated = {key.lower(): value for key, value in pairs(text, ":").items()}
    found = NvidiaVersions(
        smi=known(stated.get("nvidia-smi version")),
        nvml=known(stated.get("nvml version")),
        driver=known(stated.get("driver version") or stated.get("kmd version")),
        cuda=known(stated.get("cuda version") or stated.get("cuda umd version")),
    )
    if found.smi is None and found.driver is None:
        raise unreadable("nvidia-smi --version", _first_line(text))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class NvlinkState:
    """The NVLinks of one card: GB/s of each active one, how many are not, or why none are told."""

    index: int
    active_gb_per_s: tuple[float, ...]
    inactive: int
    remark: str | None = None


def parse_nvlink(text: str) -> tuple[NvlinkState, ...]:
    """`nvidia-smi nvlink -s`. Empty for cards without NVLink, which print nothing."""
    found: list[tuple[int, list[float], list[int], list[str]]] = []
    for line in text.splitlines():
        if match := re.match(r"GPU (\d{1,6}):", line):
            found.append((int(match[1]), [], [], []))
        elif not found or not line.strip():
            continue
        elif match := re.match(r"\s*Link (\d+):\s*(.*)", line):
            speed = number(match[2])
            if speed is None:
                found[-1][2].append(int(match[1][:9]))
            else:
                found[-1][1].append(speed)
        else:
            found[-1][3].append(line.strip())
    return tuple(
        NvlinkState(
            index=index,
            active_gb_per_s=tuple(active),
            inactive=len(inactive),
            remark=remarks[0] if remarks else None,
        )
        for index, active, inactive, remarks in found
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaTopology:
    """The matrix of `topo -m`: `links[(0, 1)]` is `NV18`, `PIX`, `NODE`, … between two cards.

    `cpu_affinity` and `numa_affinity` are by card, where they are printed.
    """

    gpus: tuple[int, ...]
    links: Mapping[tuple[int, int], str]
    cpu_affinity: Mapping[int, str]
    numa_affinity: Mapping[int, str]


_ESCAPES: Final = re.compile(r"\x1b?\[[0-9;]{0,8}m")
_LINK: Final = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS")


def parse_topology(text: str) -> NvidiaTopology:
    """`nvidia-smi topo -m`. Raises PRE101 when there is no matrix."""
    lines = [_ESCAPES.sub("", line) for line in text.splitlines()]
    head = next((line for line in lines if re.match(r"\s*GPU\d", line)), None)
    if head is None:
        raise unreadable("nvidia-smi topo -m", _first_line(text))
    # Newer releases separate columns by tabs, and leave cells empty; older ones by many spaces.
    split = (lambda line: line.split("\t")) if "\t" in head else _by_spaces
    columns = [cell.strip() for cell in split(head)]
    if columns and columns[0]:
        columns.insert(0, "")
    links: dict[tuple[int, int], str] = {}
    affinity: dict[str, dict[int, str]] = {"CPU Affinity": {}, "NUMA Affinity": {}}
    gpus: list[int] = []
    for line in lines:
        cells = [cell.strip() for cell in split(line)]
        row = re.fullmatch(r"GPU(\d{1,6})", cells[0]) if cells and line is not head else None
        if row is None:
            continue
        own = int(row[1])
        gpus.append(own)
        for column, cell in zip(columns, cells, strict=False):
            other = re.fullmatch(r"GPU(\d{1,6})", column)
            if other and _LINK.fullmatch(cell):
                links[own, int(other[1])] = cell
            elif column in affinity and known(cell):
                affinity[column][own] = cell
    if not gpus:
        raise unreadable("nvidia-smi topo -m", _first_line(text))
    return NvidiaTopology(
        gpus=tuple(gpus),
        links=links,
        cpu_affinity=affinity["CPU Affinity"],
        numa_affinity=affinity["NUMA Affinity"],
    )


def _by_spaces(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.rstrip())


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "empty")
