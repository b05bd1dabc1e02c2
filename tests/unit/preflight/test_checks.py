"""Checks over hosts that are well but for one thing: which finding it makes, and how bad it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heavylift.cli.text import keys, text
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import CheckFacts
from heavylift.preflight.checks.runner import ACROSS_HOSTS, CHECKS, judge
from heavylift.preflight.checks.view import Target
from heavylift.records.finding import Finding, Severity
from heavylift.records.launch import LaunchSpec, RankSpec
from heavylift.records.ranges import Interval
from heavylift.records.snapshot import Observation, Snapshot, State

Findings = Callable[..., dict[str, Finding]]
Take = Callable[..., Snapshot]
Facts = dict[str, tuple[CheckFacts, ...]]

ABSENT = Observation(state=State.ABSENT, detail="ENOENT")
DENIED = Observation(state=State.DENIED, detail="EACCES")
HUNG = Observation(state=State.TIME_LIMIT)
FAILED = Observation(state=State.FAILED, exit_status=1)

DMESG = "tool:dmesg --time-format=iso"
XML = "tool:nvidia-smi -q -x"
CSV = "tool:nvidia-smi --query-gpu=index,compute_cap --format=csv"
NCCL_SEGMENT = "/dev/shm/nccl-abc"  # noqa: S108 - a name in a recording
LOCKS = "/tmp/aiter_configs/*.lock"  # noqa: S108 - a name in a recording
OSRELEASE = "read:/proc/sys/kernel/osrelease"
NODE = "read:/sys/class/kfd/kfd/topology/nodes"
DRM = "read:/sys/class/drm/card0/device"
STATUS = "read:/proc/self/status"
WSL = {OSRELEASE: "5.15.167.4-microsoft-standard-WSL2", "stat:/dev/dxg": "{}"}
ROCMINFO_WSL = (
    "WSL environment detected.\n*******\nAgent 1\n*******\n  Name: gfx1100\n  Device Type: GPU\n"
)


def probe(values: Mapping[str, Any]) -> str:
    """The line an engine probe prints."""
    return f"HEAVYLIFT_PROBE {json.dumps(values)}\n"


def card(*, count: int = 8, driver: str = "580.95.05", **changes: str) -> str:
    """`nvidia-smi -q -x` of equal cards with some values replaced; `a__b` is tag b under a."""
    flat = {"product_name": "NVIDIA H200", "persistence_mode": "Enabled", "vbios_version": "96.00"}
    nested = {
        "mig_mode__current_mig": "Disabled",
        "fb_memory_usage__total": "143771 MiB",
        "fb_memory_usage__used": "4 MiB",
        "bar1_memory_usage__total": "262144 MiB",
        "remapped_rows__remapped_row_pending": "No",
        "clocks_event_reasons__clocks_event_reason_hw_slowdown": "Not Active",
        "fabric__state": "Completed",
        "fabric__status": "Success",
    }
    groups: dict[str, str] = {}
    for key, value in (nested | {k: v for k, v in changes.items() if "__" in k}).items():
        group, _, tag = key.partition("__")
        groups[group] = groups.get(group, "") + f"<{tag}>{value}</{tag}>"
    flat |= {key: value for key, value in changes.items() if "__" not in key}
    body = "".join(f"<{tag}>{value}</{tag}>" for tag, value in (flat | groups).items())
    gpus = "".join(f'<gpu id="{number}">{body}</gpu>' for number in range(count))
    return f"<nvidia_smi_log><driver_version>{driver}</driver_version>{gpus}</nvidia_smi_log>"


def device(mode: int, gid: int) -> str:
    """The owner of a device file."""
    return json.dumps({"type": "c", "mode": mode, "uid": 0, "gid": gid, "size": 0})


def room(free: int, total: int) -> str:
    """Room on a file system."""
    return json.dumps({"at": "/", "free": free, "total": total})


def amd_cards(**values: Any) -> str:
    """`amd-smi … --json` of one card."""
    return json.dumps([{"gpu": 0, **values}])


def topology(kind: str) -> str:
    """`nvidia-smi topo -m` of two cards."""
    return f"\tGPU0\tGPU1\nGPU0\t X \t{kind}\nGPU1\t{kind}\t X \n"


def rdma(port: Mapping[str, str], adapters: int = 1) -> dict[str, str]:
    """Adapters whose ports have some files."""
    found = {}
    for number in range(adapters):
        folder = f"/sys/class/infiniband/mlx5_{number}/ports/1"
        files = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet"}
        for name, value in (files | dict(port)).items():
            found[f"read:{folder}/{name}"] = value
    return found


GID = {"gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0001", "gid_attrs/types/3": "RoCE v2"}
CKPT = "checkpoint:/models/k3"
SOUND = {
    "format": "safetensors",
    "files": 96,
    "bytes": 1_560_936_091_448,
    "tensors": 497_220,
    "defects": [],
    "configs": ["config.json"],
    "auto_map": [],
    "bytes_to_unicode": [],
}


def checkpoint(**changes: Any) -> str:
    """What the reader of a checkpoint says."""
    return json.dumps(SOUND | changes)


def defect(problem: str) -> list[dict[str, str]]:
    """A defect of one file."""
    return [{"path": "model-00001-of-000096.safetensors", "problem": problem, "detail": "1 ≠ 2"}]


def said_failed(detail: str) -> Observation:
    """A probe that failed and said why."""
    return Observation(state=State.FAILED, detail=detail, exit_status=1)


def process(title: str, *, devices: tuple[str, ...] = (), state: str = "S") -> str:
    """A process that matters."""
    return json.dumps({"title": title, "state": state, "handles": "read", "devices": list(devices)})


# check, host, target, what is changed, case, severity
SPOILED: tuple[tuple[str, str, str, Mapping[str, Any], str, str], ...] = (
    # platform
    ("os.release", "amd", "none", {"read:/etc/os-release": "ID=nixos"}, "not_listed", "warn"),
    ("plat.wsl", "amd", "none", WSL, "wsl", "info"),
    ("plat.container", "amd", "none", {"stat:/.dockerenv": "{}"}, "container", "info"),
    (
        "plat.vm",
        "amd",
        "none",
        {"tool:systemd-detect-virt": "kvm", "read:/sys/devices/system/node/online": "0"},
        "flat",
        "warn",
    ),
    # AMD
    ("amd.pci", "nvidia", "amd", {}, "missing", "fail"),
    ("amd.module", "amd", "none", {"stat:/sys/module/amdgpu": ABSENT}, "absent", "fail"),
    ("amd.kfd_node", "amd", "none", {"stat:/dev/kfd": ABSENT}, "absent", "fail"),
    (
        "amd.kfd_open",
        "amd",
        "none",
        {"open:/dev/kfd": Observation(state=State.DENIED, detail="EACCES")},
        "eacces",
        "fail",
    ),
    (
        "amd.kfd_open",
        "amd",
        "none",
        {"open:/dev/kfd": Observation(state=State.DENIED, detail="EPERM")},
        "eperm",
        "fail",
    ),
    (
        "amd.kfd_open",
        "amd",
        "none",
        {"open:/dev/kfd": Observation(state=State.FAILED, detail="EINVAL")},
        "einval",
        "fail",
    ),
    (
        "amd.kfd_open",
        "amd",
        "none",
        {"open:/dev/kfd": Observation(state=State.FAILED, detail="ENOMEM")},
        "enomem",
        "fail",
    ),
    (
        "amd.kfd_open",
        "amd",
        "none",
        {"open:/dev/kfd": Observation(state=State.FAILED, detail="EIO")},
        "refused",
        "fail",
    ),
    ("amd.groups", "amd", "none", {"stat:/dev/kfd": device(0o660, 991)}, "missing", "fail"),
    (
        "amd.render_nodes",
        "amd",
        "none",
        {"glob:/dev/dri/renderD*": "/dev/dri/renderD128"},
        "fewer",
        "warn",
    ),
    (
        "amd.kfd_topology",
        "amd",
        "amd",
        {f"{NODE}/9/properties": "simd_count 0"},
        "fewer",
        "fail",
    ),
    (
        "amd.arch",
        "amd",
        "amd",
        {f"{NODE}/2/properties": "simd_count 1\ngfx_target_version 90402"},
        "other",
        "fail",
    ),
    ("amd.arch", "amd", "none", {}, "seen", "info"),
    ("amd.partition", "amd", "none", {f"{DRM}/current_compute_partition": "CPX"}, "split", "fail"),
    (
        "amd.vram",
        "amd",
        "amd",
        {f"{NODE}/2/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 38654705664"},
        "less",
        "fail",
    ),
    (
        "amd.vram",
        "amd",
        "none",
        {f"{NODE}/2/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 1000"},
        "unequal",
        "fail",
    ),
    ("amd.vram_free", "amd", "none", {f"{DRM}/mem_info_vram_used": "99999999999"}, "held", "fail"),
    (
        "amd.rocm_driver_pair",
        "amd",
        "none",
        {"read:/opt/rocm/.info/version": "7.0.2-56"},
        "old",
        "fail",
    ),
    ("amd.firmware", "amd", "none", {f"{DRM}/vbios_version": "113-OLD"}, "unequal", "warn"),
    (
        "amd.firmware",
        "amd",
        "none",
        {
            "tool:dpkg-query -W -f=${Version} linux-firmware": "20251125git1-0ubuntu1",
            f"{NODE}/2/properties": "simd_count 80\ngfx_target_version 110501",
        },
        "known_bad",
        "warn",
    ),
    ("amd.igpu", "amd", "none", {f"{DRM}/mem_info_vram_total": "536870912"}, "beside", "warn"),
    (
        "amd.hsa_override",
        "amd",
        "none",
        {"environ:": '{"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}'},
        "other",
        "fail",
    ),
    (
        "amd.hsa_override",
        "amd",
        "none",
        {"environ:": '{"HSA_OVERRIDE_GFX_VERSION": "9.5.0"}'},
        "same",
        "info",
    ),
    *(
        ("amd.dmesg", "amd", "none", {DMESG: f"[ 1.0] {line}"}, case, "fail")
        for line, case in (
            ("amdgpu 0000:10:00.0: Fatal error during GPU init", "amd_init_failed"),
            ("kfd kfd: amdgpu: TAHITI  not supported in kfd", "amd_unsupported"),
            ("amdgpu 0000:10:00.0: ring gfx timeout, signaled seq=1", "amd_ring_timeout"),
            ("[drm] VRAM is lost due to GPU reset!", "amd_vram_lost"),
            ("amdgpu: probe of 0000:10:00.0 failed with error -12", "amd_bar"),
            ("amdgpu 0000:10:00.0: uncorrectable hardware error detected", "hardware_error"),
            ("amdgpu 0000:10:00.0: device lost from bus!", "fallen_off_bus"),
        )
    ),
    (
        "amd.ras",
        "amd",
        "none",
        {"tool:amd-smi metric --json": amd_cards(ecc={"total_uncorrectable_count": 2})},
        "uncorrectable",
        "warn",
    ),
    (
        "amd.ras",
        "amd",
        "none",
        {"tool:amd-smi bad-pages --json": amd_cards(pending=[{"page_address": "0x1"}])},
        "pending",
        "warn",
    ),
    (
        "amd.smi_sane",
        "amd",
        "none",
        {
            "tool:amd-smi static --json": Observation(
                state=State.FAILED, detail="ERROR:root:Unable to detect any GPU devices, check"
            )
        },
        "no_driver",
        "fail",
    ),
    # NVIDIA
    ("nv.module", "nvidia", "none", {"stat:/dev/nvidiactl": ABSENT}, "absent", "fail"),
    ("nv.module", "nvidia", "none", {"stat:/dev/nvidia-uvm": ABSENT}, "uvm", "fail"),
    (
        "nv.smi",
        "nvidia",
        "none",
        {
            XML: Observation(
                state=State.FAILED,
                text="Failed to initialize NVML: Driver/library version mismatch\n",
            )
        },
        "mismatch",
        "fail",
    ),
    (
        "nv.smi",
        "nvidia",
        "none",
        {XML: Observation(state=State.FAILED, text="NVIDIA-SMI has failed\n")},
        "error",
        "fail",
    ),
    ("nv.smi", "nvidia", "nvidia", {XML: card(count=7)}, "fewer", "fail"),
    ("nv.driver_min", "nvidia", "none", {XML: card(driver="550.144.03")}, "old", "fail"),
    (
        "nv.compute_cap",
        "nvidia",
        "nvidia",
        {CSV: "index, compute_cap\n0, 8.0"},
        "other",
        "fail",
    ),
    (
        "nv.vram_free",
        "nvidia",
        "none",
        {XML: card(fb_memory_usage__total="71424 MiB")},
        "less",
        "fail",
    ),
    (
        "nv.vram_free",
        "nvidia",
        "none",
        {XML: card(fb_memory_usage__used="9000 MiB")},
        "held",
        "fail",
    ),
    ("nv.mig", "nvidia", "none", {XML: card(mig_mode__current_mig="Enabled")}, "cut", "fail"),
    (
        "nv.ecc",
        "nvidia",
        "none",
        {XML: card(remapped_rows__remapped_row_failure="Yes")},
        "failure",
        "fail",
    ),
    (
        "nv.ecc",
        "nvidia",
        "none",
        {XML: card(remapped_rows__remapped_row_pending="Yes")},
        "pending",
        "fail",
    ),
    (
        "nv.ecc",
        "nvidia",
        "none",
        {XML: card(ecc_errors__volatile="<dram_uncorrectable>2</dram_uncorrectable>")},
        "uncorrected",
        "fail",
    ),
    ("nv.ecc", "nvidia", "none", {XML: card(gpu_recovery_action="Reset")}, "recovery", "fail"),
    (
        "nv.xid",
        "nvidia",
        "none",
        {DMESG: "[ 1.0] NVRM: Xid (PCI:0000:10:00): 79, pid=1, GPU lost"},
        "grave",
        "fail",
    ),
    (
        "nv.xid",
        "nvidia",
        "none",
        {DMESG: "[ 1.0] NVRM: Xid (PCI:0000:10:00): 13, pid=1, Graphics"},
        "other",
        "info",
    ),
    (
        "nv.xid",
        "nvidia",
        "none",
        {DMESG: "[ 1.0] NVRM: The GPU 0000:10:00.0\n          NVRM: fallen off the bus and"},
        "lost",
        "fail",
    ),
    ("nv.fabric", "nvidia", "none", {XML: card(fabric__state="In Progress")}, "down", "fail"),
    (
        "nv.fabric",
        "nvidia",
        "none",
        {"tool:nv-fabricmanager --version": "Fabric Manager version is : 570.86.15"},
        "version",
        "fail",
    ),
    *(
        ("nv.cuinit", "nvidia", "none", {"engine:cuinit": probe(values)}, case, "fail")
        for values, case in (
            ({"library": None, "reason": "libcuda.so.1: cannot open"}, "library"),
            ({"library": "libcuda.so.1", "code": 100}, "code_100"),
            ({"library": "libcuda.so.1", "code": 802}, "code_802"),
            ({"library": "libcuda.so.1", "code": 803}, "code_803"),
            ({"library": "libcuda.so.1", "code": 999}, "code"),
        )
    ),
    ("nv.persistence", "nvidia", "none", {XML: card(persistence_mode="Disabled")}, "off", "info"),
    (
        "nv.throttle",
        "nvidia",
        "none",
        {XML: card(clocks_event_reasons__clocks_event_reason_hw_slowdown="Active")},
        "slow",
        "warn",
    ),
    (
        "nv.throttle",
        "nvidia",
        "none",
        {
            XML: card(
                gpu_power_readings__current_power_limit="500.00 W",
                gpu_power_readings__default_power_limit="700.00 W",
            )
        },
        "capped",
        "warn",
    ),
    (
        "nv.toolkit",
        "nvidia",
        "none",
        {"tool:docker info --format x": '{"Runtimes": {"runc": {}}}'},
        "absent",
        "fail",
    ),
    (
        "nv.toolkit",
        "nvidia",
        "none",
        {"tool:nvidia-ctk --version": "NVIDIA Container Toolkit CLI version 1.13.5"},
        "old",
        "fail",
    ),
    # WSL
    ("wsl.dxg", "amd", "none", WSL | {"stat:/dev/dxg": ABSENT}, "absent", "fail"),
    ("wsl.amd_no_kfd", "amd", "none", WSL, "no_runtime", "info"),
    (
        "wsl.amd_no_kfd",
        "amd",
        "none",
        WSL | {"tool:rocminfo": "WSL environment detected.\n"},
        "no_agent",
        "info",
    ),
    (
        "wsl.torch_runtime",
        "amd",
        "none",
        WSL
        | {"engine:torch": probe({"hsa_runtime": ["/venv/torch/lib/libhsa-runtime64.so.1.14"]})},
        "bundled",
        "fail",
    ),
    ("wsl.memory", "amd", "none", WSL, "given", "info"),
    (
        "win.amd_installer",
        "amd",
        "none",
        WSL | {"read:/mnt/c/Program Files/AMD/CIM/Log/Install.log": "x\nError 182 unsupported"},
        "error_182",
        "fail",
    ),
    (
        "win.amd_installer",
        "amd",
        "none",
        WSL | {"read:/mnt/c/Program Files/AMD/CIM/Log/Install.log": "Error 186"},
        "error_186",
        "fail",
    ),
    # topology
    ("bios.bar", "amd", "none", {f"{DRM}/mem_info_vis_vram_total": "268435456"}, "small", "warn"),
    (
        "bios.bar",
        "amd",
        "none",
        {DMESG: "[ 1.0] amdgpu: probe of 0000:10:00.0 failed with error -12"},
        "refused",
        "fail",
    ),
    ("bios.iommu", "amd", "none", {"read:/proc/cmdline": "quiet"}, "amd_no_pt", "warn"),
    (
        "bios.iommu",
        "nvidia",
        "none",
        {"read:/proc/cmdline": "", "tool:nvidia-smi topo -m": topology("PHB")},
        "nvidia_on",
        "warn",
    ),
    ("bios.acs", "nvidia", "none", {}, "linked", "info"),
    (
        "bios.acs",
        "nvidia",
        "none",
        {
            "tool:nvidia-smi topo -m": topology("PHB"),
            "tool:lspci -vvv": "00:01.1 PCI bridge: A\n\t\tACSCtl:\tSrcValid+ ReqRedir+",
        },
        "redirects",
        "warn",
    ),
    (
        "pci.link",
        "amd",
        "none",
        {"read:/sys/bus/pci/devices/0000:10:00.0/current_link_width": "8"},
        "narrow",
        "warn",
    ),
    (
        "pci.atomics",
        "amd",
        "none",
        {DMESG: "[ 1.0] kfd kfd: amdgpu: skipped device, PCI rejects atomics 730<0"},
        "refused",
        "fail",
    ),
    ("topo.links", "nvidia", "none", {"tool:nvidia-smi topo -m": topology("SYS")}, "pcie", "warn"),
    (
        "topo.links",
        "amd",
        "none",
        {
            f"{NODE}/2/io_links/0/properties": "type 2\nnode_to 3",
            f"{NODE}/3/io_links/0/properties": "",
        },
        "pcie",
        "warn",
    ),
    *(
        ("topo.p2p_test", "amd", "none", {"engine:all_reduce": probe(values)}, case, severity)
        for values, case, severity in (
            ({"devices": 2, "hung_s": 60}, "hung", "fail"),
            ({"devices": 2, "exit_codes": [1, -9]}, "died", "fail"),
            ({"devices": 2, "exact": False, "bus_gb_per_s": 9.0}, "wrong", "fail"),
            ({"devices": 2, "exact": True, "bus_gb_per_s": 1.5}, "slow", "warn"),
        )
    ),
    (
        "host.numa_balancing",
        "amd",
        "none",
        {"read:/proc/sys/kernel/numa_balancing": "1"},
        "on",
        "warn",
    ),
    ("host.numa_map", "amd", "none", {}, "bind", "info"),
    (
        "host.numa_map",
        "amd",
        "none",
        {"read:/sys/bus/pci/devices/0000:10:00.0/numa_node": "-1"},
        "not_told",
        "info",
    ),
    (
        "host.x2apic",
        "amd",
        "none",
        {"read:/sys/devices/system/cpu/online": "0-127"},
        "offline",
        "info",
    ),
    # host
    (
        "mem.host",
        "amd",
        "amd",
        {"read:/proc/meminfo": "MemTotal: 2000000000 kB\nMemAvailable: 1900000000 kB\n"},
        "below_advice",
        "info",
    ),
    (
        "mem.swap",
        "amd",
        "none",
        {"read:/proc/meminfo": "SwapTotal: 100 kB\nSwapFree: 10 kB\n"},
        "used",
        "info",
    ),
    (
        "mem.oom_history",
        "amd",
        "none",
        {DMESG: "[ 1.0] Out of memory: Killed process 1 (VLLM::EngineCor)"},
        "killed",
        "warn",
    ),
    (
        "mem.psi",
        "amd",
        "none",
        {"read:/proc/pressure/memory": "some avg10=9 avg60=40.0 avg300=9 total=1"},
        "waiting",
        "info",
    ),
    ("shm.size", "amd", "amd", {"space:/dev/shm": room(2**26, 2**26)}, "small", "fail"),
    ("shm.size", "amd", "none", {"space:/dev/shm": room(2**33, 2**33)}, "small", "warn"),
    ("shm.free", "amd", "none", {"space:/dev/shm": room(1, 2**36)}, "full", "warn"),
    ("shm.free", "amd", "none", {"glob:/dev/shm/nccl-*": NCCL_SEGMENT}, "stale", "warn"),
    (
        "lim.memlock",
        "amd",
        "none",
        {"read:/proc/self/limits": "Max locked memory         8192     8192     bytes"},
        "low",
        "warn",
    ),
    (
        "lim.memlock",
        "nvidia",
        "nvidia2",
        rdma({}) | {"read:/proc/self/limits": "Max locked memory         8192     8192     bytes"},
        "low",
        "fail",
    ),
    (
        "lim.memlock",
        "amd",
        "none",
        {"read:/proc/self/limits": "Max locked memory         8192     unlimited   bytes"},
        "soft",
        "warn",
    ),
    (
        "lim.nofile",
        "amd",
        "none",
        {"read:/proc/self/limits": "Max open files            1024     4096     files"},
        "low",
        "warn",
    ),
    (
        "lim.ports",
        "amd",
        "none",
        {"read:/proc/sys/net/ipv4/ip_local_port_range": "60000 60999"},
        "narrow",
        "warn",
    ),
    (
        "lim.ports",
        "amd",
        "none",
        {"read:/proc/sys/net/ipv4/ip_local_port_range": "60999 60999"},
        "used",
        "warn",
    ),
    (
        "port.api",
        "amd",
        "none",
        {"read:/proc/net/tcp": "  sl  local rem st\n   0: 00000000:1F40 00000000:0000 0A\n"},
        "taken",
        "fail",
    ),
    (
        "proc.leftover",
        "amd",
        "none",
        {"process:4242": process("VLLM::EngineCore", devices=("/dev/kfd",))},
        "holding",
        "fail",
    ),
    ("proc.leftover", "amd", "none", {"process:7": process("ollama")}, "running", "warn"),
    (
        "proc.leftover",
        "amd",
        "none",
        {"process:9": process("rocm-smi", devices=("/dev/kfd",), state="D")},
        "hung",
        "fail",
    ),
    (
        "disk.space",
        "amd",
        "amd",
        {"space:/root/.cache/huggingface": room(10**12, 10**13)},
        "short",
        "fail",
    ),
    *(
        (
            "disk.quota",
            "amd",
            "none",
            {"write:/models/k3": Observation(state=state, detail=detail)},
            case,
            severity,
        )
        for state, detail, case, severity in (
            (State.FAILED, "EDQUOT", "quota", "fail"),
            (State.FAILED, "ENOSPC", "full", "fail"),
            (State.FAILED, "EROFS", "read_only", "info"),
        )
    ),
    (
        "disk.type",
        "amd",
        "amd",
        {"speed:/models/k3/a.safetensors": '{"bytes": 100000000, "seconds": 1.0}'},
        "slow",
        "warn",
    ),
    (
        "disk.type",
        "amd",
        "none",
        {"speed:/models/k3/a.safetensors": '{"bytes": 100000000, "seconds": 1.0}'},
        "speed",
        "info",
    ),
    (
        "disk.type",
        "amd",
        "amd",
        {
            "speed:/models/k3/a.safetensors": '{"bytes": 9000000000, "seconds": 1.0}',
            "read:/proc/mdstat": "md0 : active raid1 b[1] a[0](F)\n      9 blocks [2/1] [_U]\n",
        },
        "degraded",
        "warn",
    ),
    (
        "disk.type",
        "amd",
        "amd",
        {
            "speed:/models/k3/a.safetensors": '{"bytes": 9000000000, "seconds": 1.0}',
            "read:/proc/self/mountinfo": "30 22 0:44 / /models rw - nfs4 server:/models rw",
        },
        "network",
        "info",
    ),
    (
        "docker.devices",
        "amd",
        "none",
        {"stat:/.dockerenv": "{}", "stat:/dev/dri": ABSENT},
        "missing",
        "fail",
    ),
    (
        "docker.devices",
        "amd",
        "none",
        {"stat:/.dockerenv": "{}", STATUS: "Uid:\t0\nSeccomp:\t2\n"},
        "seccomp",
        "warn",
    ),
    (
        "docker.numa_caps",
        "amd",
        "none",
        {"stat:/.dockerenv": "{}", STATUS: "CapEff:\t00000000a80425fb\n"},
        "lacking",
        "warn",
    ),
    (
        "docker.ipc",
        "amd",
        "amd",
        {"stat:/.dockerenv": "{}", "space:/dev/shm": room(2**26, 2**26)},
        "ipc",
        "warn",
    ),
    (
        "docker.ipc",
        "nvidia",
        "nvidia2",
        {
            "stat:/.dockerenv": "{}",
            "glob:/sys/class/net/*/operstate": "/sys/class/net/eth0/operstate",
        },
        "network",
        "warn",
    ),
    (
        "docker.cgroup",
        "nvidia",
        "none",
        {"tool:docker info --format x": '{"Runtimes": {}, "CgroupDriver": "systemd"}'},
        "systemd",
        "info",
    ),
    # network
    ("net.ifname", "nvidia", "nvidia2", {}, "not_set", "fail"),
    (
        "net.ifname",
        "nvidia",
        "nvidia2",
        {"environ:": '{"NCCL_SOCKET_IFNAME": "eno1"}'},
        "absent",
        "fail",
    ),
    ("net.ifname", "nvidia", "nvidia2", {"read:/proc/net/route": "Iface\n"}, "no_route", "fail"),
    (
        "net.ifname",
        "nvidia",
        "nvidia2",
        {"environ:": '{"NCCL_SOCKET_IFNAME": "ens1", "GLOO_SOCKET_IFNAME": "ens"}'},
        "differ",
        "fail",
    ),
    ("ib.ports", "nvidia", "none", rdma({"state": "1: DOWN"}), "all_down", "fail"),
    (
        "ib.ports",
        "nvidia",
        "none",
        rdma({}, 2) | {"read:/sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN"},
        "down",
        "fail",
    ),
    (
        "ib.ports",
        "nvidia",
        "none",
        rdma({"rate": "400 Gb/sec"}, 2)
        | {"read:/sys/class/infiniband/mlx5_1/ports/1/rate": "200 Gb/sec"},
        "unequal",
        "info",
    ),
    ("ib.counters", "nvidia", "none", rdma({"counters/link_downed": "3"}), "counted", "warn"),
    (
        "ib.gid",
        "nvidia",
        "none",
        rdma({"gids/0": "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"}),
        "none",
        "fail",
    ),
    (
        "ib.gid",
        "nvidia",
        "none",
        rdma(GID) | {"environ:": '{"NCCL_IB_GID_INDEX": "1"}'},
        "wrong",
        "fail",
    ),
    ("ib.rail", "nvidia", "none", rdma(GID, 2), "not_set", "warn"),
    (
        "ib.peermem",
        "nvidia",
        "none",
        rdma(GID) | {"read:/proc/modules": "x", OSRELEASE: "5.4.0-200-generic"},
        "absent",
        "warn",
    ),
    (
        "ib.peermem",
        "nvidia",
        "none",
        rdma(GID) | {DMESG: "[ 1.0] mlx5_core: mlx5dv_reg_dmabuf_mr failed with 524"},
        "dmabuf",
        "warn",
    ),
    *(
        (
            "ray.cluster",
            "nvidia",
            target,
            {"environ:": '{"RAY_ADDRESS": "10.0.0.9:6379"}', "tool:ray status": status},
            case,
            "fail",
        )
        for status, target, case in (
            (Observation(state=State.FAILED, detail="ConnectionError"), "none", "unreachable"),
            ("Usage:\n 0.0/64.0 CPU\n", "none", "no_gpu"),
            ("Usage:\n 0.0/4.0 GPU\n", "nvidia", "fewer"),
            ("Usage:\n 4.0/8.0 GPU\n", "nvidia", "used"),
        )
    ),
    # software
    (
        "py.torch_build",
        "amd",
        "none",
        {"engine:torch": probe({"version": "2.9.0+cu128", "cuda": "12.8", "hip": None})},
        "not_hip",
        "fail",
    ),
    (
        "py.torch_build",
        "nvidia",
        "none",
        {"engine:torch": probe({"version": "2.9.0+cpu", "cuda": None, "hip": None})},
        "not_cuda",
        "fail",
    ),
    (
        "py.torch_build",
        "nvidia",
        "none",
        {"engine:torch": probe({"version": "2.9.0", "cuda": "13.0", "available": False})},
        "no_device",
        "fail",
    ),
    (
        "py.torch_build",
        "nvidia",
        "nvidia",
        {"engine:torch": probe({"cuda": "13.0", "available": True, "devices": 1})},
        "fewer",
        "fail",
    ),
    (
        "py.engine_import",
        "nvidia",
        "none",
        {"engine:imports": probe({"modules": {"vllm._C": "undefined symbol: _ZN3c1"}})},
        "symbol",
        "fail",
    ),
    (
        "py.engine_import",
        "nvidia",
        "none",
        {"engine:imports": probe({"modules": {"sgl_kernel": "OSError: libnuma.so.1"}})},
        "import",
        "fail",
    ),
    (
        "py.engine_min",
        "amd",
        "amd",
        {"engine:versions": probe({"vllm": "0.26.0"})},
        "old",
        "fail",
    ),
    (
        "py.engine_min",
        "amd",
        "amd",
        {"engine:versions": probe({"vllm": "dev"})},
        "unnumbered",
        "fail",
    ),
    (
        "py.transformers",
        "amd",
        "none",
        {
            CKPT: checkpoint(bytes_to_unicode=["tokenization_kimi.py"]),
            "engine:versions": probe({"transformers": "5.0.0"}),
        },
        "moved",
        "fail",
    ),
    (
        "py.parsers",
        "amd",
        "amd",
        {"engine:parsers": probe({"tool": ["kimi_k2"], "reasoning": ["kimi_k2"]})},
        "unknown",
        "fail",
    ),
    (
        "jit.toolchain",
        "amd",
        "none",
        {"engine:toolchain": probe({"hipcc": "/x", "cxx": "/x", "ninja": None})},
        "missing",
        "warn",
    ),
    (
        "jit.toolchain",
        "amd",
        "none",
        {"engine:toolchain": probe({"writable": {"/root/.cache": False}})},
        "read_only",
        "warn",
    ),
    (
        "jit.stale_locks",
        "amd",
        "none",
        {f"glob:{LOCKS}": "/x/a.lock"},
        "stale",
        "fail",
    ),
    (
        "jit.stale_locks",
        "amd",
        "none",
        {
            f"glob:{LOCKS}": "/x/a.lock",
            "process:5": process("/usr/bin/ninja"),
        },
        "building",
        "info",
    ),
    (
        "env.required",
        "amd",
        "amd",
        {"environ:": '{"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}'},
        "other",
        "fail",
    ),
    ("env.required", "amd", "amd", {}, "to_set", "info"),
    ("env.forbidden", "amd", "none", {"environ:": '{"AITER_JIT_DIR": "/data"}'}, "set", "fail"),
    ("plan.heads", "amd", "amd", {}, "no_kernel", "warn"),
    (
        "ckpt.index",
        "amd",
        "none",
        {CKPT: checkpoint(defects=defect("file_missing"))},
        "defects",
        "fail",
    ),
    ("ckpt.index", "amd", "none", {CKPT: checkpoint(error="CKPT003")}, "unreadable", "fail"),
    ("ckpt.index", "amd", "amd", {CKPT: checkpoint(bytes=10**12)}, "fewer_bytes", "fail"),
    (
        "ckpt.header",
        "amd",
        "none",
        {CKPT: checkpoint(defects=defect("file_truncated"))},
        "defects",
        "fail",
    ),
    (
        "ckpt.lfs",
        "amd",
        "none",
        {CKPT: checkpoint(defects=defect("lfs_pointer"))},
        "pointers",
        "fail",
    ),
    (
        "ckpt.gguf",
        "amd",
        "none",
        {CKPT: checkpoint(format="gguf", split_count=7, present=6, architecture="kimi")},
        "missing",
        "fail",
    ),
    (
        "ckpt.gguf",
        "amd",
        "none",
        {CKPT: checkpoint(format="gguf", split_count=2, present=2, first_given=False)},
        "not_first",
        "fail",
    ),
    (
        "ckpt.gguf",
        "amd",
        "none",
        {CKPT: checkpoint(format="gguf", error="CKPT050")},
        "unreadable",
        "fail",
    ),
    (
        "ckpt.remote_code",
        "amd",
        "none",
        {CKPT: checkpoint(auto_map=["config.json"])},
        "asks",
        "info",
    ),
)


@pytest.mark.parametrize(
    ("check", "host", "target", "changes", "case", "severity"),
    SPOILED,
    ids=[f"{row[0]}-{row[4]}-{number}" for number, row in enumerate(SPOILED)],
)
def test_spoiled(  # noqa: PLR0917 - fixtures and parameters are given by name
    findings: Findings,
    check: str,
    host: str,
    target: str,
    changes: Mapping[str, Any],
    case: str,
    severity: str,
) -> None:
    """One spoiled thing makes its finding, with a text, and a remedy where one is due."""
    found = findings(host, changes, target)[check]
    assert (found.code, found.severity) == (f"doctor.{check}.{case}", Severity(severity))
    assert text(found.code, **found.params)
    if found.severity in (Severity.WARN, Severity.FAIL):
        assert found.fix is not None
    if found.fix is not None:
        assert text(found.fix, **found.params)


def test_every_check_is_spoiled_or_named() -> None:
    """Every check has a host here that does not pass it; the others have tests of their own."""
    own = {"plan.quant_block", "plan.experts", "ib.ibgda"}
    assert {row[0] for row in SPOILED} | own == set(CHECKS)


NO_LISTING = {
    "tool:amd-smi static --json": None,
    "tool:amd-smi metric --json": None,
    "tool:amd-smi bad-pages --json": None,
}
NO_DRM = {f"read:/sys/class/drm/card{number}/device/vendor": None for number in range(8)}
NO_KFD = {
    f"{NODE}/{number + 2}/{name}": None
    for number in range(8)
    for name in (
        "gpu_id",
        "properties",
        "mem_banks/0/properties",
        *(f"io_links/{place}/properties" for place in range(7)),
    )
}
NO_BANKS = {f"{NODE}/{number + 2}/mem_banks/0/properties": None for number in range(8)}
ROCM_SMI = {
    "tool:rocm-smi --showid --json": json.dumps(
        {
            f"card{number}": {
                "Card Series": "AMD Instinct MI355X",
                "VRAM Total Memory (B)": "309220868096",
                "VRAM Total Used Memory (B)": "1000",
                "VBIOS version": "113-A",
            }
            for number in range(8)
        }
    )
}
ALONE = f"{NODE}/2/properties"

# check, host, target, what is changed, the code of the finding: what is not seen, and what is seen
# by another way when the first one is closed
OTHERWISE: tuple[tuple[str, str, str, Mapping[str, Any], str], ...] = (
    ("amd.kfd_open", "amd", "none", {"open:/dev/kfd": HUNG}, "unknown.time_limit"),
    ("amd.arch", "amd", "none", NO_KFD, "unknown.absent"),
    (
        "amd.arch",
        "amd",
        "none",
        NO_KFD | {"tool:rocminfo": "*******\nAgent 1\n*******\n  Name: gfx950\n  Device Type: GPU"},
        "amd.arch.seen",
    ),
    (
        "amd.arch",
        "amd",
        "none",
        NO_KFD | {"tool:rocminfo": "ROCk module is loaded"},
        "unknown.no_card_listed",
    ),
    ("amd.partition", "amd", "none", NO_DRM, "ok"),
    ("amd.partition", "amd", "none", NO_DRM | NO_LISTING, "unknown.not_collected"),
    ("amd.partition", "amd", "none", NO_DRM | NO_LISTING | ROCM_SMI, "unknown.not_stated"),
    ("amd.vram", "amd", "amd", NO_BANKS, "ok"),
    ("amd.vram", "amd", "amd", NO_KFD | NO_DRM | NO_LISTING | ROCM_SMI, "ok"),
    ("amd.vram", "amd", "amd", NO_KFD | NO_DRM, "unknown.not_stated"),
    ("amd.vram", "amd", "amd", NO_KFD | NO_DRM | NO_LISTING, "unknown.no_card_listed"),
    ("amd.vram_free", "amd", "none", NO_DRM, "unknown.not_stated"),
    ("amd.igpu", "amd", "none", NO_DRM, "unknown.not_stated"),
    (
        "amd.igpu",
        "amd",
        "none",
        {
            f"{DRM}/mem_info_vram_total": "536870912",
            "environ:": '{"HIP_VISIBLE_DEVICES": "1,2,3,4,5,6,7"}',
        },
        "ok",
    ),
    ("amd.firmware", "amd", "none", NO_DRM | NO_LISTING | ROCM_SMI, "ok"),
    (
        "amd.firmware",
        "amd",
        "none",
        NO_DRM | {"tool:amd-smi static --json": amd_cards(a=1)},
        "unknown.not_stated",
    ),
    ("amd.ras", "amd", "none", NO_LISTING | ROCM_SMI, "unknown.not_stated"),
    ("amd.groups", "amd", "none", {STATUS: "Uid:\t0\nGroups:\t0\n"}, "ok"),
    ("amd.kfd_topology", "amd", "none", {ALONE: "simd_count 0"}, "amd.kfd_topology.fewer"),
    ("nv.mig", "nvidia", "none", {XML: card(count=0)}, "unknown.no_card_listed"),
    ("nv.smi", "nvidia", "none", {XML: card(count=0)}, "nv.smi.none"),
    ("nv.smi", "nvidia", "none", {XML: ABSENT}, "ok"),
    ("nv.smi", "nvidia", "none", {XML: HUNG, CSV: HUNG}, "unknown.time_limit"),
    ("nv.persistence", "nvidia", "none", {XML: card(count=0)}, "unknown.no_card_listed"),
    ("nv.throttle", "nvidia", "none", {XML: ABSENT}, "unknown.not_stated"),
    ("nv.ecc", "nvidia", "none", {XML: ABSENT}, "unknown.not_stated"),
    ("nv.driver_min", "nvidia", "none", {XML: ABSENT}, "unknown.not_stated"),
    ("nv.driver_min", "nvidia", "none", {"engine:torch": ABSENT}, "unknown.no_engine_python"),
    ("nv.driver_min", "nvidia", "nvidia", {"engine:torch": ABSENT}, "ok"),
    (
        "nv.driver_min",
        "nvidia",
        "none",
        {"engine:torch": probe({"cuda": "11.8", "available": True})},
        "unknown.no_rule",
    ),
    ("nv.compute_cap", "nvidia", "none", {CSV: None}, "unknown.not_collected"),
    ("nv.compute_cap", "nvidia", "none", {CSV: "index, name\n0, x"}, "unknown.not_stated"),
    (
        "nv.toolkit",
        "nvidia",
        "none",
        {"tool:docker info --format x": None},
        "unknown.not_collected",
    ),
    (
        "docker.cgroup",
        "nvidia",
        "none",
        {"tool:docker info --format x": "{}"},
        "unknown.not_stated",
    ),
    (
        "wsl.torch_runtime",
        "amd",
        "none",
        WSL | {"engine:torch": probe({"hip": "6.4"})},
        "wsl.torch_runtime.none",
    ),
    (
        "win.amd_installer",
        "amd",
        "none",
        WSL | {"read:/mnt/c/Program Files/AMD/CIM/Log/Install.log": "well"},
        "win.amd_installer.none",
    ),
    ("wsl.memory", "amd", "amd", WSL, "ok"),
    ("wsl.memory", "amd", "none", WSL | {"read:/proc/meminfo": "x"}, "unknown.not_stated"),
    (
        "bios.acs",
        "nvidia",
        "none",
        {
            "tool:nvidia-smi topo -m": topology("PHB"),
            "tool:lspci -vvv": "00:01.1 PCI bridge: A\n\tCapabilities: <access denied>",
        },
        "unknown.needs_root",
    ),
    (
        "bios.acs",
        "nvidia",
        "none",
        {
            "tool:nvidia-smi topo -m": topology("PHB"),
            "tool:lspci -vvv": "00:01.1 PCI bridge: A\n\t\tACSCtl:\tSrcValid- ReqRedir-",
        },
        "ok",
    ),
    ("bios.bar", "amd", "none", NO_DRM, "unknown.not_stated"),
    ("bios.iommu", "nvidia", "none", {"read:/proc/cmdline": "iommu=off"}, "ok"),
    ("bios.iommu", "amd", "none", {"glob:/sys/class/iommu/*": ""}, "bios.iommu.amd_off"),
    (
        "bios.iommu",
        "amd",
        "none",
        {"read:/proc/cmdline": "", "read:/sys/kernel/iommu_groups/1/type": "identity"},
        "ok",
    ),
    (
        "bios.iommu",
        "amd",
        "none",
        {"read:/proc/cmdline": "", "read:/sys/kernel/iommu_groups/1/type": "DMA-FQ"},
        "bios.iommu.amd_no_pt",
    ),
    (
        "bios.acs",
        "nvidia",
        "none",
        {
            "tool:nvidia-smi topo -m": topology("PHB"),
            "tool:lspci -vvv": (
                "00:01.1 PCI bridge: A\n\t\tACSCtl:\tSrcValid- ReqRedir-\n"
                "80:01.1 PCI bridge: B\n\t\tACSCtl:\tSrcValid+ ReqRedir+\n"
            ),
            "link:/sys/bus/pci/devices/0000:10:00.0": (
                "../../../devices/pci0000:00/0000:00:01.1/0000:10:00.0"
            ),
        },
        "ok",
    ),
    (
        "pci.link",
        "nvidia",
        "none",
        {
            f"read:/sys/bus/pci/devices/0000:{n + 16:02x}:00.0/current_link_width": None
            for n in range(8)
        },
        "unknown.not_stated",
    ),
    ("pci.atomics", "amd", "none", NO_KFD, "unknown.absent"),
    (
        "pci.atomics",
        "amd",
        "none",
        {f"{NODE}/{n + 2}/properties": "simd_count 0" for n in range(8)},
        "unknown.not_stated",
    ),
    (
        "topo.p2p_test",
        "amd",
        "none",
        {"engine:all_reduce": probe({"devices": 1})},
        "unknown.engine_sees_too_few",
    ),
    (
        "topo.p2p_test",
        "amd",
        "none",
        {"engine:all_reduce": "Segmentation fault"},
        "unknown.unreadable",
    ),
    (
        "topo.links",
        "amd",
        "none",
        {
            **{key: None for key in NO_KFD if "io_links" in key},
            "tool:amd-smi topology --json": json.dumps(
                [{"gpu": 0, "links": [{"gpu": 1, "link_type": "PCIE"}]}]
            ),
        },
        "topo.links.pcie",
    ),
    (
        "host.numa_balancing",
        "amd",
        "none",
        {
            "read:/proc/sys/kernel/numa_balancing": "1",
            "read:/sys/devices/system/node/online": "0",
        },
        "host.numa_balancing.one_node",
    ),
    (
        "host.numa_map",
        "amd",
        "none",
        {f"read:/sys/bus/pci/devices/0000:{n + 16:02x}:00.0/numa_node": None for n in range(8)},
        "unknown.not_stated",
    ),
    (
        "host.x2apic",
        "amd",
        "none",
        {
            "read:/sys/devices/system/cpu/online": "0-254",
            "read:/sys/devices/system/cpu/present": "0-254",
            "read:/proc/cmdline": "nox2apic",
        },
        "host.x2apic.edge",
    ),
    ("mem.host", "amd", "none", {"read:/proc/meminfo": "x"}, "unknown.not_stated"),
    ("mem.swap", "amd", "none", {"read:/proc/meminfo": "x"}, "unknown.not_stated"),
    ("mem.psi", "amd", "none", {"read:/proc/pressure/memory": "x"}, "unknown.unreadable"),
    ("lim.memlock", "amd", "none", {"read:/proc/self/limits": "x"}, "unknown.not_stated"),
    ("lim.nofile", "amd", "none", {"read:/proc/self/limits": "x"}, "unknown.not_stated"),
    (
        "lim.ports",
        "amd",
        "none",
        {"read:/proc/sys/net/ipv4/ip_local_port_range": "x"},
        "unknown.unreadable",
    ),
    (
        "disk.space",
        "amd",
        "none",
        {"space:/root/.cache/huggingface": None},
        "unknown.not_collected",
    ),
    ("disk.quota", "amd", "none", {"write:/m": said_failed("EIO")}, "unknown.failed"),
    ("disk.quota", "amd", "none", {"write:/m": "written"}, "ok"),
    (
        "disk.type",
        "amd",
        "none",
        {"speed:/m/a": '{"bytes": 0, "seconds": 0}'},
        "unknown.unreadable",
    ),
    ("disk.type", "amd", "amd", {"speed:/m/a": '{"bytes": 9000000000, "seconds": 1}'}, "ok"),
    ("docker.devices", "amd", "none", {"stat:/.dockerenv": "{}"}, "ok"),
    ("docker.numa_caps", "amd", "none", {"stat:/.dockerenv": "{}"}, "ok"),
    (
        "docker.numa_caps",
        "amd",
        "none",
        {"stat:/.dockerenv": "{}", STATUS: "Uid:\t0"},
        "unknown.not_stated",
    ),
    ("docker.ipc", "amd", "amd", {"stat:/.dockerenv": "{}"}, "ok"),
    (
        "net.ifname",
        "nvidia",
        "nvidia2",
        {"environ:": '{"NCCL_SOCKET_IFNAME": "=ens1", "GLOO_SOCKET_IFNAME": "=ens1"}'},
        "ok",
    ),
    ("net.ifname", "nvidia", "nvidia2", {"environ:": '{"NCCL_SOCKET_IFNAME": "^docker"}'}, "ok"),
    ("ib.ports", "nvidia", "none", rdma(GID, 2), "ok"),
    (
        "ib.ports",
        "nvidia",
        "none",
        {"glob:/sys/class/infiniband/*/ports/*/state": "/sys/class/infiniband/a/ports/1/state"},
        "unknown.denied",
    ),
    ("ib.counters", "nvidia", "none", rdma(GID), "unknown.not_stated"),
    ("ib.counters", "nvidia", "none", rdma({"counters/link_downed": "0"}), "ok"),
    ("ib.gid", "nvidia", "none", rdma({}), "unknown.not_stated"),
    ("ib.gid", "nvidia", "none", rdma(GID, 2), "ok"),
    (
        "ib.gid",
        "nvidia",
        "none",
        rdma(GID, 2)
        | {
            "read:/sys/class/infiniband/mlx5_1/ports/1/gids/5": GID["gids/3"],
            "read:/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/5": "RoCE v2",
            "environ:": '{"NCCL_IB_GID_INDEX": "3"}',
        },
        "ib.gid.unequal",
    ),
    ("ib.rail", "nvidia", "none", rdma(GID, 2) | {"environ:": '{"NCCL_CROSS_NIC": "0"}'}, "ok"),
    ("ib.peermem", "nvidia", "none", rdma(GID), "ok"),
    ("ib.peermem", "nvidia", "none", rdma(GID) | {"read:/proc/modules": "x", DMESG: DENIED}, "ok"),
    ("ray.cluster", "nvidia", "none", {"environ:": '{"RAY_ADDRESS": "auto"}'}, "unknown.absent"),
    (
        "ray.cluster",
        "nvidia",
        "nvidia",
        {"process:3": process("/opt/ray/raylet"), "tool:ray status": " 0.0/8.0 GPU"},
        "ok",
    ),
    (
        "py.torch_build",
        "amd",
        "none",
        {"engine:torch": probe({"missing": "torch"})},
        "unknown.package_missing",
    ),
    ("py.engine_import", "amd", "none", {"engine:imports": probe({})}, "unknown.no_engine_package"),
    (
        "py.engine_min",
        "amd",
        "amd",
        {"engine:versions": probe({"a": "1"})},
        "unknown.no_engine_package",
    ),
    ("py.engine_min", "amd", "launch", {"engine:versions": ABSENT}, "ok"),
    ("py.transformers", "amd", "none", {CKPT: checkpoint()}, "py.transformers.no_import"),
    (
        "py.transformers",
        "amd",
        "none",
        {CKPT: checkpoint(bytes_to_unicode=["a.py"]), "engine:versions": probe({})},
        "unknown.package_missing",
    ),
    ("py.transformers", "amd", "none", {CKPT: checkpoint(bytes_to_unicode=["a.py"])}, "ok"),
    ("py.parsers", "amd", "amd", {"engine:parsers": probe({})}, "unknown.not_stated"),
    (
        "jit.stale_locks",
        "amd",
        "none",
        {"engine:toolchain": probe({"locks": ["/venv/aiter/jit/build/lock_a"]})},
        "jit.stale_locks.stale",
    ),
    ("ckpt.index", "amd", "amd", {CKPT: checkpoint()}, "ok"),
    ("ckpt.remote_code", "amd", "none", {CKPT: checkpoint()}, "ckpt.remote_code.none"),
    ("ckpt.remote_code", "amd", "none", {CKPT: checkpoint(configs=[])}, "unknown.not_stated"),
    ("jit.stale_locks", "amd", "none", {"engine:toolchain": ABSENT}, "unknown.absent"),
    ("jit.stale_locks", "nvidia", "none", {"engine:toolchain": ABSENT}, "ok"),
    ("proc.leftover", "nvidia", "none", {"process:77": HUNG}, "unknown.time_limit"),
    ("nv.mig", "nvidia", "none", {XML: ABSENT}, "unknown.not_stated"),
    (
        "nv.mig",
        "nvidia",
        "none",
        {
            XML: "Driver Version : 470.1\nAttached GPUs : 1\nGPU 00000000:10:00.0\n"
            "    MIG Mode\n        Current : Enabled\n"
        },
        "nv.mig.cut",
    ),
    (
        "amd.partition",
        "amd",
        "none",
        NO_DRM
        | {
            "tool:amd-smi static --json": (
                "GPU: 0\n    PARTITION:\n        COMPUTE_PARTITION: CPX\n"
                "        MEMORY_PARTITION: NPS4\n"
            ),
            "tool:amd-smi metric --json": None,
        },
        "amd.partition.split",
    ),
    ("nv.module", "nvidia", "none", {"glob:/dev/nvidia[0-9]*": ""}, "nv.module.absent"),
    (
        "nv.fabric",
        "nvidia",
        "none",
        {"tool:nv-fabricmanager --version": "no number here"},
        "ok",
    ),
    ("plat.vm", "nvidia", "none", {"tool:systemd-detect-virt": "kvm"}, "ok"),
    (
        "wsl.amd_no_kfd",
        "amd",
        "none",
        WSL
        | {
            "tool:rocminfo": Observation(
                state=State.FAILED, text="hsa_init failed: no card", exit_status=1
            )
        },
        "wsl.amd_no_kfd.no_agent",
    ),
    ("nv.persistence", "nvidia", "none", {XML: ABSENT}, "unknown.not_stated"),
    ("ckpt.header", "amd", "none", {CKPT: checkpoint()}, "ok"),
    ("ckpt.header", "amd", "none", {CKPT: checkpoint(error="CKPT003")}, "unknown.unreadable"),
    ("ckpt.lfs", "amd", "none", {CKPT: checkpoint(error="CKPT003")}, "unknown.unreadable"),
    ("ckpt.gguf", "amd", "none", {CKPT: checkpoint(format="gguf", split_count=1, present=1)}, "ok"),
    ("ckpt.index", "amd", "none", {CKPT: HUNG}, "unknown.time_limit"),
    ("amd.dmesg", "amd", "none", {DMESG: said_failed("Operation not permitted")}, "unknown.denied"),
    (
        "amd.dmesg",
        "amd",
        "none",
        {
            DMESG: DENIED,
            "tool:journalctl -k -b -o short-iso --no-pager": Observation(
                state=State.OK, detail="No journal files were found."
            ),
        },
        "unknown.denied",
    ),
    (
        "amd.dmesg",
        "amd",
        "none",
        {DMESG: DENIED, "tool:journalctl -k -b -o short-iso --no-pager": "-- No entries --"},
        "ok",
    ),
)


@pytest.mark.parametrize(
    ("check", "host", "target", "changes", "code"),
    OTHERWISE,
    ids=[f"{row[0]}-{row[4]}-{number}" for number, row in enumerate(OTHERWISE)],
)
def test_otherwise(  # noqa: PLR0917 - as above
    findings: Findings,
    check: str,
    host: str,
    target: str,
    changes: Mapping[str, Any],
    code: str,
) -> None:
    """Where one way of seeing is closed another is taken; where none is left it is unknown."""
    found = findings(host, changes, target)[check]
    assert found.code == f"doctor.{code}"
    assert text(found.code, **found.params)


def test_why_a_runtime_saw_no_card_is_evidence(findings: Findings) -> None:
    """The tool's own words, where it had any; where it lists none and says nothing, none."""
    said = Observation(state=State.FAILED, text="hsa_init failed: no card", exit_status=1)
    for rocminfo, evidence in ((said, ("hsa_init failed: no card",)), ("WSL detected.\n", ())):
        found = findings("amd", WSL | {"tool:rocminfo": rocminfo}, "none")["wsl.amd_no_kfd"]
        assert found.evidence == evidence


