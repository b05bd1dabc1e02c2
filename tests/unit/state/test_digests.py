"""Accepted licences, read where nothing may be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.state.digests import DigestStore, accepted_at


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that takes no files, also for a test that runs as root."""
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)


def test_asking_makes_no_database(tmp_path: Path) -> None:
    """Nothing was accepted where there is no file, and there is none afterwards."""
    path = tmp_path / "state" / "digests.db"
    assert accepted_at(("some-model",), path) is None
    assert not path.parent.exists()


@pytest.mark.usefixtures("read_only")
def test_a_folder_that_is_only_read_still_tells(tmp_path: Path) -> None:
    """What was accepted there counts, and no file of SQLite's own appears beside the database."""
    path = tmp_path / "digests.db"
    with DigestStore(path) as store:
        store.accept("some-model", "Apache-2.0")
        kept = store.accepted_at(("some-model",))
    assert kept is not None
    assert accepted_at(("other", "some-model"), path) == kept
    assert accepted_at(("other",), path) is None
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("digests.db-")] == []


@pytest.mark.usefixtures("read_only")
def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """It is an error of the place, not a licence that nobody accepted."""
    path = tmp_path / "digests.db"
    path.write_bytes(b"no database at all, but longer than a header" * 9)
    with pytest.raises(HeavyliftError) as caught:
        accepted_at(("some-model",), path)
    assert caught.value.code == "STA003"
