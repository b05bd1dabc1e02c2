"""Asking for the GPUs of a machine: NVML, the makers' tools, the kernel; what fails is passed over.

No machine here has a GPU: tools are scripts that print what the real ones print, the library is one
of the same functions, the kernel's files lie in a folder.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from heavylift.errors import HeavyliftError
from heavylift.records.watch import Sight
from heavylift.telemetry import collect_gpus, nvml
from heavylift.telemetry.gpu_readings import GpuReading, with_spill
from heavylift.telemetry.kfd import DrmCard

FIXTURES = Path(__file__).parent / "fixtures"
MIB = 2**20
NVIDIA = (
    "index, name, memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W], "
    "utilization.gpu [%], temperature.gpu\n"
    "0, NVIDIA H200, 130000 MiB, 143771 MiB, 512.30 W, 700.00 W, 97 %, 61\n"
    "1, NVIDIA H200, 129000 MiB, 143771 MiB, [N/A], 700.00 W, [N/A], 60\n"
)
# Newer releases put the cards under `gpu_data` and number what was drawn at the socket.
AMD_7 = """{"gpu_data": [{"gpu": 0, "usage": {"gfx_activity": {"value": 88, "unit": "%"}},
 "power": {"socket_power": {"value": 912, "unit": "W"}},
 "temperature": {"edge": "N/A", "hotspot": {"value": 63, "unit": "C"}},
 "mem_usage": {"total_vram": {"value": 294896, "unit": "MB"},
  "used_vram": {"value": 219340, "unit": "MB"},
  "total_gtt": {"value": 773700, "unit": "MB"}, "used_gtt": {"value": 14, "unit": "MB"}}}]}"""
AMD_6 = """[{"gpu": 0, "usage": {"gfx_activity": {"value": 88, "unit": "%"}},
 "power": {"average_socket_power": {"value": 140, "unit": "W"}},
 "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"},
  "used_vram": {"value": 285, "unit": "MB"}}}]"""
ROCM_MI300X = """{"card0": {"Temperature (Sensor edge) (C)": "N/A",
 "Temperature (Sensor junction) (C)": "41.0", "Temperature (Sensor memory) (C)": "33.0",
 "Current Socket Graphics Package Power (W)": "139.0", "GPU use (%)": "0",
 "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "299089920",
 "GTT Total Memory (B)": "811748818944", "GTT Total Used Memory (B)": "15413248"}}"""


def tool(folder: Path, name: str, says: str, status: int = 0) -> Path:
    """A program of that name."""
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without NVML whose programs are those in the folder, and `cat`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return folder


def card(root: Path, number: int, **files: str) -> None:
    """A card's files, as amdgpu has them."""
    device = root / f"card{number}" / "device"
    (device / "hwmon" / "hwmon3").mkdir(parents=True)
    plain = {
        "vendor": "0x1002",
        "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:{number:02x}:00.0",
        "gpu_busy_percent": "4",
        "mem_info_vram_total": "8573157376",
        "mem_info_vram_used": "1490378752",
        "mem_info_gtt_total": "8573157376",
        "mem_info_gtt_used": "144560128",
        **files,
    }
    for name, content in plain.items():
        (device / name).write_text(content + "\n")
    (device / "hwmon" / "hwmon3" / "temp1_input").write_text("47000\n")
    (device / "hwmon" / "hwmon3" / "power1_average").write_text("95000000\n")


def test_a_machine_without_gpus_is_unknown_not_empty(bare: Path, tmp_path: Path) -> None:
    """No library, no tool, no files: it says that there is no tool."""
    assert bare.is_dir()
    seen = collect_gpus.look(drm=tmp_path / "drm")
    assert (seen.sight, seen.source, seen.gpus) == (Sight.NO_TOOL, None, ())


