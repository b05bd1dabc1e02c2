"""Where a snapshot looks: files, trees, names and programs, none of which changes a thing. Pure."""

from __future__ import annotations

import re
from typing import Final

from heavylift.preflight.checks.windows import INSTALL_LOG

FILES: Final = (
    INSTALL_LOG,
    "/etc/group",
    "/etc/os-release",
    "/opt/rocm/.info/version",
    "/proc/1/cgroup",
    "/proc/cmdline",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/version",
    "/proc/mdstat",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/net/route",
    "/proc/net/tcp",
    "/proc/net/tcp6",
    "/proc/pressure/memory",
    "/proc/self/cgroup",
    "/proc/self/limits",
    "/proc/self/mountinfo",
    "/proc/self/status",
    "/proc/sys/fs/file-nr",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/vm/swappiness",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/present",
    "/sys/devices/system/node/online",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/module/amdgpu/version",
    "/sys/module/nvidia/version",
)
"""Files that are read."""

PRESENT: Final = (
    "/.dockerenv",
    "/dev/dri",
    "/dev/dxg",
    "/dev/kfd",
    "/dev/nvidia-uvm",
    "/dev/nvidiactl",
    "/run/.containerenv",
    "/sys/module/amdgpu",
    "/sys/module/nvidia",
    "/sys/module/nvidia_peermem",
)
"""Paths of which only the presence counts."""

TREES: Final = (
    "/sys/bus/pci/devices/*/vendor",
    "/sys/bus/pci/devices/*/device",
    "/sys/bus/pci/devices/*/class",
    "/sys/class/drm/card*/device/vendor",
    "/sys/class/infiniband/*/fw_ver",
    "/sys/class/infiniband/*/board_id",
    "/sys/class/infiniband/*/ports/*/state",
    "/sys/class/infiniband/*/ports/*/phys_state",
    "/sys/class/infiniband/*/ports/*/rate",
    "/sys/class/infiniband/*/ports/*/link_layer",
    "/sys/class/infiniband/*/ports/*/counters/link_downed",
    "/sys/class/infiniband/*/ports/*/counters/symbol_error",
    "/sys/class/infiniband/*/ports/*/counters/port_rcv_errors",
    "/sys/class/infiniband/*/ports/*/hw_counters/out_of_sequence",
    "/sys/class/infiniband/*/ports/*/gids/[0-9]",
    "/sys/class/infiniband/*/ports/*/gid_attrs/types/[0-9]",
    "/sys/class/kfd/kfd/topology/nodes/*/gpu_id",
    "/sys/class/kfd/kfd/topology/nodes/*/properties",
    "/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties",
    "/sys/class/kfd/kfd/topology/nodes/*/mem_banks/*/properties",
    "/sys/class/net/*/operstate",
    "/sys/kernel/iommu_groups/*/type",
)
"""Trees whose files are read one by one. The names alone are an observation too."""

NAMES: Final = (
    "/dev/dri/renderD*",
    "/dev/nvidia[0-9]*",
    "/dev/shm/nccl-*",  # noqa: S108 - only looked for
    "/dev/shm/psm_*",  # noqa: S108 - only looked for
    "/dev/shm/sem.mp-*",  # noqa: S108 - only looked for
    "/sys/class/iommu/*",
    "/tmp/aiter_configs/*.lock",  # noqa: S108 - only looked for
)
"""Names that are looked for; nothing is written there."""

DRM_FILES: Final = (
    "current_compute_partition",
    "current_memory_partition",
    "device",
    "mem_info_vis_vram_total",
    "mem_info_vram_total",
    "mem_info_vram_used",
    "numa_node",
    "resource",
    "unique_id",
    "vbios_version",
)
"""Files of a card as the kernel shows it."""

PCI_FILES: Final = (
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "numa_node",
    "resource",
)
"""Files of a device of interest on the bus."""

KERNEL_WORDS: Final = re.compile(
    r"^(?:(?:amd_|intel_)?iommu|amdgpu\.|nvidia|nouveau|pci|numa|hugepage|default_hugepage"
    r"|transparent_hugepage|cgroup|systemd\.unified|x2apic|nox2apic|nr_cpus|maxcpus"
    r"|modprobe\.blacklist|mem=|mitigations)"
)
"""Kernel options that are kept; others are nobody's business."""

_GPU_QUERY: Final = (
    "index,name,uuid,pci.bus_id,driver_version,compute_cap,memory.total,memory.used,"
    "mig.mode.current,persistence_mode,ecc.errors.uncorrected.volatile.total,"
    "pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max"
)
_DOCKER_FIELDS: Final = (
    "Runtimes",
    "DefaultRuntime",
    "CgroupDriver",
    "DockerRootDir",
    "CDISpecDirs",
    "ServerVersion",
)
# Fields of `docker info` by name: the whole document has proxies, with passwords in them.
_DOCKER_FORMAT: Final = (
    "{" + ",".join(f'"{name}":{{{{json .{name}}}}}' for name in _DOCKER_FIELDS) + "}"
)
TOOLS: Final[tuple[tuple[tuple[str, ...], ...], ...]] = (
    (
        ("nvidia-smi", "-q", "-x"),
        ("nvidia-smi", f"--query-gpu={_GPU_QUERY}", "--format=csv"),
        ("nvidia-smi", "topo", "-m"),
        ("nvidia-smi", "nvlink", "-s"),
    ),
    (
        ("amd-smi", "static", "--json"),
        ("amd-smi", "metric", "--json"),
        ("amd-smi", "process", "--json"),
        ("amd-smi", "topology", "--json"),
        ("amd-smi", "bad-pages", "--json"),
        ("amd-smi", "version", "--json"),
    ),
    (
        (
            "rocm-smi",
            "--showid",
            "--showproductname",
            "--showmeminfo",
            "vram",
            "--showbus",
            "--showvbios",
            "--showdriverversion",
            "--json",
        ),
        ("rocminfo",),
    ),
    (("lspci", "-nn"), ("lspci", "-vvv")),
    (("dmesg", "--time-format=iso"), ("journalctl", "-k", "-b", "-o", "short-iso", "--no-pager")),
    (
        ("docker", "info", "--format", _DOCKER_FORMAT),
        ("nvidia-ctk", "--version"),
    ),
    (("ibv_devinfo",),),
    (("systemd-detect-virt",), ("systemctl", "is-active", "nvidia-fabricmanager")),
    (
        ("dpkg-query", "-W", "-f=${Version}", "linux-firmware"),
        ("rpm", "-q", "linux-firmware"),
    ),
    (("nv-fabricmanager", "--version"), ("ray", "status"), ("quota", "-w", "-p")),
)
"""Programs of one list are run one after the other: what hangs one hangs its sisters too."""

ENGINE_STEPS: Final = {
    "torch": 60.0,
    "imports": 120.0,
    "versions": 30.0,
    "parsers": 120.0,
    "toolchain": 30.0,
    "cuinit": 30.0,
    "gemm": 120.0,
    "all_reduce": 90.0,
}
"""Steps of the engine probe and the seconds each may take."""
