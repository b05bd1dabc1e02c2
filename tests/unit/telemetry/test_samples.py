"""Outputs of real machines, read by the parser of their tool: values that were read by eye."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from heavylift.telemetry import (
    amd_smi,
    engine_host,
    infiniband,
    kfd,
    nvidia_links,
    nvidia_smi,
    pci,
    proc,
    rocm_smi,
    rocminfo,
)
from heavylift.telemetry.kernel_log import parse_kernel_log
from heavylift.telemetry.values import flattened

pytestmark = pytest.mark.shared

Sample = Callable[[str], str]
MIB = 2**20


def _gpu(report: nvidia_smi.NvidiaReport) -> tuple[Any, ...]:
    (gpu,) = report.gpus
    return (
        gpu.name,
        None if gpu.memory_total_bytes is None else gpu.memory_total_bytes // MIB,
        report.driver_version,
        gpu.mig,
        gpu.ecc_uncorrected_volatile,
        len(gpu.processes),
        len(gpu.mig_devices),
    )


def _amd(gpus: tuple[amd_smi.AmdGpu, ...]) -> list[tuple[Any, ...]]:
    return [(gpu.name, gpu.gfx, gpu.memory_total_bytes) for gpu in gpus]


def _nodes(text: str) -> tuple[Any, ...]:
    nodes = kfd.parse_topology(flattened(text))
    gpus = [node for node in nodes if node.is_gpu]
    kinds = {link.kind for node in gpus for link in node.links}
    return len(nodes), len(gpus), {node.gfx for node in gpus}, kinds, gpus[-1:] and gpus[-1].bus_id


def _links(text: str) -> set[str]:
    matrix = nvidia_links.parse_topology(text)
    return {kind for (a, b), kind in matrix.links.items() if a != b}


READINGS: Mapping[str, tuple[Callable[[str], Any], Any]] = {
    "amd-smi_error__driver_not_initialized.txt": (
        amd_smi.driver_missing,
        "ERROR:root:Unable to get devices, driver not initialized (amdgpu not found in modules)",
    ),
    "amd-smi_metric_ecc-block.txt": (
        lambda text: [gpu.ecc_uncorrectable for gpu in amd_smi.parse_text(text)],
        [0],
    ),
    "amd-smi_monitor_ptumv.txt": (
        lambda text: [(gpu.power_w, gpu.memory_used_bytes) for gpu in amd_smi.parse_monitor(text)],
        [
            (watts, mib * MIB)
            for watts, mib in (
                (171.0, 283),
                (175.0, 283),
                (177.0, 283),
                (172.0, 283),
                (178.0, 284),
                (176.0, 283),
                (176.0, 283),
                (175.0, 283),
            )
        ],
    ),
    "amd-smi_process.txt": (
        lambda text: [(each.pid, each.vram_bytes) for each in amd_smi.parse_processes(text)],
        [(1693982, round(10.1 * 2**30))],
    ),
    "amd-smi_static_asic__mi308x.txt": (
        lambda text: _amd(amd_smi.parse_text(text)),
        [("MI308X", "gfx942", None)],
    ),
    "amd-smi_static_partition.txt": (
        lambda text: [
            (gpu.compute_partition, gpu.memory_partition) for gpu in amd_smi.parse_text(text)
        ],
        [("CPX", "NPS4")],
    ),
    "amd-smi_topology_json.txt": (
        amd_smi.parse_topology,
        (amd_smi.AmdLink(first=0, second=1, kind="XGMI", hops=1),),
    ),
    "dmesg__amdgpu_ring_timeout_llama.txt": (
        lambda text: [(str(each.kind), each.device) for each in parse_kernel_log(text)],
        [("amd_ring_timeout", "0000:c2:00.0")],
    ),
    "dmesg__kfd_pitcairn_unsupported.txt": (
        lambda text: [str(each.kind) for each in parse_kernel_log(text)],
        ["amd_unsupported"],
    ),
    "dmesg__mi300x_athub_uncorrectable.txt": (
        lambda text: [(str(each.kind), each.device) for each in parse_kernel_log(text)],
        [("hardware_error", "0000:dd:00.0")],
    ),
    "dmesg__nvidia_fallen_off_bus_no_xid.txt": (
        lambda text: [(str(each.kind), each.device) for each in parse_kernel_log(text)],
        [("fallen_off_bus", "0000:b3:00.0"), ("nvidia_probe_failed", None)],
    ),
    "dmesg__xid13_mixed.txt": (
        lambda text: {(str(each.kind), each.number) for each in parse_kernel_log(text)},
        {("xid", 13), ("xid", 43), ("oom_kill", None)},
    ),
    "etc_os-release.txt": (
        lambda text: proc.parse_os_release(text)["VERSION"],
        "22.04.5 LTS (Jammy Jellyfish)",
    ),
    "findmnt_json__0.json": (
        lambda text: [(each.target, each.fstype) for each in proc.parse_findmnt(text)],
        [("/", "ext4")],
    ),
    "ibv_devinfo__h100_ib.txt": (
        lambda text: [
            (each.name, each.firmware, each.ports[0].state)
            for each in infiniband.parse_devinfo(text)
        ],
        [("mlx5_ib0", "28.43.1014", "ACTIVE")],
    ),
    "kfd_mem_banks__mi300x_cpx.txt": (
        lambda text: [node.memory_bytes for node in kfd.parse_topology(flattened(text))],
        [25_767_706_624],
    ),
    "kfd_topology__mi210-8gpu-xgmi.txt": (_nodes, (10, 8, {"gfx90a"}, {2, 11}, "0000:a3:00.0")),
    "kfd_topology__mi308-8gpu.txt": (_nodes, (10, 8, {"gfx942"}, {2, 11}, "0000:80:00.3")),
    "ls_l_dev_kfd__permissions.txt": (
        lambda text: [(each.path, each.mode, each.group) for each in proc.parse_ls(text)],
        [("/dev/kfd", "crw-rw-rw-", "render"), ("/dev/dri/card0", "crw-rw----", "video")],
    ),
    "lspci_nn__a10.txt": (
        lambda text: [each.name for each in pci.parse_lspci_nn(text) if each.is_gpu],
        ["NVIDIA Corporation GA102GL [A10]"],
    ),
    "lspci_vvv__acs_enabled_bridges.txt": (
        lambda text: [
            (each.address, "ReqRedir" in (each.acs or ())) for each in pci.parse_lspci_vvv(text)
        ],
        [("00:0c.0", False), ("00:0e.0", False), ("82:00.0", True), ("82:01.0", True)],
    ),
    "nvidia-smi_compute_apps_load__h100-80gb-hbm3.txt": (
        lambda text: [each.pid for each in nvidia_smi.parse_compute_apps(text)],
        [11327, 11328, 11345],
    ),
    "nvidia-smi_list__h100-80gb-hbm3.txt": (
        lambda text: [each.name for each in nvidia_smi.parse_list(text)],
        ["NVIDIA H100 80GB HBM3"],
    ),
    "nvidia-smi_list__h200-mig.txt": (
        lambda text: [
            device.profile for gpu in nvidia_smi.parse_list(text) for device in gpu.mig_devices
        ],
        ["1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"],
    ),
    "nvidia-smi_list__l40s.txt": (
        lambda text: [each.name for each in nvidia_smi.parse_list(text)],
        ["NVIDIA L40S"],
    ),
    "nvidia-smi_list__rtx-4080-super.txt": (
        lambda text: [each.name for each in nvidia_smi.parse_list(text)],
        ["NVIDIA GeForce RTX 4080 SUPER"],
    ),
    "nvidia-smi_nvlink_s__h100-mig.txt": (
        lambda text: [each.remark for each in nvidia_links.parse_nvlink(text)],
        ["Nvlink queries are not supported for Devices in MIG mode"],
    ),
    "nvidia-smi_nvlink_s__h200.txt": (
        lambda text: [each.active_gb_per_s for each in nvidia_links.parse_nvlink(text)],
        [(26.562,) * 18],
    ),
    "nvidia-smi_nvlink_s__rtx-2080-super-windows.txt": (
        lambda text: [each.active_gb_per_s for each in nvidia_links.parse_nvlink(text)],
        [()],
    ),
    "nvidia-smi_nvlink_status__a10.txt": (nvidia_links.parse_nvlink, ()),
    "nvidia-smi_q_idle__h100-80gb-hbm3.txt": (
        lambda text: _gpu(nvidia_smi.parse_query(text)),
        ("NVIDIA H100 80GB HBM3", 81559, "590.48.01", False, 0, 0, 0),
    ),
    "nvidia-smi_q_idle__h200-mig.txt": (
        lambda text: _gpu(nvidia_smi.parse_query(text)),
        ("NVIDIA H200", 143771, "590.48.01", True, 0, 0, 5),
    ),
    "nvidia-smi_q_idle__l40s.txt": (
        lambda text: _gpu(nvidia_smi.parse_query(text)),
        ("NVIDIA L40S", 46068, "595.80", False, 0, 0, 0),
    ),
    "nvidia-smi_q_idle__rtx-4080-super.txt": (
        lambda text: _gpu(nvidia_smi.parse_query(text)),
        ("NVIDIA GeForce RTX 4080 SUPER", 16376, "595.71.05", False, None, 5, 0),
    ),
    "nvidia-smi_q_load__h200.txt": (
        lambda text: _gpu(nvidia_smi.parse_query(text)),
        ("NVIDIA H200", 143771, "590.48.01", False, 0, 3, 0),
    ),
    "nvidia-smi_q_x__a10g.xml": (
        lambda text: _gpu(nvidia_smi.parse_query_xml(text)),
        ("NVIDIA A10G", 23028, "515.105.01", False, 0, 1, 0),
    ),
    "nvidia-smi_q_x__rtx-3090-v12.xml": (
        lambda text: _gpu(nvidia_smi.parse_query_xml(text)),
        ("NVIDIA GeForce RTX 3090", 24576, "525.147.05", False, None, 0, 0),
    ),
    "nvidia-smi_q_x__tesla-t4.xml": (
        lambda text: _gpu(nvidia_smi.parse_query_xml(text)),
        ("Tesla T4", 15360, "515.105.01", False, 0, 2, 0),
    ),
    "nvidia-smi_query_gpu_csv_idle__h200.txt": (
        lambda text: _gpu(nvidia_smi.parse_query_csv(text)),
        ("NVIDIA H200", 143771, "590.48.01", False, 0, 0, 0),
    ),
    "nvidia-smi_query_gpu_csv_load__h100-mig.txt": (
        lambda text: _gpu(nvidia_smi.parse_query_csv(text)),
        ("NVIDIA H100 80GB HBM3", 81559, "590.48.01", True, 0, 0, 0),
    ),
    "nvidia-smi_query_gpu_csv_load__h200.txt": (
        lambda text: _gpu(nvidia_smi.parse_query_csv(text)),
        ("NVIDIA H200", 143771, "590.48.01", False, 0, 0, 0),
    ),
    "nvidia-smi_query_gpu_csv_load__rtx-2080-super-windows.txt": (
        lambda text: _gpu(nvidia_smi.parse_query_csv(text)),
        ("NVIDIA GeForce RTX 2080 SUPER", 8192, "610.62", False, None, 0, 0),
    ),
    "nvidia-smi_table_idle__h100-80gb-hbm3.txt": (
        lambda text: _gpu(nvidia_smi.parse_table(text)),
        ("NVIDIA H100 80GB HBM3", 81559, "590.48.01", False, 0, 0, 0),
    ),
    "nvidia-smi_topo_m__2gpu_pcie_node.txt": (_links, {"NODE"}),
    "nvidia-smi_topo_m__8gpu_nvswitch.txt": (_links, {"NV18"}),
    "nvidia-smi_topo_m__h100-mig.txt": (_links, set()),
    "nvidia-smi_topo_m__h200.txt": (_links, set()),
    "nvidia-smi_topo_m__rtx-2080-super-windows.txt": (_links, set()),
    "nvidia-smi_version__h100-80gb-hbm3.txt": (
        lambda text: nvidia_smi.parse_version(text).driver,
        "590.48.01",
    ),
    "ollama_log__h100_ok.txt": (
        lambda text: [
            (each.library, each.description) for each in engine_host.parse_ollama_devices(text)
        ],
        [("CUDA", "NVIDIA H100 80GB HBM3")],
    ),
    "proc_mdstat.txt": (
        lambda text: [each.name for each in proc.parse_mdstat(text) if each.missing],
        ["md6", "md7", "md42"],
    ),
    "proc_mountinfo.txt": (
        lambda text: len(proc.parse_mountinfo(text)),
        60,
    ),
    "proc_pressure_memory.txt": (
        lambda text: proc.parse_pressure(text)["some"].avg60,
        2.0,
    ),
    "rocm-smi_csv__rx6800_plus_igpu.csv": (
        lambda text: [(gpu.gfx, gpu.memory_total_bytes) for gpu in rocm_smi.parse_csv(text)],
        [("gfx1030", 17_163_091_968), ("gfx1036", 67_108_864)],
    ),
    "rocm-smi_json__mi100_rocm602.json": (
        lambda text: {(g.name, g.memory_total_bytes) for g in rocm_smi.parse_json(text)},
        {("Arcturus GL-XL [Instinct MI100]", 34_342_961_152)},
    ),
    "rocm-smi_json__rx6700xt_rocm571.json": (
        lambda text: [
            (g.memory_total_bytes, g.visible_memory_bytes) for g in rocm_smi.parse_json(text)
        ],
        [(12_868_124_672, 268_435_456)],
    ),
    "rocm-smi_json__rx6700xt_rocm612.json": (
        lambda text: [(gpu.gfx, gpu.driver_version) for gpu in rocm_smi.parse_json(text)],
        [("gfx1031", "6.3.6")],
    ),
    "rocm-smi_json__vega-10-XT.json": (
        lambda text: [(gpu.device_id, gpu.gfx) for gpu in rocm_smi.parse_json(text)],
        [("0x6861", None)],
    ),
    "rocm-smi_showallinfo__mi300x_container.txt": (
        lambda text: [(gpu.name, gpu.driver_version) for gpu in rocm_smi.parse_text(text)],
        [("AMD Instinct MI300X OAM", "6.7.0")],
    ),
    "rocm-smi_text__vega10_vram_na.txt": (
        lambda text: [(gpu.index, gpu.memory_total_bytes) for gpu in rocm_smi.parse_text(text)],
        [(1, None)],
    ),
    "rocminfo__mi300x_cpx_agent3.txt": (
        lambda text: [agent.name for agent in rocminfo.parse_rocminfo(text).gpus],
        ["gfx942"],
    ),
    "rocminfo__wsl2_header.txt": (lambda text: rocminfo.parse_rocminfo(text).wsl, True),
    "rocminfo_error__invalid_argument_container.txt": (
        lambda text: rocminfo.parse_rocminfo(text).error,
        "Unable to open /dev/kfd read-write: Invalid argument",
    ),
    "sys_class_drm_amdgpu__card0.txt": (
        lambda text: [
            (card.visible_vram_bytes, card.largest_bar_bytes)
            for card in kfd.parse_drm(flattened(text))
        ],
        [(8_573_157_376, 8_589_934_592)],
    ),
    "sys_class_infiniband__procfs_mix.txt": (
        lambda text: [
            (device.name, port.number, port.state, port.rate_gb_per_s)
            for device in infiniband.parse_sysfs(flattened(text))
            for port in device.ports
        ],
        [
            ("hfi1_0", 1, "ACTIVE", 100.0),
            ("mlx4_0", 1, "ACTIVE", 40.0),
            ("mlx4_0", 2, "ACTIVE", 40.0),
            ("mlx5_0", 1, "ACTIVE", 25.0),
        ],
    ),
    "vllm_collect_env__h100_driver550_cu128.txt": (
        lambda text: (
            engine_host.parse_collect_env(text).cuda_build,
            engine_host.parse_collect_env(text).driver,
        ),
        ("12.8", "550.144.03"),
    ),
}


@pytest.mark.parametrize("name", sorted(READINGS))
def test_reading(sample: Sample, name: str) -> None:
    """Each recorded output gives what stands in it."""
    read, expected = READINGS[name]
    assert read(sample(name)) == expected


def test_none_is_left_out(sample: Sample) -> None:
    """Every output of the collection has a reading."""
    listed = {json.loads(line)["file"] for line in sample("MANIFEST.jsonl").splitlines()}
    assert listed == set(READINGS)