@pytest.mark.parametrize(
    ("name", "says", "first"),
    [
        (
            "nvidia-smi",
            NVIDIA,
            GpuReading(
                at_s=1.0,
                gpu=0,
                name="NVIDIA H200",
                memory_used_bytes=130_000 * MIB,
                memory_total_bytes=143_771 * MIB,
                power_w=512.3,
                power_limit_w=700.0,
                use_ratio=0.97,
                temperature_c=61.0,
            ),
        ),
        (
            "amd-smi",
            AMD_7,
            GpuReading(
                at_s=1.0,
                gpu=0,
                memory_used_bytes=219_340 * MIB,
                memory_total_bytes=294_896 * MIB,
                power_w=912.0,
                use_ratio=0.88,
                temperature_c=63.0,
                gtt_used_bytes=14 * MIB,
                gtt_total_bytes=773_700 * MIB,
            ),
        ),
        (
            "amd-smi",
            AMD_6,
            GpuReading(
                at_s=1.0,
                gpu=0,
                memory_used_bytes=285 * MIB,
                memory_total_bytes=196_592 * MIB,
                power_w=140.0,
                use_ratio=0.88,
            ),
        ),
        (
            "rocm-smi",
            ROCM_MI300X,
            GpuReading(
                at_s=1.0,
                gpu=0,
                memory_used_bytes=299_089_920,
                memory_total_bytes=206_141_652_992,
                power_w=139.0,
                use_ratio=0.0,
                temperature_c=41.0,
                gtt_used_bytes=15_413_248,
                gtt_total_bytes=811_748_818_944,
            ),
        ),
    ],
)
def test_each_tool_tells_all_it_knows(
    bare: Path, tmp_path: Path, name: str, says: str, first: GpuReading
) -> None:
    """Names of the same figure differ by tool and release; what a tool does not tell is None."""
    tool(bare, name, says)
    seen = collect_gpus.look(1.0, drm=tmp_path / "drm")
    assert (seen.sight, seen.source) == (Sight.SEEN, name)
    assert seen.gpus[0] == first


def test_a_tool_that_fails_gives_way_to_the_next(bare: Path, tmp_path: Path) -> None:
    """A driver's complaint and a failed program are no answer; with nothing else, that is said."""
    tool(bare, "nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate", 9)
    assert collect_gpus.look(drm=tmp_path / "drm").sight is Sight.TOOL_FAILED
    tool(bare, "rocm-smi", ROCM_MI300X)
    assert collect_gpus.look(drm=tmp_path / "drm").source == "rocm-smi"


