"""Parsers read what strangers' machines print: whatever it is, a record or a coded error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
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

FIXTURES = Path(__file__).resolve().parents[1] / "unit" / "telemetry" / "fixtures"

_TREE = """### /sys/class/kfd/kfd/topology/nodes/1/properties
simd_count 304
gfx_target_version 90402
### /sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties
heap_type 1
size_in_bytes 206141652992
### /sys/class/drm/card0/device/vendor
0x1002
### /sys/class/drm/card0/device/resource
0x7c00000000 0x7dffffffff 0x14220c
### /sys/bus/pci/devices/0000:1b:00.0/class
0x030200
### /sys/class/infiniband/mlx5_0/ports/1/gids/3
0000:0000:0000:0000:0000:ffff:0a00:0001
"""


def _trees(text: str) -> tuple[object, ...]:
    files = flattened(text)
    parsers: tuple[Callable[[dict[str, str]], Any], ...] = (
        kfd.parse_topology,
        kfd.parse_drm,
        pci.parse_sysfs,
        infiniband.parse_sysfs,
    )
    return tuple(parse(files) for parse in parsers)


PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "nvidia-smi -q": (nvidia_smi.parse_query, "nvidia_q.txt"),
    "nvidia-smi -q -x": (nvidia_smi.parse_query_xml, "nvidia_q.xml"),
    "nvidia-smi csv": (nvidia_smi.parse_query_csv, "nvidia_query.csv"),
    "nvidia-smi": (nvidia_smi.parse_table, "nvidia_table.txt"),
    "nvidia-smi -L": (nvidia_smi.parse_list, "nvidia_list.txt"),
    "nvidia-smi topo": (nvidia_links.parse_topology, "nvidia_topo.txt"),
    "nvidia-smi nvlink": (nvidia_links.parse_nvlink, "nvidia_nvlink.txt"),
    "nvidia-smi apps": (nvidia_smi.parse_compute_apps, "nvidia_apps.csv"),
    "nvidia-smi --version": (nvidia_smi.parse_version, "nvidia_version.txt"),
    "amd-smi static": (amd_smi.parse_text, "amd_static.txt"),
    "amd-smi static --json": (amd_smi.parse_json, "amd_static.json"),
    "amd-smi metric --json": (amd_smi.parse_json, "amd_metric.json"),
    "amd-smi process": (amd_smi.parse_processes, "amd_process.txt"),
    "amd-smi process --json": (amd_smi.parse_processes, "amd_process.json"),
    "amd-smi monitor": (amd_smi.parse_monitor, "amd_monitor.txt"),
    "amd-smi topology": (amd_smi.parse_topology, "amd_topology.json"),
    "amd-smi version": (amd_smi.parse_version, "amd_version.json"),
    "rocm-smi --json": (rocm_smi.parse_json, "rocm_smi_new.json"),
    "rocm-smi --csv": (rocm_smi.parse_csv, "rocm_smi.csv"),
    "rocm-smi": (rocm_smi.parse_text, "rocm_smi_all.txt"),
    "rocminfo": (rocminfo.parse_rocminfo, "rocminfo.txt"),
    "lspci -nn": (pci.parse_lspci_nn, "lspci_nn.txt"),
    "lspci -vvv": (pci.parse_lspci_vvv, "lspci_vvv.txt"),
    "dmesg": (parse_kernel_log, "dmesg.txt"),
    "ibv_devinfo": (infiniband.parse_devinfo, "ibv_devinfo.txt"),
    "meminfo": (proc.parse_meminfo, "meminfo.txt"),
    "limits": (proc.parse_limits, "limits.txt"),
    "mountinfo": (proc.parse_mountinfo, "mountinfo.txt"),
    "mounts": (proc.parse_mounts, "mountinfo.txt"),
    "mdstat": (proc.parse_mdstat, "mdstat.txt"),
    "findmnt": (proc.parse_findmnt, "findmnt.json"),
    "ls": (proc.parse_ls, "ls_devices.txt"),
    "docker info json": (proc.parse_docker_info, "docker_info.json"),
    "docker info": (proc.parse_docker_info, "docker_info.txt"),
    "pressure": (proc.parse_pressure, "meminfo.txt"),
    "status": (proc.parse_status, "meminfo.txt"),
    "groups": (proc.parse_groups, "meminfo.txt"),
    "listening": (proc.parse_listening, "meminfo.txt"),
    "collect_env": (engine_host.parse_collect_env, "collect_env.txt"),
    "ollama": (engine_host.parse_ollama_devices, "ollama.log"),
    "trees": (_trees, ""),
}

_FRAGMENTS = st.sampled_from(
    [
        *("", "\0", "\n", "\t", ":", "{", "}", "[", "]", ",", '"', "<", ">", "N/A", "-1"),
        *("GPU", "GPU[9]", "0x", "é", "\x1b[4m", "1e999", "NaN", "null", "[Unknown Error]"),
        *("9" * 400, " " * 300),
    ]
)


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """The text with a few pieces cut out, doubled, or replaced."""
    changed = text
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(changed)))
        length = draw(st.integers(0, 200))
        piece = draw(st.one_of(_FRAGMENTS, st.text(max_size=20), st.just(changed[start:][:length])))
        changed = changed[:start] + piece + changed[start + length * draw(st.integers(0, 1)) :]
    return changed


def outcome(parse: Callable[[str], Any], text: str) -> str:
    """`record`, or the code of the error; any other exception is the test's failure."""
    try:
        parse(text)
    except HeavyliftError as error:
        return error.code
    return "record"


@pytest.mark.parametrize("name", sorted(PARSERS))
@given(data=st.data())
def test_record_or_coded_error(name: str, data: st.DataObject) -> None:
    """A changed output gives a record or PRE101, never another exception."""
    parse, fixture = PARSERS[name]
    text = (FIXTURES / fixture).read_text("utf-8") if fixture else _TREE
    assert outcome(parse, data.draw(mutated(text))) in ("record", "PRE101")


@pytest.mark.parametrize("name", sorted(PARSERS))
@given(text=st.text(max_size=200))
def test_any_text(name: str, text: str) -> None:
    """Any text at all gives a record or PRE101."""
    assert outcome(PARSERS[name][0], text) in ("record", "PRE101")
