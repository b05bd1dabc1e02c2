"""What the GPUs hold, from whichever tool printed it, and watching them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.telemetry.gpu_readings import readings
from heavylift.telemetry.gpu_watch import GpuWatch, tool_for

FIXTURES = Path(__file__).parent / "fixtures"
MIB = 2**20


@pytest.mark.parametrize(
    ("name", "used_bytes"),
    [
        ("nvidia_query.csv", 4 * MIB),
        ("nvidia_table.txt", None),
        ("amd_metric.json", 285 * MIB),
        ("amd_monitor.txt", 283 * MIB),
        ("rocm_smi_new.json", 299_089_920),
        ("nvidia_q.txt", None),
        ("rocm_smi.csv", None),
    ],
)
def test_every_tool_is_read(name: str, used_bytes: int | None) -> None:
    """Told apart by what they print, not by their name."""
    found = readings((FIXTURES / name).read_text("utf-8"), 2.5)
    assert found[0].gpu == 0
    assert found[0].at_s == 2.5
    assert found[0].memory_used_bytes is not None
    assert used_bytes in (None, found[0].memory_used_bytes)


def test_power_and_use_are_read_where_they_are_told() -> None:
    """Watts, and a share of the time; `[N/A]` is not told."""
    page = (
        "index, memory.used [MiB], memory.total [MiB], power.draw [W], utilization.gpu [%]\n"
        "0, 70000 MiB, 81559 MiB, 512.30 W, 97 %\n1, 69000 MiB, 81559 MiB, [N/A], [N/A]\n"
    )
    first, second = readings(page, 0.0)
    assert (first.power_w, first.use_ratio) == (512.3, 0.97)
    assert (second.power_w, second.use_ratio) == (None, None)
    assert second.memory_total_bytes == 81559 * MIB


def test_the_table_tells_power_and_use() -> None:
    """The fan's share at its beginning is no use of the GPU."""
    head = "| NVIDIA-SMI 590.48.01    Driver Version: 590.48.01    CUDA Version: 13.1     |\n"
    card = "|   0  NVIDIA H100 80GB HBM3    On  |   00000000:19:00.0 Off |          0 |\n"
    detail = "| 30%   41C    P0   112W / 700W |   6000MiB / 81559MiB |   87%   Default |\n"
    (gpu,) = readings(head + card + detail, 0.0)
    assert (gpu.power_w, gpu.power_limit_w, gpu.use_ratio) == (112.0, 700.0, 0.87)
    (cold,) = readings(head + card + detail.replace("112W", "N/A "), 0.0)
    assert (cold.power_w, cold.temperature_c) == (None, 41.0)


def test_what_is_no_such_output_is_an_error() -> None:
    """A driver's complaint, for one."""
    with pytest.raises(HeavyliftError, match="PRE101"):
        readings("NVIDIA-SMI has failed because it couldn't communicate with the driver", 0.0)


def test_only_this_machines_cards_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server elsewhere has cards elsewhere, unless a tool is named that sees them."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    here = tool_for("http://127.0.0.1:8000", None)
    assert here is not None
    assert here[0] == str(tool)
    assert tool_for("http://localhost:8000/v1", None) == here
    assert tool_for("http://rack-7:8000", None) is None
    assert tool_for("http://rack-7:8000", tool) == (str(tool),)


@pytest.mark.parametrize("script", ["exit 3", "echo nothing"])
def test_a_tool_that_fails_ends_the_watch_and_nothing_else(tmp_path: Path, script: str) -> None:
    """No points; no error either."""
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)

    async def watched() -> int:
        async with GpuWatch((str(tool),), period_s=0.01) as watch:
            await asyncio.sleep(0.1)
        return len(watch.points)

    assert asyncio.run(watched()) == 0