def test_a_tool_that_hangs_is_given_up_on(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended, and nobody waits for it."""
    (bare / "sleep").symlink_to("/bin/sleep")
    path = tool(bare, "nvidia-smi", "")
    path.write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(collect_gpus, "ANSWER_S", 0.2)
    assert collect_gpus.look(drm=tmp_path / "drm").sight is Sight.TOOL_FAILED


def test_the_kernel_tells_of_amd_cards_without_any_tool(bare: Path, tmp_path: Path) -> None:
    """Thousandths of a degree, millionths of a watt; connectors of a card are no further cards."""
    assert bare.is_dir()
    drm = tmp_path / "drm"
    card(drm, 1)
    card(drm, 0, mem_info_gtt_used="7000000000")
    (drm / "card0-DP-1").mkdir()
    (drm / "card0-DP-1" / "device").symlink_to(drm / "card0" / "device")
    seen = collect_gpus.look(drm=drm)
    assert (seen.source, len(seen.gpus)) == ("sysfs", 2)
    first = seen.gpus[0]
    assert (first.temperature_c, first.power_w, first.use_ratio) == (47.0, 95.0, 0.04)
    assert (first.memory_used_bytes, first.gtt_used_bytes) == (1_490_378_752, 7_000_000_000)
    assert seen.gtt_used_bytes == 7_000_000_000 + 144_560_128


def test_the_kernels_spill_joins_a_tools_cards_only_where_they_are_the_same() -> None:
    """By their place on the bus, if number and sizes agree."""
    reading = GpuReading(at_s=0.0, gpu=0, memory_used_bytes=1, memory_total_bytes=64 * MIB)

    def drm(total: int, bus: str) -> DrmCard:
        nothing: dict[str, Any] = dict.fromkeys(
            (
                "vendor_id",
                "device_id",
                "visible_vram_bytes",
                "largest_bar_bytes",
                "numa_node",
                "vbios",
                "unique_id",
                "compute_partition",
                "memory_partition",
            )
        )
        return DrmCard(
            card="card0",
            bus_id=bus,
            vram_total_bytes=total,
            vram_used_bytes=0,
            gtt_used_bytes=5,
            **nothing,
        )

    (joined,) = with_spill([reading], [drm(64 * MIB + 4096, "0000:01:00.0")])
    assert joined.gtt_used_bytes == 5
    assert with_spill([reading], [drm(32 * MIB, "0000:01:00.0")]) == (reading,)
    both = [drm(64 * MIB, "0000:02:00.0"), drm(64 * MIB, "0000:01:00.0")]
    assert with_spill([reading], both) == (reading,)


def test_another_machine_is_asked_by_its_own_tools(bare: Path, tmp_path: Path) -> None:
    """Through the command that reaches it: what it has not is passed over."""
    tool(bare, "amd-smi", AMD_7)
    reach = tmp_path / "ssh"
    reach.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    reach.chmod(0o755)
    seen = collect_gpus.look_through((str(reach), "rack-7"), 0.0)
    assert (seen.source, len(seen.gpus)) == ("amd-smi", 1)
    (bare / "amd-smi").unlink()
    assert collect_gpus.look_through((str(reach), "rack-7")).sight is Sight.TOOL_FAILED


def test_idle_is_zero_on_every_card_and_unknown_where_one_does_not_tell(
    bare: Path, tmp_path: Path
) -> None:
    """None where nothing tells."""
    drm = tmp_path / "drm"
    assert collect_gpus.are_idle(drm) is None
    tool(bare, "nvidia-smi", NVIDIA)
    assert collect_gpus.are_idle(drm) is None
    tool(bare, "nvidia-smi", NVIDIA.replace("97 %", "0 %").replace("[N/A], 60", "0 %, 60"))
    assert collect_gpus.are_idle(drm) is True
    card(drm, 0)
    assert collect_gpus.are_idle(drm) is False


class _Library(types.ModuleType):
    """Functions of NVML by its own names, over one card; `lacks` are those it does not support."""

    class NVMLError(Exception):
        """What the library raises."""

    nvmlMemory_v2 = 2  # noqa: N815 - the library's name
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *lacks: str) -> None:
        super().__init__("pynvml")
        self.lacks = lacks
        self.open = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("nvmlDevice") and name in super().__getattribute__("lacks"):

            def refused(*_: Any, **__: Any) -> Any:
                raise _Library.NVMLError("Not Supported")

            return refused
        return found

    def nvmlInit(self) -> None:  # noqa: N802 - the library's name
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, _device: int) -> bytes:  # noqa: N802
        return b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, _device: int, version: int | None = None) -> Any:  # noqa: N802
        # The first version counts what the driver keeps for itself.
        used = 130_000 * MIB if version == 2 else 130_600 * MIB
        return types.SimpleNamespace(used=used, total=143_771 * MIB)

    def nvmlDeviceGetPowerUsage(self, _device: int) -> int:  # noqa: N802
        return 512_300

    def nvmlDeviceGetEnforcedPowerLimit(self, _device: int) -> int:  # noqa: N802
        return 700_000

    def nvmlDeviceGetUtilizationRates(self, _device: int) -> Any:  # noqa: N802
        return types.SimpleNamespace(gpu=97, memory=40)

    def nvmlDeviceGetTemperature(self, _device: int, _sensor: int) -> int:  # noqa: N802
        return 61


def test_nvml_tells_what_the_tool_tells(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked first, for the memory without the driver's own, and closed again."""
    tool(bare, "nvidia-smi", NVIDIA)
    of_tool = collect_gpus.look(drm=tmp_path / "drm").gpus[0]
    library = _Library()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    seen = collect_gpus.look(drm=tmp_path / "drm")
    assert (seen.source, seen.gpus) == ("nvml", (of_tool,))
    assert library.open == 0


def test_what_a_card_does_not_support_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of a card tells no use and no power."""
    library = _Library("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage")
    monkeypatch.setitem(sys.modules, "pynvml", library)
    (gpu,) = nvml.read(0.0)
    assert (gpu.use_ratio, gpu.power_w, gpu.temperature_c) == (None, None, 61.0)


def test_the_real_package_without_a_driver_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is there and the driver's library is not: as if there were none."""
    real = pytest.importorskip("pynvml")

    def no_library() -> None:
        raise real.NVMLError_LibraryNotFound

    monkeypatch.setattr(real, "nvmlInit", no_library)
    assert nvml.is_here() is False
    with pytest.raises(HeavyliftError, match="PRE101"):
        nvml.read(0.0)
