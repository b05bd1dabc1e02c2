"""Hosts of our own making: two that are well (AMD and NVIDIA), to be spoiled one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import CheckFacts
from heavylift.planning import Planning
from heavylift.preflight.checks.runner import judge
from heavylift.preflight.checks.view import Target
from heavylift.preflight.target import no_target, of_plan
from heavylift.records.finding import Finding
from heavylift.records.launch import LaunchSpec, RankSpec
from heavylift.records.plan import Plan, PlanRequest
from heavylift.records.snapshot import Observation, Snapshot, State

GROUPS = ("platform", "topology", "host", "network", "software")
Observations = dict[str, Observation]
Change = Observation | str | None


def said(text: str) -> Observation:
    """An observation that succeeded."""
    return Observation(state=State.OK, text=text)


def _file(mode: int = 0o660, gid: int = 109) -> Observation:
    return said(json.dumps({"type": "c", "mode": mode, "uid": 0, "gid": gid, "size": 0}))


ABSENT = Observation(state=State.ABSENT, detail="ENOENT")


def _host() -> Observations:
    """What is the same on both hosts: a large server with nothing running."""
    reads = {
        "/etc/group": "root:x:0:\nvideo:x:44:\nrender:x:109:\n",
        "/etc/os-release": 'ID=ubuntu\nID_LIKE=debian\nPRETTY_NAME="Ubuntu 24.04.2 LTS"\n',
        "/proc/1/cgroup": "0::/init.scope\n",
        "/proc/cmdline": "iommu=pt",
        "/proc/meminfo": (
            "MemTotal: 3170000000 kB\nMemAvailable: 3100000000 kB\n"
            "SwapTotal: 0 kB\nSwapFree: 0 kB\n"
        ),
        "/proc/modules": "nvidia_peermem 16384 0 - Live 0x0\n",
        "/proc/net/route": (
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n"
            "ens1\t00000000\t01\t0003\t0\t0\t0\t00000000\t0\n"
        ),
        "/proc/net/tcp": "  sl  local rem st\n   0: 00000000:0016 00000000:0000 0A\n",
        "/proc/net/tcp6": "  sl  local rem st\n",
        "/proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        "/proc/self/limits": (
            "Max open files            1048576              1048576              files\n"
            "Max locked memory         unlimited            unlimited            bytes\n"
        ),
        "/proc/self/mountinfo": "22 1 259:2 / / rw shared:1 - ext4 /dev/nvme0n1p2 rw\n",
        "/proc/self/status": (
            "Uid:\t1000\t1000\nGid:\t1000\nGroups:\t44 109\n"
            "CapEff:\t0000000000800000\nSeccomp:\t0\n"
        ),
        "/proc/sys/kernel/numa_balancing": "0\n",
        "/proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
        "/proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
        "/sys/class/dmi/id/sys_vendor": "Supermicro\n",
        "/sys/class/dmi/id/product_name": "AS-8126GS\n",
        "/sys/class/net/ens1/operstate": "up\n",
        "/sys/devices/system/cpu/online": "0-255\n",
        "/sys/devices/system/cpu/present": "0-255\n",
        "/sys/devices/system/node/online": "0-1\n",
    }
    found = {f"read:{path}": said(text) for path, text in reads.items()}
    for path in ("/.dockerenv", "/run/.containerenv", "/dev/dxg", "/sys/module/nvidia_peermem"):
        found[f"stat:{path}"] = ABSENT
    for pattern in (
        "/dev/shm/nccl-*",  # noqa: S108 - a name in a recording
        "/dev/shm/psm_*",  # noqa: S108 - a name in a recording
        "/dev/shm/sem.mp-*",  # noqa: S108 - a name in a recording
        "/tmp/aiter_configs/*.lock",  # noqa: S108 - a name in a recording
        "/sys/class/infiniband/*/ports/*/state",
        "/dev/dri/renderD*",
        "/dev/nvidia[0-9]*",
    ):
        found[f"glob:{pattern}"] = said("")
    found["glob:/sys/class/net/*/operstate"] = said("/sys/class/net/ens1/operstate")
    found["glob:/sys/class/iommu/*"] = said("/sys/class/iommu/ivhd0")
    found["space:/dev/shm"] = said(json.dumps({"total": 2**40, "free": 2**40}))
    found["space:/root/.cache/huggingface"] = said(
        json.dumps({"total": 8 * 10**12, "free": 5 * 10**12})
    )
    found["environ:"] = said("{}")
    found["processes:"] = said('{"seen": 400, "handles_denied": 0}')
    found["tool:dmesg --time-format=iso"] = said("2026-03-02T10:00:00+00:00 amdgpu: all is well")
    found["tool:systemd-detect-virt"] = Observation(
        state=State.FAILED, text="none\n", exit_status=1
    )
    found["tool:ray status"] = ABSENT
    return found | _engine()


def _probe(values: Mapping[str, Any]) -> Observation:
    return said(f"noise of an import\nHEAVYLIFT_PROBE {json.dumps(values)}\n")


def _engine() -> Observations:
    return {
        "engine:imports": _probe({"modules": {"vllm._C": None}}),
        "engine:versions": _probe({"python": "3.12.3", "vllm": "0.29.0", "transformers": "4.57.1"}),
        "engine:parsers": _probe({"tool": ["kimi_k3"], "reasoning": ["kimi_k3"]}),
        "engine:toolchain": _probe(
            {
                "nvcc": "/usr/local/cuda/bin/nvcc",
                "hipcc": "/opt/rocm/bin/hipcc",
                "ninja": "/usr/bin/ninja",
                "cxx": "/usr/bin/g++",
                "writable": {"/root/.cache": True},
                "locks": [],
            }
        ),
        "engine:all_reduce": _probe({"devices": 2, "exact": True, "bus_gb_per_s": 310.5}),
        "engine:gemm": _probe({"devices": 8}),
    }


def _pci(vendor: str, device: str, code: str) -> Observations:
    found = {}
    for number in range(8):
        folder = f"/sys/bus/pci/devices/0000:{number + 16:02x}:00.0"
        for name, value in (
            ("vendor", vendor),
            ("device", device),
            ("class", code),
            ("current_link_width", "16"),
            ("max_link_width", "16"),
            ("current_link_speed", "2.5 GT/s PCIe"),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("numa_node", str(number // 4)),
        ):
            found[f"read:{folder}/{name}"] = said(value)
    return found


def amd_host() -> Observations:
    """Eight MI355X, whole, idle, on bare metal."""
    memory = 309_220_868_096
    found = _host() | _pci("0x1002", "0x75a3", "0x120000")
    found |= {
        "stat:/dev/kfd": _file(),
        "open:/dev/kfd": said("opened"),
        "stat:/dev/dri": said("{}"),
        "stat:/sys/module/amdgpu": said("{}"),
        "stat:/dev/nvidiactl": ABSENT,
        "stat:/dev/nvidia-uvm": ABSENT,
        "read:/sys/module/amdgpu/version": said("6.14.14\n"),
        "read:/opt/rocm/.info/version": said("7.2.2-12\n"),
        "glob:/dev/dri/renderD*": said("\n".join(f"/dev/dri/renderD{128 + n}" for n in range(8))),
        "engine:torch": _probe(
            {"version": "2.9.0", "hip": "7.2", "cuda": None, "available": True, "devices": 8}
        ),
        "engine:cuinit": _probe({"library": None, "reason": "no such file"}),
        "tool:nvidia-smi -q -x": ABSENT,
        "tool:rocminfo": ABSENT,
        "tool:amd-smi static --json": said(
            json.dumps(
                [
                    {
                        "gpu": number,
                        "asic": {"market_name": "AMD Instinct MI355X"},
                        "vbios": {"version": "00156150"},
                        "partition": {"compute_partition": "SPX", "memory_partition": "NPS1"},
                    }
                    for number in range(8)
                ]
            )
        ),
        "tool:amd-smi metric --json": said(
            json.dumps(
                [{"gpu": number, "ecc": {"total_uncorrectable_count": 0}} for number in range(8)]
            )
        ),
    }
    for number in range(8):
        found[f"stat:/dev/dri/renderD{128 + number}"] = _file()
        card = f"/sys/class/drm/card{number}/device"
        for name, value in (
            ("vendor", "0x1002"),
            ("mem_info_vram_total", str(memory)),
            ("mem_info_vis_vram_total", str(memory)),
            ("mem_info_vram_used", "298844160"),
            ("vbios_version", "113-M3550101-102"),
            ("current_compute_partition", "SPX"),
            ("current_memory_partition", "NPS1"),
        ):
            found[f"read:{card}/{name}"] = said(value)
        node = f"/sys/class/kfd/kfd/topology/nodes/{number + 2}"
        found[f"read:{node}/gpu_id"] = said(str(4000 + number))
        found[f"read:{node}/properties"] = said(
            f"simd_count 1024\ngfx_target_version 90500\ndrm_render_minor {128 + number}\n"
            f"location_id {(16 + number) * 256}\ndomain 0\nnum_xcc 8\n"
        )
        found[f"read:{node}/mem_banks/0/properties"] = said(
            f"heap_type 1\nsize_in_bytes {memory}\n"
        )
        for place, other in enumerate(each for each in range(8) if each != number):
            found[f"read:{node}/io_links/{place}/properties"] = said(
                f"type 11\nnode_to {other + 2}\nweight 15\n"
            )
    return found


def nvidia_gpu(number: int, **changes: str) -> str:
    """One card of `nvidia-smi -q -x`; `changes` replace values by tag."""
    values = {
        "product_name": "NVIDIA H200",
        "persistence_mode": "Enabled",
        "uuid": f"GPU-{number}",
        "vbios_version": "96.00.B0.00.02",
        "gpu_recovery_action": "None",
    } | {key: value for key, value in changes.items() if "__" not in key}
    nested = {
        "mig_mode__current_mig": "Disabled",
        "pci__pci_bus_id": f"00000000:{number + 16:02X}:00.0",
        "fb_memory_usage__total": "143771 MiB",
        "fb_memory_usage__used": "4 MiB",
        "bar1_memory_usage__total": "262144 MiB",
        "ecc_errors__volatile": "<dram_uncorrectable>0</dram_uncorrectable>",
        "remapped_rows__remapped_row_pending": "No",
        "remapped_rows__remapped_row_failure": "No",
        "clocks_event_reasons__clocks_event_reason_hw_slowdown": "Not Active",
        "gpu_power_readings__current_power_limit": "700.00 W",
        "gpu_power_readings__default_power_limit": "700.00 W",
        "fabric__state": "Completed",
        "fabric__status": "Success",
    } | {key: value for key, value in changes.items() if "__" in key}
    groups: dict[str, str] = {}
    for key, value in nested.items():
        group, _, tag = key.partition("__")
        groups[group] = groups.get(group, "") + f"<{tag}>{value}</{tag}>"
    body = "".join(f"<{tag}>{value}</{tag}>" for tag, value in (values | groups).items())
    return f'<gpu id="{number}">{body}</gpu>'


def nvidia_xml(*gpus: str, driver: str = "580.95.05") -> Observation:
    """`nvidia-smi -q -x` over cards."""
    return said(
        f"<nvidia_smi_log><driver_version>{driver}</driver_version>"
        f"<cuda_version>13.0</cuda_version>{''.join(gpus)}</nvidia_smi_log>"
    )


def nvidia_topo(kind: str) -> Observation:
    """`nvidia-smi topo -m` of eight cards that are all joined in one way."""
    head = "\t" + "\t".join(f"GPU{number}" for number in range(8)) + "\tCPU Affinity"
    rows = [
        f"GPU{row}\t" + "\t".join(" X " if row == column else kind for column in range(8)) + "\t0-9"
        for row in range(8)
    ]
    return said("\n".join([head, *rows]))


def nvidia_host() -> Observations:
    """Eight H200, whole, idle, on bare metal."""
    found = _host() | _pci("0x10de", "0x2335", "0x030200")
    found |= {
        "stat:/dev/kfd": ABSENT,
        "stat:/dev/nvidiactl": _file(0o666),
        "stat:/dev/nvidia-uvm": _file(0o666),
        "glob:/dev/nvidia[0-9]*": said("\n".join(f"/dev/nvidia{n}" for n in range(8))),
        "read:/proc/driver/nvidia/version": said("NVRM version: NVIDIA UNIX 580.95.05\nGCC"),
        "read:/proc/driver/nvidia/params": said('RegistryDwords: "PeerMappingOverride=1;"\n'),
        "tool:nvidia-smi -q -x": nvidia_xml(*map(nvidia_gpu, range(8))),
        "tool:nvidia-smi --query-gpu=index,compute_cap --format=csv": said(
            "index, compute_cap\n" + "\n".join(f"{n}, 9.0" for n in range(8))
        ),
        "tool:nvidia-smi topo -m": nvidia_topo("NV18"),
        "tool:nv-fabricmanager --version": said("Fabric Manager version is : 580.95.05\n"),
        "tool:docker info --format x": said(
            '{"Runtimes": {"nvidia": {}, "runc": {}}, "CgroupDriver": "cgroupfs"}'
        ),
        "tool:nvidia-ctk --version": said("NVIDIA Container Toolkit CLI version 1.17.8\n"),
        "tool:rocminfo": ABSENT,
        "engine:cuinit": _probe({"library": "libcuda.so.1", "code": 0, "devices": 8}),
        "engine:torch": _probe(
            {"version": "2.9.0", "hip": None, "cuda": "13.0", "available": True, "devices": 8}
        ),
    }
    return found


def rdma(kind: str = "Ethernet", state: str = "4: ACTIVE", ports: int = 2) -> Observations:
    """Adapters with routable addresses at index 3."""
    found: Observations = {}
    paths = []
    for number in range(ports):
        port = f"/sys/class/infiniband/mlx5_{number}/ports/1"
        paths.append(f"{port}/state")
        for name, value in (
            ("state", state),
            ("phys_state", "5: LinkUp"),
            ("rate", "400 Gb/sec (4X NDR)"),
            ("link_layer", kind),
            ("counters/link_downed", "0"),
            ("counters/port_rcv_errors", "0"),
            ("gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
            ("gid_attrs/types/3", "RoCE v2"),
        ):
            found[f"read:{port}/{name}"] = said(value)
    found["glob:/sys/class/infiniband/*/ports/*/state"] = said("\n".join(paths))
    return found


# --- judging -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The facts of the package."""
    return Catalog()


