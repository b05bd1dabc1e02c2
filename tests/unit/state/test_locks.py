"""Locks that end with their holder."""

from __future__ import annotations

import os
from pathlib import Path

from heavylift.state import locks


def test_a_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    """Looking takes nothing; a second holder is refused."""
    path = tmp_path / "a" / "lock"
    assert locks.holder(path) is None
    with locks.hold(path, wait_s=0.0) as first:
        assert first
        assert locks.holder(path) == os.getpid()
        with locks.hold(path, wait_s=0.0) as second:
            assert not second
        assert locks.holder(path) == os.getpid()
    assert locks.holder(path) is None


def test_a_killed_holder_gives_it_back(tmp_path: Path) -> None:
    """The kernel does."""
    path = tmp_path / "lock"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with locks.hold(path, wait_s=0.0):
            os.write(writer, b"x")
            os.read(os.pipe()[0], 1)
        os._exit(0)
    os.read(reader, 1)
    assert locks.holder(path) == child
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert locks.holder(path) is None
