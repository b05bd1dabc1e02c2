"""State in a folder that is only read: what is there is told, nothing is written."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.state import db
from heavylift.state.db import Schema
from heavylift.state.deployments import open_deployments
from heavylift.state.digests import DigestStore, accepted_at


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that takes no files, also for a test that runs as root."""

    def refused(path: Path, _schema: Schema) -> sqlite3.Connection:
        raise HeavyliftError("STA003", {"path": str(path), "detail": "read-only"})

    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    monkeypatch.setattr(db, "open_database", refused)


def kept(path: Path) -> str:
    """A store with one licence; when it was accepted."""
    with DigestStore(path) as store:
        store.accept("some-model", "Apache-2.0")
        at = store.accepted_at(("some-model",))
    assert at is not None
    return at


def test_asking_makes_no_database(tmp_path: Path) -> None:
    """Nothing was accepted where there is no file, and there is none afterwards."""
    path = tmp_path / "state" / "digests.db"
    assert accepted_at(("some-model",), path) is None
    assert not path.parent.exists()


def test_a_folder_that_is_only_read_still_tells(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What was accepted there counts, and no file of SQLite's own appears beside the database."""
    path = tmp_path / "digests.db"
    at = kept(path)
    request.getfixturevalue("read_only")
    assert accepted_at(("other", "some-model"), path) == at
    assert accepted_at(("other",), path) is None
    assert [each.name for each in tmp_path.iterdir()] == ["digests.db"]


def test_deployments_can_be_looked_at_and_not_changed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The list is read; a database of another version is refused without advice to move it."""
    path = tmp_path / "deployments.db"
    with open_deployments(path) as store:
        assert store.deployments() == ()
    older = tmp_path / "older.db"
    kept(older)
    request.getfixturevalue("read_only")
    with open_deployments(path) as store:
        assert store.deployments() == ()
    with pytest.raises(HeavyliftError) as caught, open_deployments(older):
        pass
    assert (caught.value.code, caught.value.hint_command) == ("STA003", None)


@pytest.mark.usefixtures("read_only")
def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """It is an error of the place, not a licence that nobody accepted."""
    path = tmp_path / "digests.db"
    path.write_bytes(b"no database at all, but longer than a header" * 9)
    with pytest.raises(HeavyliftError) as caught:
        accepted_at(("some-model",), path)
    assert caught.value.code == "STA003"