@pytest.mark.parametrize(
    ("check", "host", "target", "changes", "reason"),
    [
        ("amd.groups", "amd", "none", {"stat:/dev/kfd": ABSENT}, "no_kfd"),
        ("nv.fabric", "nvidia", "none", {XML: card(fabric__state="N/A")}, "no_fabric"),
        ("nv.toolkit", "nvidia", "none", {"tool:docker info --format x": ABSENT}, "no_docker"),
        ("docker.cgroup", "nvidia", "none", {"tool:docker info --format x": ABSENT}, "no_docker"),
        (
            "host.numa_map",
            "amd",
            "none",
            {"read:/sys/devices/system/node/online": "0"},
            "one_numa_node",
        ),
        (
            "topo.links",
            "nvidia",
            "nvidia",
            {"tool:nvidia-smi topo -m": "\tGPU0\nGPU0\t X "},
            "one_gpu",
        ),
        (
            "topo.links",
            "amd",
            "amd",
            {f"{NODE}/{n + 3}/properties": "" for n in range(7)},
            "one_gpu",
        ),
        ("ib.gid", "nvidia", "none", rdma({"link_layer": "InfiniBand"}), "no_roce"),
        ("ib.rail", "nvidia", "none", rdma(GID), "one_rail"),
        ("ib.ibgda", "nvidia", "nvidia2", rdma(GID), "no_expert_parallel_over_rdma"),
        ("ckpt.index", "amd", "none", {CKPT: checkpoint(format="gguf")}, "gguf"),
        ("ckpt.gguf", "amd", "none", {CKPT: checkpoint()}, "safetensors"),
        ("nv.smi", "amd", "none", {}, "no_nvidia"),
        ("amd.module", "amd", "none", WSL, "not_native"),
        ("wsl.dxg", "amd", "none", {}, "not_wsl"),
        ("py.parsers", "nvidia", "nvidia", {}, "no_parser_named"),
    ],
)
def test_not_applicable(  # noqa: PLR0917 - as above
    snapshot: Take,
    targets: dict[str, Target],
    check_facts: Facts,
    check: str,
    host: str,
    target: str,
    changes: Mapping[str, Any],
    reason: str,
) -> None:
    """A check without a subject is left out, with the reason in words."""
    report = judge([snapshot(host, changes)], targets[target], check_facts)
    assert {skip.id: skip.reason for skip in report.skipped}[check] == reason
    assert text(f"doctor.skip.{reason}")


