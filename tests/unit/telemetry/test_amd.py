"""amd-smi, rocm-smi, rocminfo and the kernel's own files of AMD cards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heavylift.errors import HeavyliftError
from heavylift.telemetry import amd_smi, kfd, rocm_smi, rocminfo

Recorded = Callable[[str], str]


def test_static_text(recorded: Recorded) -> None:
    """`amd-smi static` in text gives name, architecture, partition, memory and driver."""
    first, second = amd_smi.parse_text(recorded("amd_static.txt"))
    assert first.name == "AMD Instinct MI355X"
    assert (first.gfx, first.compute_units, first.numa_node) == ("gfx950", 256, 1)
    assert (first.compute_partition, first.memory_partition) == ("DPX", "NPS2")
    assert first.memory_total_bytes == 294896 * 2**20
    assert first.driver_version == "6.14.14"
    assert first.bus_id == "0000:05:00.0"
    assert second.name is None


def test_static_json(recorded: Recorded) -> None:
    """The newer document puts cards under gpu_data; warnings before it do not matter."""
    (gpu,) = amd_smi.parse_json(recorded("amd_static.json"))
    assert gpu.name == "AMD Instinct MI300X"
    assert gpu.memory_total_bytes == 206_141_652_992
    assert (gpu.compute_partition, gpu.memory_partition) == ("SPX", "NPS1")
    assert (gpu.gfx, gpu.vbios, gpu.driver_version) == ("gfx942", "022.040.003.042", "6.12.12")


def test_metric_and_merge(recorded: Recorded) -> None:
    """Reports of several commands are one card each, joined by index."""
    (gpu,) = amd_smi.merge(
        amd_smi.parse_json(recorded("amd_static.json")),
        amd_smi.parse_json(recorded("amd_metric.json")),
    )
    assert gpu.name == "AMD Instinct MI300X"
    assert (gpu.ecc_correctable, gpu.ecc_uncorrectable) == (3, 1)
    assert gpu.memory_used_bytes == 285 * 2**20
    assert (gpu.temperature_c, gpu.power_w) == (41.0, 140.0)


def test_bad_pages(recorded: Recorded) -> None:
    """Bad pages are counted; `No bad pages found` is zero, not unknown."""
    first, second = amd_smi.parse_json(recorded("amd_bad_pages.json"))
    assert (first.bad_pages, first.bad_pages_pending) == (2, 1)
    assert (second.bad_pages, second.bad_pages_pending) == (0, 0)


def test_processes(recorded: Recorded) -> None:
    """Processes are read from text and JSON; the sentence for none is no process."""
    assert amd_smi.parse_processes(recorded("amd_process.json")) == (
        amd_smi.AmdProcess(pid=77, name="VLLM::Worker_TP2", vram_bytes=2**20, gpu=2),
    )
    assert amd_smi.parse_processes(recorded("amd_process.txt")) == (
        amd_smi.AmdProcess(pid=900, name="python3", vram_bytes=round(2.5 * 2**30), gpu=1),
    )


def test_monitor(recorded: Recorded) -> None:
    """Columns with a unit of their own are one value each."""
    first, second = amd_smi.parse_monitor(recorded("amd_monitor.txt"))
    assert (first.power_w, first.temperature_c) == (171.0, 32.0)
    assert first.memory_used_bytes == 283 * 2**20
    assert (second.power_w, second.memory_total_bytes) == (None, None)


def test_topology(recorded: Recorded) -> None:
    """Links between different cards are kept, with their kind."""
    assert amd_smi.parse_topology(recorded("amd_topology.json")) == (
        amd_smi.AmdLink(first=0, second=1, kind="PCIE", hops=2),
    )


def test_versions(recorded: Recorded) -> None:
    """Versions are read from JSON and from the line of older releases."""
    newer = amd_smi.parse_version(recorded("amd_version.json"))
    assert (newer.rocm, newer.driver) == ("7.0.0", "6.14.14")
    older = amd_smi.parse_version(recorded("amd_version.txt"))
    assert (older.tool, older.rocm, older.driver) == ("24.6.3+9578815", "6.2.4", None)


def test_missing_driver_is_told_apart() -> None:
    """The tool's own line for a missing driver is the reason of the error."""
    line = "ERROR:root:Unable to detect any GPU devices, check amdgpu version and module status"
    assert amd_smi.driver_missing(f"\n{line}\n") == line
    with pytest.raises(HeavyliftError) as caught:
        amd_smi.parse_text(line)
    assert caught.value.params["reason"] == line


@pytest.mark.parametrize(
    "parse",
    [
        amd_smi.parse_text,
        amd_smi.parse_json,
        amd_smi.parse_monitor,
        amd_smi.parse_processes,
        amd_smi.parse_topology,
        amd_smi.parse_version,
        rocm_smi.parse_json,
        rocm_smi.parse_csv,
        rocm_smi.parse_text,
        rocminfo.parse_rocminfo,
    ],
)
@pytest.mark.parametrize("text", ["", "bash: command not found"])
def test_other_text_is_a_coded_error(parse: Callable[[str], object], text: str) -> None:
    """Text that is not of the tool is PRE101."""
    with pytest.raises(HeavyliftError) as caught:
        parse(text)
    assert caught.value.code == "PRE101"


