"""The fields of one card as nvidia-smi names them in its several forms.

One table reads three forms, so that a field is defined once. A field that a version does not print
is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from heavylift.telemetry.values import flag, known, number, size_bytes, whole


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


Reader = Callable[[str | None], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of `NvidiaGpu`: how its text is read, and where it stands in `-q`, `-q -x` and
    `--query-gpu`. Several places are releases that named it otherwise; the first that has a value
    counts.
    """

    name: str
    read: Reader
    text: tuple[str, ...] = ()
    xml: tuple[str, ...] = ()
    csv: tuple[str, ...] = ()


def _enabled(text: str | None) -> bool | None:
    return flag(text)


def _mig(text: str | None) -> bool | None:
    """N/A is an answer here: a card that cannot be cut is not cut."""
    return None if text is None else flag(text) is True


_FIELDS: Final = (
    Field("name", known, text=("Product Name",), xml=("product_name",), csv=("name", "gpu_name")),
    Field("uuid", known, text=("GPU UUID",), xml=("uuid",), csv=("uuid", "gpu_uuid")),
    Field(
        "bus_id",
        known,
        text=("PCI/Bus Id",),
        xml=("pci/pci_bus_id",),
        csv=("pci.bus_id", "gpu_bus_id"),
    ),
    Field("architecture", known, text=("Product Architecture",), xml=("product_architecture",)),
    Field("compute_cap", known, csv=("compute_cap",)),
    Field("vbios", known, text=("VBIOS Version",), xml=("vbios_version",), csv=("vbios_version",)),
    Field("gsp_firmware", known, text=("GSP Firmware Version",), xml=("gsp_firmware_version",)),
    Field(
        "memory_total_bytes",
        size_bytes,
        text=("FB Memory Usage/Total",),
        xml=("fb_memory_usage/total",),
        csv=("memory.total",),
    ),
    Field(
        "memory_reserved_bytes",
        size_bytes,
        text=("FB Memory Usage/Reserved",),
        xml=("fb_memory_usage/reserved",),
        csv=("memory.reserved",),
    ),
    Field(
        "memory_used_bytes",
        size_bytes,
        text=("FB Memory Usage/Used",),
        xml=("fb_memory_usage/used",),
        csv=("memory.used",),
    ),
    Field(
        "bar1_total_bytes",
        size_bytes,
        text=("BAR1 Memory Usage/Total",),
        xml=("bar1_memory_usage/total",),
    ),
    Field(
        "persistence",
        _enabled,
        text=("Persistence Mode",),
        xml=("persistence_mode",),
        csv=("persistence_mode",),
    ),
    Field(
        "mig",
        _mig,
        text=("MIG Mode/Current",),
        xml=("mig_mode/current_mig",),
        csv=("mig.mode.current",),
    ),
    Field(
        "ecc",
        _enabled,
        text=("ECC Mode/Current",),
        xml=("ecc_mode/current_ecc",),
        csv=("ecc.mode.current",),
    ),
    Field("ecc_uncorrected_volatile", whole, csv=("ecc.errors.uncorrected.volatile.total",)),
    Field("ecc_uncorrected_aggregate", whole, csv=("ecc.errors.uncorrected.aggregate.total",)),
    Field(
        "remapped_pending",
        _enabled,
        text=("Remapped Rows/Pending",),
        xml=("remapped_rows/remapped_row_pending",),
        csv=("remapped_rows.pending",),
    ),
    Field(
        "remapped_failure",
        _enabled,
        text=("Remapped Rows/Remapping Failure Occurred",),
        xml=("remapped_rows/remapped_row_failure",),
        csv=("remapped_rows.failure",),
    ),
    Field(
        "fabric_state", known, text=("Fabric/State",), xml=("fabric/state",), csv=("fabric.state",)
    ),
    Field(
        "fabric_status",
        known,
        text=("Fabric/Status",),
        xml=("fabric/status",),
        csv=("fabric.status",),
    ),
    Field(
        "link_generation",
        whole,
        text=("PCI/GPU Link Info/PCIe Generation/Current",),
        xml=("pci/pci_gpu_link_info/pcie_gen/current_link_gen",),
        csv=("pcie.link.gen.current", "pcie.link.gen.gpucurrent"),
    ),
    Field(
        "link_generation_max",
        whole,
        text=("PCI/GPU Link Info/PCIe Generation/Max",),
        xml=("pci/pci_gpu_link_info/pcie_gen/max_link_gen",),
        csv=("pcie.link.gen.max",),
    ),
    Field(
        "link_width",
        whole,
        text=("PCI/GPU Link Info/Link Width/Current",),
        xml=("pci/pci_gpu_link_info/link_widths/current_link_width",),
        csv=("pcie.link.width.current",),
    ),
    Field(
        "link_width_max",
        whole,
        text=("PCI/GPU Link Info/Link Width/Max",),
        xml=("pci/pci_gpu_link_info/link_widths/max_link_width",),
        csv=("pcie.link.width.max",),
    ),
    Field(
        "temperature_c",
        number,
        text=("Temperature/GPU Current Temp",),
        xml=("temperature/gpu_temp",),
        csv=("temperature.gpu",),
    ),
    Field(
        "power_limit_w",
        number,
        text=(
            "GPU Power Readings/Current Power Limit",
            "GPU Power Readings/Enforced Power Limit",
            "Power Readings/Power Limit",
        ),
        xml=("gpu_power_readings/current_power_limit", "power_readings/power_limit"),
        csv=("power.limit", "enforced.power.limit"),
    ),
    Field(
        "power_w",
        number,
        text=("GPU Power Readings/Average Power Draw", "Power Readings/Power Draw"),
        xml=("gpu_power_readings/average_power_draw", "power_readings/power_draw"),
        csv=("power.draw", "power.draw.average"),
    ),
    Field(
        "use_percent",
        number,
        text=("Utilization/Gpu", "Utilization/GPU"),
        xml=("utilization/gpu_util",),
        csv=("utilization.gpu",),
    ),
    Field(
        "power_limit_default_w",
        number,
        text=("GPU Power Readings/Default Power Limit", "Power Readings/Default Power Limit"),
        xml=("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
        csv=("power.default_limit",),
    ),
    Field(
        "hardware_slowdown",
        _enabled,
        text=("Clocks Event Reasons/HW Slowdown", "Clocks Throttle Reasons/HW Slowdown"),
        xml=(
            "clocks_event_reasons/clocks_event_reason_hw_slowdown",
            "clocks_throttle_reasons/clocks_throttle_reason_hw_slowdown",
        ),
        csv=("clocks_event_reasons.hw_slowdown", "clocks_throttle_reasons.hw_slowdown"),
    ),
    Field(
        "thermal_slowdown",
        _enabled,
        text=(
            "Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown",
            "Clocks Throttle Reasons/HW Slowdown/HW Thermal Slowdown",
        ),
        xml=(
            "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown",
            "clocks_throttle_reasons/clocks_throttle_reason_hw_thermal_slowdown",
        ),
        csv=(
            "clocks_event_reasons.hw_thermal_slowdown",
            "clocks_throttle_reasons.hw_thermal_slowdown",
        ),
    ),
    Field(
        "power_brake",
        _enabled,
        text=(
            "Clocks Event Reasons/HW Slowdown/HW Power Brake Slowdown",
            "Clocks Throttle Reasons/HW Slowdown/HW Power Brake Slowdown",
        ),
        xml=(
            "clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown",
            "clocks_throttle_reasons/clocks_throttle_reason_hw_power_brake_slowdown",
        ),
        csv=(
            "clocks_event_reasons.hw_power_brake_slowdown",
            "clocks_throttle_reasons.hw_power_brake_slowdown",
        ),
    ),
)


def fields(
    get: Callable[[str], str | None], places: Callable[[Field], tuple[str, ...]]
) -> dict[str, Any]:
    """The fields of a card by their names: `get` looks up one of the `places` of this form."""
    return {
        field.name: next(
            (value for place in places(field) if (value := field.read(get(place))) is not None),
            None,
        )
        for field in _FIELDS
    }


def recovery(text: str | None) -> str | None:
    """`None` is an answer of this field ("no action needed"), not an absent value."""
    if text is None or text.strip().lower() == "none":
        return None if text is None else "None"
    return known(text)