@pytest.fixture(scope="session")
def check_facts(catalog: Catalog) -> dict[str, tuple[CheckFacts, ...]]:
    """The checks by group."""
    return {group: catalog.checks(group) for group in GROUPS}


def _plan(rack_text: str, engine: str, **wishes: Any) -> Plan:
    planning = Planning()
    _, rack = planning.rack(rack_text)
    assert rack is not None
    request = PlanRequest(model="kimi-k3", rack=rack, engine=engine, **wishes)
    return planning.plan(request, planning.knowledge("kimi-k3"), with_fixes=False)


@pytest.fixture(scope="session")
def targets(catalog: Catalog) -> dict[str, Target]:
    """What hosts are judged against: nothing, and plans of one and two hosts."""
    amd = of_plan(_plan("8xMI355X", "vllm"), catalog)
    return {
        "none": no_target(catalog),
        "amd": amd,
        "nvidia": of_plan(_plan("8xH200", "vllm"), catalog),
        "nvidia2": of_plan(_plan("2x8xH200", "vllm"), catalog),
        "launch": replace(amd, spec=launch()),
    }


def launch(**changes: Any) -> LaunchSpec:
    """A launch of one rank."""
    rank = RankSpec(
        rank=0,
        host="127.0.0.1",
        argv=("vllm", "serve", "--trust-remote-code", "--tool-call-parser", "kimi_k3"),
        env={
            "VLLM_ROCM_USE_AITER": "1",
            "SAFETENSORS_FAST_GPU": "1",
            "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4": "1",
            "AITER_BF16_FP8_MOE_BOUND": "0",
            "VLLM_USE_BREAKABLE_CUDAGRAPH": "0",
        },
        ports={"api": 8000},
    )
    return LaunchSpec(
        **{
            "engine": "vllm",
            "engine_version": "0.29.0",
            "image_digest": None,
            "model": "kimi-k3",
            "model_revision": "abc123",
            "ranks": (rank,),
            "expected_phases": (),
            "deadline_s": 3600,
            "plan_digest": "sha256:0",
            **changes,
        }
    )