@pytest.mark.parametrize(
    ("host", "target"), [("amd", "none"), ("amd", "amd"), ("nvidia", "none"), ("nvidia", "nvidia")]
)
def test_well(findings: Findings, host: str, target: str) -> None:
    """A host that is well has no failure and nothing unknown; K3's twelve heads per rank remain."""
    found = findings(host, {}, target)
    left = {i: f.code for i, f in found.items() if f.severity not in (Severity.OK, Severity.INFO)}
    padded = {"plan.heads": "doctor.plan.heads.no_kernel"} if target == "amd" else {}
    assert left == padded


@pytest.mark.parametrize("host", ["amd", "nvidia"])
@pytest.mark.parametrize("lost", [ABSENT, DENIED, HUNG, FAILED, None])
def test_never_ok_without_an_observation(
    take_all: Callable[..., Snapshot],
    targets: dict[str, Target],
    check_facts: Facts,
    host: str,
    lost: Observation | None,
) -> None:
    """Where nothing could be observed nothing is ok: failed, unknown, or said to be nothing."""
    report = judge([take_all(host, lost)], targets[host], check_facts)
    arithmetic = {"plan.heads", "plan.quant_block", "plan.experts"}
    well = [
        finding.id
        for finding in report.findings
        if finding.severity is Severity.OK and finding.id not in arithmetic
    ]
    assert well == []


