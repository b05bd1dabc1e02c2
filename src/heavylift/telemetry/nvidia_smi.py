"""nvidia-smi: `-q`, `-q -x`, `--query-gpu`, the table, `-L`, apps, version."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree as ET

from heavylift.telemetry.nvidia_fields import (
    MigDevice,
    NvidiaGpu,
    NvidiaProcess,
    fields,
    recovery,
)
from heavylift.telemetry.values import (
    Entry,
    first_line,
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
class NvidiaReport:
    """All cards of a host, with the driver and the newest CUDA it serves."""

    gpus: tuple[NvidiaGpu, ...]
    driver_version: str | None = None
    cuda_version: str | None = None


# --- -q ------------------------------------------------------------------------------------------


def parse_query(text: str) -> NvidiaReport:
    """`nvidia-smi -q`. Raises PRE101 when it lists no GPU section at all."""
    root = tree(text.splitlines(), " :")
    gpus = [entry for entry in root.children if re.match(r"GPU [0-9A-Fa-f]+:", entry.key)]
    if not gpus and root.get("Attached GPUs") is None:
        raise unreadable("nvidia-smi -q", first_line(text))
    return NvidiaReport(
        gpus=tuple(_query_gpu(index, gpu) for index, gpu in enumerate(gpus)),
        driver_version=known(root.get("Driver Version")),
        cuda_version=known(root.get("CUDA Version")),
    )


def _query_gpu(index: int, gpu: Entry) -> NvidiaGpu:
    values = fields(gpu.get, lambda field: field.text)
    return NvidiaGpu(
        **{
            **values,
            "index": index,
            "bus_id": values["bus_id"] or gpu.key.removeprefix("GPU ").strip(),
            "recovery_action": recovery(gpu.get("GPU Recovery Action")),
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
            **fields(gpu.get, lambda field: field.xml),
            "index": index,
            "recovery_action": recovery(gpu.get("gpu_recovery_action")),
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
                **fields(row.get, lambda field: field.csv),
                "index": whole(row.get("index")),
                "recovery_action": recovery(row.get("gpu_recovery_action")),
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
        raise unreadable(what, first_line(text))
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
        raise unreadable("nvidia-smi", first_line(text))
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


# --- -L, --version -------------------------------------------------------------------------------

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
        raise unreadable("nvidia-smi --version", first_line(text))
    return found