HOSTS: dict[str, Callable[[], Observations]] = {"amd": amd_host, "nvidia": nvidia_host}


@pytest.fixture
def snapshot() -> Callable[..., Snapshot]:
    """A host with some observations changed: text = what was said, None = not observed at all."""

    def take(
        host: str, changes: Mapping[str, Change] | None = None, name: str = "node1"
    ) -> Snapshot:
        observations = HOSTS[host]()
        for key, change in (changes or {}).items():
            if change is None:
                observations.pop(key, None)
            else:
                observations[key] = said(change) if isinstance(change, str) else change
        return Snapshot(
            host=name,
            taken_at="2026-03-02T10:00:00+00:00",
            heavylift_version="0",
            observations=observations,
        )

    return take


@pytest.fixture
def findings(
    snapshot: Callable[..., Snapshot],
    targets: dict[str, Target],
    check_facts: dict[str, tuple[CheckFacts, ...]],
) -> Callable[..., dict[str, Finding]]:
    """Findings by check id of a changed host against a target."""

    def find(
        host: str, changes: Mapping[str, Change] | None = None, target: str = "none"
    ) -> dict[str, Finding]:
        report = judge([snapshot(host, changes)], targets[target], check_facts)
        return {finding.id: finding for finding in report.findings}

    return find
