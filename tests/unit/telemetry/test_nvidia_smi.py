"""nvidia-smi in all its forms."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heavylift.errors import HeavyliftError
from heavylift.telemetry import nvidia_links
from heavylift.telemetry import nvidia_smi as smi
from heavylift.telemetry.nvidia_fields import NvidiaGpu, NvidiaProcess

Recorded = Callable[[str], str]
MIB = 2**20


def test_query_reads_every_field(recorded: Recorded) -> None:
    """`-q` gives driver, memory, errors, links, power and processes of a card."""
    report = smi.parse_query(recorded("nvidia_q.txt"))
    assert (report.driver_version, report.cuda_version) == ("580.95.05", "13.0")
    first = report.gpus[0]
    assert first == NvidiaGpu(
        index=0,
        name="NVIDIA H200",
        uuid="GPU-00000000-1111-2222-3333-444444444444",
        bus_id="00000000:1B:00.0",
        architecture="Hopper",
        vbios="96.00.B0.00.02",
        gsp_firmware="580.95.05",
        memory_total_bytes=143771 * MIB,
        memory_reserved_bytes=614 * MIB,
        memory_used_bytes=2048 * MIB,
        bar1_total_bytes=262144 * MIB,
        persistence=False,
        mig=False,
        ecc=True,
        ecc_uncorrected_volatile=3,
        ecc_uncorrected_aggregate=6,
        remapped_pending=True,
        remapped_failure=False,
        recovery_action="None",
        fabric_state="In Progress",
        link_generation=1,
        link_generation_max=5,
        link_width=8,
        link_width_max=16,
        temperature_c=31.0,
        power_limit_w=500.0,
        power_limit_default_w=700.0,
        hardware_slowdown=True,
        thermal_slowdown=True,
        power_brake=False,
        processes=(
            NvidiaProcess(pid=4242, name="VLLM::EngineCore", used_bytes=2000 * MIB, kind="C"),
            NvidiaProcess(pid=4243, name="VLLM::Worker_TP1", used_bytes=None, kind="C"),
        ),
    )


def test_query_of_a_cut_card(recorded: Recorded) -> None:
    """A card under MIG lists its slices; what it does not tell is None, not zero."""
    second = smi.parse_query(recorded("nvidia_q.txt")).gpus[1]
    assert second.mig is True
    assert second.bus_id == "00000000:2A:00.0"
    assert [device.memory_total_bytes for device in second.mig_devices] == [71424 * MIB]
    assert second.memory_used_bytes is None
    assert second.remapped_pending is None
    assert second.ecc_uncorrected_volatile is None


def test_xml(recorded: Recorded) -> None:
    """`-q -x` gives the same fields, with recovery action, slices and processes."""
    report = smi.parse_query_xml(recorded("nvidia_q.xml"))
    (gpu,) = report.gpus
    assert report.driver_version == "580.95.05"
    assert gpu.memory_total_bytes == 183359 * MIB
    assert gpu.ecc_uncorrected_volatile == 3
    assert gpu.remapped_failure is True
    assert gpu.recovery_action == "Drain and Reset"
    assert gpu.fabric_state == "Completed"
    assert [device.gpu_instance for device in gpu.mig_devices] == [1]
    assert [(each.pid, each.name) for each in gpu.processes] == [(812, "sglang::scheduler_TP0")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found",
        "<other/>",
        '<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log/>',
        "<nvidia_smi_log><gpu>",
    ],
)
def test_xml_that_is_none(text: str) -> None:
    """What is not that document, or has entities, is PRE101."""
    with pytest.raises(HeavyliftError) as caught:
        smi.parse_query_xml(text)
    assert caught.value.code == "PRE101"


def test_csv(recorded: Recorded) -> None:
    """`--query-gpu` is read by the names of its heading; unknown fields do not matter."""
    report = smi.parse_query_csv(recorded("nvidia_query.csv"))
    first, second = report.gpus
    assert (first.compute_cap, first.mig, first.ecc_uncorrected_volatile) == ("10.0", False, 0)
    assert (second.compute_cap, second.mig, second.ecc_uncorrected_volatile) == ("8.9", False, None)
    assert second.recovery_action is None
    assert (second.link_width, second.link_width_max) == (8, 16)
    assert report.driver_version == "580.95.05"


def test_csv_without_units(recorded: Recorded) -> None:
    """With `nounits` the unit is the heading's."""
    (gpu,) = smi.parse_query_csv(recorded("nvidia_query_nounits.csv")).gpus
    assert gpu.memory_total_bytes == 81559 * MIB
    assert gpu.memory_used_bytes == 7 * MIB