@pytest.fixture
def take_all(snapshot: Take) -> Callable[..., Snapshot]:
    """A host of which nothing was observed: every probe ended in the same way."""

    def take(host: str, ending: Observation | None) -> Snapshot:
        whole = snapshot(host)
        return replace(
            whole,
            observations={} if ending is None else dict.fromkeys(whole.observations, ending),
        )

    return take


@pytest.mark.parametrize(
    ("target", "check", "layout", "case"),
    [
        ("amd", "plan.experts", {"expert_parallel_size": 5}, "odd"),
        ("amd", "plan.heads", {"tensor_parallel_size": 7}, "odd"),
        ("amd", "plan.quant_block", {"tensor_parallel_size": 256}, "cut"),
        ("amd", "plan.quant_block", {"tensor_parallel_size": 7}, "cut"),
    ],
)
def test_plans_that_do_not_divide(  # noqa: PLR0917 - as above
    snapshot: Take,
    targets: dict[str, Target],
    check_facts: Facts,
    target: str,
    check: str,
    layout: dict[str, int],
    case: str,
) -> None:
    """A layout that cuts a head, an expert or a block fails (K3: 96, 896, and 3072 by 32)."""
    chosen = targets[target]
    assert chosen.plan is not None
    plan = replace(chosen.plan, layout=replace(chosen.plan.layout, **layout))
    report = judge([snapshot("amd")], replace(chosen, plan=plan), check_facts)
    found = {finding.id: finding for finding in report.findings}[check]
    assert (found.code, found.severity) == (f"doctor.{check}.{case}", Severity.FAIL)


