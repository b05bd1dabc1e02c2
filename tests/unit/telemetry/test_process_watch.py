"""Memory of the processes behind a port of this machine."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from heavylift.telemetry.proc import own_memory_bytes, parse_listeners
from heavylift.telemetry.process_watch import (
    ProcessWatch,
    Serving,
    family,
    held_bytes,
    processor_s,
    serving,
)

MIB = 2**20
# Two lines of a real /proc/net/tcp: one listens on 8000, one is a connection to it.
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 7001 1
   1: 0100007F:1F40 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 7002 1
"""
STATUS = """\
Name:\tpython3
VmRSS:\t  900000 kB
RssAnon:\t  300000 kB
RssFile:\t  590000 kB
RssShmem:\t   10000 kB
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with an engine on port 8000, its worker, and a bystander."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(TCP)
    for pid, parent, name in ((40, 1, "python3"), (41, 40, "python3"), (50, 1, "sshd")):
        folder = tmp_path / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "status").write_text(STATUS)
        (folder / "stat").write_text(f"{pid} (a name) S {parent} {pid} {pid} 0")
    for pid in (40, 41):  # the worker inherited the socket
        (tmp_path / f"{pid}/fd/3").symlink_to("socket:[7001]")
    (tmp_path / "50/fd/3").symlink_to("socket:[9]")
    return tmp_path


def test_who_listens_is_found_by_its_socket(proc: Path) -> None:
    """The eldest of those that hold it; nobody on a port that nobody has."""
    assert parse_listeners(TCP) == {8000: (7001,)}
    assert serving(8000, proc) == Serving(pid=40, name="python3")
    assert serving(8001, proc) is None


def test_a_program_that_only_passes_on_is_not_the_engine(proc: Path) -> None:
    """A container's port is held by its forwarder, whose memory says nothing."""
    (proc / "40/comm").write_text("docker-proxy\n")
    assert serving(8000, proc) is None


def test_what_is_not_to_be_seen_is_not_guessed(proc: Path) -> None:
    """Another user's process, or one that ended meanwhile."""
    (proc / "40/comm").unlink()
    assert serving(8000, proc) is None
    for pid in (40, 41):
        (proc / f"{pid}/fd/3").unlink()
    assert serving(8000, proc) is None
    assert held_bytes(60, proc) is None


def test_memory_is_that_of_the_whole_family_without_mapped_files(proc: Path) -> None:
    """Weights that are mapped are the kernel's to drop."""
    assert own_memory_bytes(STATUS) == 310000 * 1024
    assert own_memory_bytes("Name:\tkthreadd\n") is None
    assert family(40, proc) == (40, 41)
    assert held_bytes(40, proc) == 2 * 310000 * 1024


def test_waits_for_a_processor_are_those_of_all_threads(proc: Path) -> None:
    """Nanoseconds run and waited; a kernel that does not count them gives none."""
    for pid, thread, counts in ((40, 40, "100 7 1"), (40, 42, "50 3 1"), (41, 41, "?")):
        task = proc / f"{pid}/task/{thread}"
        task.mkdir(parents=True)
        (task / "schedstat").write_text(counts)
    assert processor_s(40, proc) == pytest.approx((150e-9, 10e-9))
    assert processor_s(50, proc) == (0, 0)


def test_memory_that_a_process_takes_is_seen() -> None:
    """This very process, by a port of its own."""

    async def grown() -> tuple[ProcessWatch, bytearray]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            watch = ProcessWatch(server.getsockname()[1], 0.01)
            async with watch:
                await asyncio.sleep(0)
                before = len(watch.points)
                taken = bytearray(b"x" * (64 * MIB))
                while len(watch.points) < before + 3:  # noqa: ASYNC110 - a watch has no event
                    await asyncio.sleep(0.01)
        return watch, taken

    watch, taken = asyncio.run(grown())
    assert watch.serving is not None
    assert watch.serving.pid == os.getpid()
    assert watch.available_bytes is not None
    assert watch.points[-1][1] - watch.points[0][1] > len(taken) * 0.9
    assert watch.points[-1][0] > watch.points[0][0]
    assert all(0 <= share <= 1 for _, share in watch.waits)


def test_without_a_port_nothing_is_watched() -> None:
    """Another machine's server."""

    async def watched() -> ProcessWatch:
        async with ProcessWatch(None, 0.01) as watch:
            await asyncio.sleep(0)
        return watch

    watch = asyncio.run(watched())
    assert (watch.serving, watch.points) == (None, [])
