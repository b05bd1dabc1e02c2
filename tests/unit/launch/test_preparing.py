"""Commands before a start, and logs with an end."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.launch.keeper import remove_files, write_files
from heavylift.launch.log_bounds import bounded
from heavylift.launch.preparing import progress


def test_layers_of_an_image_are_counted_as_they_come() -> None:
    """Those that were there count as fetched; other lines count for nothing."""
    lines = [
        "1.0: Pulling from example/engine",
        "0123456789ab: Pulling fs layer",
        "ba9876543210: Already exists",
        "0123456789ab: Download complete",
        "cccccccccccc: Pulling fs layer",
    ]
    found = progress(lines)
    assert (found.done, found.total, found.unit) == (1, 3, "layers")
    assert progress([*lines, "0123456789ab: Pull complete"]).done == 2


def test_a_percentage_is_the_last_one_told() -> None:
    """Of a program that tells no layers; one that tells nothing has no progress."""
    assert (progress(["pulling 3%", "pulling  41%"]).done, progress(["hello"]).done) == (41, None)


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=30))
def test_a_bounded_log_keeps_its_start_and_never_three_parts_more(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[bytes]
) -> None:
    """Whatever is written: the first part is what came first, and the rest is bounded."""
    folder = tmp_path_factory.mktemp("log")
    log = folder / "a.log"
    for block in blocks:
        with log.open("ab") as file:
            file.write(block)
        bounded(log, 50)
    whole = b"".join(blocks)
    start = folder / "a.log.start"
    if start.exists():
        assert whole.startswith(start.read_bytes())
    assert log.stat().st_size <= 50
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 50 + 2 * 90


def test_files_for_an_engine_elsewhere_are_its_users_alone(tmp_path: Path) -> None:
    """Mode 600 in a folder of mode 700, by name and not by path; taken away at the end."""
    folder = tmp_path / "files"
    files = {"talk.jinja": "a", "../out": "b"}
    write_files(str(folder), files)
    assert sorted(path.name for path in folder.iterdir()) == ["out", "talk.jinja"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    remove_files(str(folder), files)
    assert not folder.exists()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        write_files(str(folder), files)