def test_device_initiated_rdma(
    snapshot: Take, targets: dict[str, Target], check_facts: Facts
) -> None:
    """Experts spread over hosts need the driver option; without experts it is not asked for."""
    chosen = targets["nvidia2"]
    assert chosen.plan is not None
    spread = replace(chosen.plan, layout=replace(chosen.plan.layout, expert_parallel_size=16))
    params = {"read:/proc/driver/nvidia/params": 'RegistryDwords: ""'}
    host = snapshot("nvidia", rdma(GID) | params)
    report = judge([host], replace(chosen, plan=spread), check_facts)
    found = {finding.id: finding for finding in report.findings}["ib.ibgda"]
    assert found.code == "doctor.ib.ibgda.not_set"
    allowed = judge([snapshot("nvidia", rdma(GID))], replace(chosen, plan=spread), check_facts)
    assert {each.id: each.severity for each in allowed.findings}["ib.ibgda"] is Severity.OK
    assert text(found.code, **found.params)


def test_memory_of_wsl(snapshot: Take, targets: dict[str, Target], check_facts: Facts) -> None:
    """What Windows gives to WSL is held against what loading takes."""
    chosen = targets["amd"]
    assert chosen.plan is not None
    needs = replace(chosen.plan.host, host_ram_bytes=Interval(low=2**40, high=None))
    target = replace(chosen, plan=replace(chosen.plan, host=needs))
    host = snapshot("amd", WSL | {"read:/proc/meminfo": "MemTotal: 16777216 kB\n"})
    report = judge([host], target, check_facts)
    found = {finding.id: finding for finding in report.findings}["wsl.memory"]
    assert (found.code, found.observed) == ("doctor.wsl.memory.less", "16.00 GiB")