def test_rocm_smi_by_release(recorded: Recorded) -> None:
    """Key names of two releases give the same fields."""
    (old,) = rocm_smi.parse_json(recorded("rocm_smi_old.json"))
    assert (old.name, old.device_id, old.gfx) == ("AMD INSTINCT MI250", "0x740f", None)
    assert old.memory_total_bytes == 68_702_699_520
    assert old.numa_node is None
    new, absent = rocm_smi.parse_json(recorded("rocm_smi_new.json"))
    assert (new.name, new.device_id, new.gfx) == ("AMD Instinct MI300X", "0x74a1", "gfx942")
    assert (new.numa_node, new.driver_version) == (1, "6.12.12")
    assert absent.name is None


def test_rocm_smi_csv(recorded: Recorded) -> None:
    """An integrated GPU beside a card shows as a second row of little memory."""
    card, integrated = rocm_smi.parse_csv(recorded("rocm_smi.csv"))
    assert (card.gfx, integrated.gfx) == ("gfx1100", "gfx1036")
    assert integrated.memory_total_bytes == 536_870_912


def test_rocm_smi_text(recorded: Recorded) -> None:
    """The long text is read by lines, the short one by its columns."""
    first, second = rocm_smi.parse_text(recorded("rocm_smi_all.txt"))
    assert (first.name, first.device_id) == ("AMD Instinct MI325X", "0x74a5")
    assert (second.index, second.driver_version) == (1, "6.12.12")
    (short,) = rocm_smi.parse_text(recorded("rocm_smi_short.txt"))
    assert (short.power_w, short.memory_total_bytes) == (128.0, None)


def test_rocminfo(recorded: Recorded) -> None:
    """Agents are listed, cards among them; a module version is kept."""
    found = rocminfo.parse_rocminfo(recorded("rocminfo.txt"))
    assert [agent.name for agent in found.gpus] == ["gfx950"]
    assert found.gpus[0].compute_units == 256
    assert (found.wsl, found.module_version, found.error) == (False, "6.12.12", None)


def test_rocminfo_that_was_refused(recorded: Recorded) -> None:
    """A refused /dev/kfd is the error, in the tool's words."""
    found = rocminfo.parse_rocminfo(recorded("rocminfo_refused.txt"))
    assert found.agents == ()
    assert found.error == "Unable to open /dev/kfd read-write: Permission denied"


@pytest.mark.parametrize(
    ("number", "name"),
    [(90402, "gfx942"), (90500, "gfx950"), (90010, "gfx90a"), (110000, "gfx1100"), (0, None)],
)
def test_gfx_names(number: int, name: str | None) -> None:
    """The kernel's number is the compiler's name: minor and stepping are hexadecimal digits."""
    assert kfd.gfx_name(number) == name


def test_kfd_topology() -> None:
    """Memory is that of the banks (local_mem_size is 0 on recent cards)."""
    node = "/sys/class/kfd/kfd/topology/nodes/1"
    (found,) = kfd.parse_topology(
        {
            f"{node}/gpu_id": "51234",
            f"{node}/properties": (
                "simd_count 1024\ngfx_target_version 90500\nlocal_mem_size 0\n"
                "domain 1\nlocation_id 1283\ndrm_render_minor 128\nnew_field 1"
            ),
            f"{node}/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 309220868096",
            f"{node}/mem_banks/1/properties": "heap_type 0\nsize_in_bytes 1",
            f"{node}/io_links/0/properties": "type 11\nnode_to 2\nweight 15",
            f"{node}/io_links/1/properties": "type 2",
            "/sys/elsewhere": "1",
        }
    )
    assert found.is_gpu
    assert (found.gfx, found.memory_bytes) == ("gfx950", 309_220_868_096)
    assert found.bus_id == "0001:05:00.3"
    assert [(link.node_to, link.kind) for link in found.links] == [(2, kfd.XGMI)]


def test_drm_card() -> None:
    """A BAR smaller than the memory shows in the visible part and in the regions."""
    folder = "/sys/class/drm/card1/device"
    (card,) = kfd.parse_drm(
        {
            f"{folder}/vendor": "0x1002",
            f"{folder}/mem_info_vram_total": "12868124672",
            f"{folder}/mem_info_vis_vram_total": "268435456",
            f"{folder}/resource": (
                "0x0000007c00000000 0x0000007c0fffffff 0x000000000014220c\n"
                "0x0000000000000000 0x0000000000000000 0x0000000000000000"
            ),
            f"{folder}/current_compute_partition": "SPX",
        }
    )
    assert card.visible_vram_bytes == card.largest_bar_bytes == 2**28
    assert (card.compute_partition, card.memory_partition) == ("SPX", None)
