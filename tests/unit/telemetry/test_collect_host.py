"""The machine that heavylift runs on."""

from __future__ import annotations

from pathlib import Path

from heavylift.telemetry import collect_host

MEMINFO = """\
MemTotal:       65536000 kB
MemFree:         1000000 kB
MemAvailable:   32768000 kB
SwapTotal:       8388604 kB
SwapFree:        8288604 kB
"""


def test_memory_and_swap_are_the_kernels(tmp_path: Path) -> None:
    """Available is not free; swap in use is what is not free of it."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO)
    host = collect_host.look(meminfo=meminfo, gtt_used_bytes=7)
    assert host.memory_total_bytes == 65_536_000 * 1024
    assert host.memory_available_bytes == 32_768_000 * 1024
    assert host.swap_used_bytes == 100_000 * 1024
    assert host.gtt_used_bytes == 7


def test_what_the_kernel_does_not_tell_is_unknown(tmp_path: Path) -> None:
    """A file that is not there."""
    host = collect_host.look(meminfo=tmp_path / "none")
    assert (host.memory_total_bytes, host.swap_used_bytes) == (None, None)


def test_each_file_system_is_told_once_also_of_a_folder_yet_to_come(tmp_path: Path) -> None:
    """Two folders on one disk are one line."""
    host = collect_host.look((tmp_path, tmp_path / "not" / "yet"))
    assert len(host.disks) == len({disk.path for disk in host.disks}) <= 2
    assert all(0 <= disk.free_bytes <= disk.total_bytes for disk in host.disks)