def test_a_dense_model(
    snapshot: Take, targets: dict[str, Target], check_facts: Facts, catalog: Catalog
) -> None:
    """A model without experts or blocks is not asked about them."""
    target = replace(targets["amd"], model=catalog.model("llama-3.1-8b"))
    report = judge([snapshot("amd")], target, check_facts)
    reasons = {skip.id: skip.reason for skip in report.skipped}
    assert reasons["plan.experts"] == "no_experts"
    assert reasons["plan.quant_block"] == "no_block_quantisation"


def test_a_host_without_cards(
    snapshot: Take, targets: dict[str, Target], check_facts: Facts
) -> None:
    """Where the bus has no card, checks of cards do not apply and torch is only told."""
    whole = snapshot("nvidia")
    kept = {
        key: value
        for key, value in whole.observations.items()
        if "nvidia" not in key and "/class" not in key
    }
    kept["stat:/dev/nvidiactl"] = ABSENT
    report = judge([replace(whole, observations=kept)], targets["none"], check_facts)
    found = {finding.id: finding.code for finding in report.findings}
    assert found["py.torch_build"] == "doctor.py.torch_build.no_gpu"
    assert {skip.id: skip.reason for skip in report.skipped}["bios.bar"] == "not_gpu"


def test_hosts_of_which_nothing_is_known(
    snapshot: Take, targets: dict[str, Target], check_facts: Facts
) -> None:
    """Two hosts that say nothing are neither equal nor different."""
    empty = [replace(snapshot("amd", name=name), observations={}) for name in ("a", "b")]
    report = judge(empty, targets["none"], check_facts)
    found = next(each for each in report.findings if each.id == ACROSS_HOSTS)
    assert found.code == "doctor.unknown.nothing_to_compare"