def test_table(recorded: Recorded) -> None:
    """The table for people gives memory, MIG, ECC count and processes."""
    report = smi.parse_table(recorded("nvidia_table.txt"))
    (gpu,) = report.gpus
    assert (report.driver_version, report.cuda_version) == ("570.86.15", "12.8")
    assert gpu.name == "NVIDIA H100 80GB HBM3"
    assert gpu.memory_used_bytes == 60123 * MIB
    assert (gpu.mig, gpu.ecc_uncorrected_volatile, gpu.power_limit_w) == (True, 2, 700.0)
    assert [(each.pid, each.used_bytes) for each in gpu.processes] == [(31337, 60110 * MIB)]


def test_list(recorded: Recorded) -> None:
    """`-L` lists cards and the slices under them."""
    cut, whole = smi.parse_list(recorded("nvidia_list.txt"))
    assert [device.profile for device in cut.mig_devices] == ["3g.40gb"]
    assert (cut.mig, whole.mig, whole.mig_devices) == (True, None, ())


def test_topology_by_tabs(recorded: Recorded) -> None:
    """The matrix is read between cards; adapters, escapes and the legend are passed over."""
    matrix = nvidia_links.parse_topology(recorded("nvidia_topo.txt"))
    assert matrix.gpus == (0, 1, 2)
    assert matrix.links[0, 1] == "NV4"
    assert matrix.links[1, 2] == "SYS"
    assert matrix.cpu_affinity == {0: "0-31", 1: "0-31", 2: "32-63"}
    assert matrix.numa_affinity == {0: "0", 1: "0", 2: "1"}


def test_topology_by_spaces(recorded: Recorded) -> None:
    """Older releases part columns by spaces."""
    matrix = nvidia_links.parse_topology(recorded("nvidia_topo_spaces.txt"))
    assert matrix.links[0, 1] == matrix.links[1, 0] == "PHB"


def test_nvlink(recorded: Recorded) -> None:
    """Active links have a rate, inactive ones are counted, a refusal is kept as said."""
    first, second = nvidia_links.parse_nvlink(recorded("nvidia_nvlink.txt"))
    assert first.active_gb_per_s == (25.0, 25.0)
    assert first.inactive == 1
    assert second.active_gb_per_s == ()
    assert second.remark is not None
    assert "inActive" in second.remark
    assert nvidia_links.parse_nvlink("\n") == ()


def test_compute_apps(recorded: Recorded) -> None:
    """Processes keep their numbers where names and memory are hidden."""
    first, second = smi.parse_compute_apps(recorded("nvidia_apps.csv"))
    assert (first.pid, first.used_bytes) == (4242, 2000 * MIB)
    assert (second.pid, second.used_bytes) == (4250, None)


def test_version(recorded: Recorded) -> None:
    """`--version` names tool, NVML, driver and CUDA."""
    assert smi.parse_version(recorded("nvidia_version.txt")) == smi.NvidiaVersions(
        smi="575.57.08", nvml="575.57", driver="575.57.08", cuda="12.9"
    )


@pytest.mark.parametrize(
    "parse",
    [
        smi.parse_query,
        smi.parse_query_csv,
        smi.parse_compute_apps,
        smi.parse_table,
        smi.parse_version,
        nvidia_links.parse_topology,
    ],
)
def test_refusals_are_no_reports(parse: Callable[[str], object]) -> None:
    """A tool that could not reach the driver gives PRE101 with its own words, never a report."""
    line = "Failed to initialize NVML: Driver/library version mismatch"
    with pytest.raises(HeavyliftError) as caught:
        parse(line)
    assert caught.value.code == "PRE101"
    assert caught.value.params["reason"] == line