def test_memory_of_a_container(
    snapshot: Take, targets: dict[str, Target], check_facts: Facts
) -> None:
    """The container's share of memory counts where it is less than what is available."""
    chosen = targets["amd"]
    assert chosen.plan is not None
    needs = replace(chosen.plan.host, host_ram_bytes=Interval(low=2**36, high=None))
    target = replace(chosen, plan=replace(chosen.plan, host=needs))
    report = judge(
        [snapshot("amd", {"read:/sys/fs/cgroup/memory.max": str(2**34)})], target, check_facts
    )
    found = {finding.id: finding for finding in report.findings}["mem.host"]
    assert (found.code, found.severity) == ("doctor.mem.host.less", Severity.FAIL)
    assert (found.observed, found.expected) == ("16.00 GiB", "64.00 GiB")


def test_kv_dtype_that_is_refused(
    snapshot: Take, targets: dict[str, Target], check_facts: Facts
) -> None:
    """K3 refuses an fp8 KV cache on Hopper."""
    chosen = targets["nvidia"]
    assert chosen.plan is not None
    plan = replace(chosen.plan, kv_cache_dtype="fp8")
    report = judge([snapshot("nvidia")], replace(chosen, plan=plan), check_facts)
    found = {finding.id: finding for finding in report.findings}["env.forbidden"]
    assert (found.code, found.severity) == ("doctor.env.forbidden.kv_dtype", Severity.FAIL)


@pytest.mark.parametrize(
    ("changes", "check", "code", "severity"),
    [
        ({}, "env.required", "doctor.ok", Severity.OK),
        ({"env": {}}, "env.required", "doctor.env.required.unset", Severity.FAIL),
        ({}, "ckpt.remote_code", "doctor.ok", Severity.OK),
        (
            {"argv": ("trtllm-serve", "--trust_remote_code")},
            "ckpt.remote_code",
            "doctor.ok",
            Severity.OK,
        ),
        (
            {"argv": ("vllm", "serve")},
            "ckpt.remote_code",
            "doctor.ckpt.remote_code.not_allowed",
            Severity.FAIL,
        ),
        (
            {"revision": None},
            "ckpt.remote_code",
            "doctor.ckpt.remote_code.not_pinned",
            Severity.WARN,
        ),
        ({"port": 22}, "port.api", "doctor.port.api.taken", Severity.FAIL),
    ],
)
def test_launches(  # noqa: PLR0917 - as above
    snapshot: Take,
    targets: dict[str, Target],
    check_facts: Facts,
    changes: dict[str, Any],
    check: str,
    code: str,
    severity: Severity,
) -> None:
    """A launch is judged by its variables, flags, revision and ports."""
    chosen = targets["launch"]
    spec = chosen.spec
    assert spec is not None
    rank = spec.ranks[0]
    changed = RankSpec(
        rank=0,
        host=rank.host,
        argv=changes.get("argv", rank.argv),
        env=changes.get("env", rank.env),
        ports={"api": changes.get("port", 8000)},
    )
    launched: LaunchSpec = replace(
        spec, ranks=(changed,), model_revision=changes.get("revision", spec.model_revision)
    )
    host = snapshot("amd", {CKPT: checkpoint(auto_map=["config.json"])})
    report = judge([host], replace(chosen, spec=launched), check_facts)
    found = {finding.id: finding for finding in report.findings}[check]
    assert (found.code, found.severity) == (code, severity)


def test_hosts_that_differ(snapshot: Take, targets: dict[str, Target], check_facts: Facts) -> None:
    """Two hosts of different drivers fail; equal ones pass; the hosts are named."""
    one = snapshot("nvidia", name="node1")
    same = snapshot("nvidia", name="node2")
    other = snapshot("nvidia", {XML: card(driver="570.86.15")}, name="node2")

    def compared(second: Snapshot) -> Finding:
        report = judge([one, second], targets["none"], check_facts)
        return next(each for each in report.findings if each.id == ACROSS_HOSTS)

    assert compared(same).severity is Severity.OK
    found = compared(other)
    assert found.severity is Severity.FAIL
    assert "nvidia_driver: node1 580.95.05, node2 570.86.15" in found.evidence


def test_findings_of_each_host(
    snapshot: Take, targets: dict[str, Target], check_facts: Facts
) -> None:
    """With several hosts each has its own findings; the plan's arithmetic is judged once."""
    hosts = [snapshot("amd", name="node1"), snapshot("amd", {"stat:/dev/kfd": ABSENT}, "node2")]
    report = judge(hosts, targets["amd"], check_facts)
    by_host = {each.subject: each.severity for each in report.findings if each.id == "amd.kfd_node"}
    assert by_host == {"node1": Severity.OK, "node2": Severity.FAIL}
    assert [each.subject for each in report.findings if each.id == "plan.heads"] == ["*"]


def test_wsl_is_not_bare_metal(findings: Findings) -> None:
    """Under WSL an absent /dev/kfd is right, and the runtime's card counts."""
    found = findings("amd", WSL | {"stat:/dev/kfd": ABSENT, "tool:rocminfo": ROCMINFO_WSL})
    assert "amd.kfd_node" not in found
    assert found["wsl.amd_no_kfd"].severity is Severity.OK


def test_root_sees_what_others_do_not(findings: Findings) -> None:
    """Where handles of other users' processes are hidden, no leftover is seen and none excluded."""
    found = findings("amd", {"processes:": '{"seen": 400, "handles_denied": 12}'})
    assert found["proc.leftover"].code == "doctor.unknown.needs_root"


def test_a_bus_that_cannot_be_seen(findings: Findings) -> None:
    """Without a PCI bus to look at, which cards there are is unknown, not none."""
    hidden = {
        key: None
        for number in range(8)
        for name in ("vendor", "device", "class")
        for key in (f"read:/sys/bus/pci/devices/0000:{number + 16:02x}:00.0/{name}",)
    }
    gone = {
        "stat:/dev/nvidiactl": ABSENT,
        XML: ABSENT,
        CSV: ABSENT,
    }
    found = findings("nvidia", hidden | gone)
    assert found["nv.smi"].code == "doctor.unknown.no_pci"
    assert found["amd.kfd_node"].severity is Severity.UNKNOWN


@pytest.mark.parametrize("rubbish", ["", "{", "[]", "\x00\x1b[31m", '{"total": "x"}', "9" * 5000])
def test_rubbish_in_a_snapshot(
    snapshot: Take, targets: dict[str, Target], check_facts: Facts, rubbish: str
) -> None:
    """A snapshot is a foreign document: whatever its texts are, there are findings and no error."""
    whole = snapshot("nvidia", rdma(GID) | {CKPT: "x", "process:1": "x", "speed:/a": "x"})
    spoiled = replace(
        whole,
        observations=dict.fromkeys(whole.observations, Observation(state=State.OK, text=rubbish)),
    )
    report = judge([spoiled], targets["nvidia"], check_facts)
    for finding in report.findings:
        shown = text(finding.code, **finding.params)
        assert shown.isprintable()


@pytest.mark.parametrize("text_of_none", ["N/A", "[[[[", '{"a": 1}', "1.000,5", "kernel"])
def test_what_is_no_log_and_no_table_is_not_a_quiet_one(
    findings: Findings, text_of_none: str
) -> None:
    """A kernel log without a time in it, sockets without their heading: unknown, and not ok."""
    changes: dict[str, Any] = dict.fromkeys(
        (DMESG, "read:/proc/net/tcp", "read:/proc/net/tcp6"), text_of_none
    )
    changes["tool:journalctl -k -b -o short-iso --no-pager"] = ABSENT
    found = findings("nvidia", changes)
    for check in ("nv.xid", "mem.oom_history", "port.api"):
        assert found[check].severity is Severity.UNKNOWN, check


def test_a_kernel_without_ipv6(findings: Findings) -> None:
    """It has no table of such sockets, and nothing listens there."""
    found = findings("nvidia", {"read:/proc/net/tcp6": ABSENT})
    assert found["port.api"].severity is Severity.OK


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_spoiled_at_random(
    snapshot: Take, targets: dict[str, Target], check_facts: Facts, data: st.DataObject
) -> None:
    """Whatever a probe ended in or said, there are findings, and every one has its words."""
    host = data.draw(st.sampled_from(["amd", "nvidia"]))
    whole = snapshot(host, rdma(GID, 2) | {CKPT: checkpoint(), "process:5": process("ninja")})
    spoiled = dict(whole.observations)
    chosen = st.lists(st.sampled_from(sorted(spoiled)), min_size=1, max_size=12)
    for key in data.draw(chosen):
        said = whole.observations[key].text
        cut = data.draw(st.integers(0, len(said)))
        spoiled[key] = Observation(
            state=data.draw(st.sampled_from(State)),
            text=said[:cut] + data.draw(st.text(max_size=8)) + said[cut + 1 :],
            detail=data.draw(st.text(max_size=8)),
        )
    target = targets[data.draw(st.sampled_from(sorted(targets)))]
    report = judge([replace(whole, observations=spoiled)], target, check_facts)
    for finding in report.findings:
        assert text(finding.code, **finding.params).isprintable()
        assert finding.fix is None or text(finding.fix, **finding.params)
    assert all(text(f"doctor.skip.{skip.reason}") for skip in report.skipped)


def test_the_list_is_whole(catalog: Catalog, check_facts: Facts) -> None:
    """Every check has facts, texts and a source; none is listed that is not built."""
    listed = [check for checks in check_facts.values() for check in checks]
    assert len(listed) == len({check.id for check in listed}) == 94
    assert {check.id for check in listed} == {*CHECKS, ACROSS_HOSTS}
    for check in listed:
        assert text(f"doctor.check.{check.id}")
        assert catalog.source(check.source).title
        for case in check.case_fixes:
            assert f"doctor.fix.{check.id}.{case}" in keys()
    cases = {f"{check.id}.{case}" for check in listed for case in check.case_fixes}
    known = cases | {check.id for check in listed}
    written = {key.removeprefix("doctor.fix.") for key in keys() if key.startswith("doctor.fix.")}
    assert written <= known
