"""Databases: settings, migrations that happen whole or not at all, and one writer."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.state import db
from heavylift.state.db import Schema, open_database, transaction, writer_lock

ONE = Schema(migrations=(("CREATE TABLE t (x INTEGER)",),))
TWO = Schema(
    migrations=(
        *ONE.migrations,
        ("ALTER TABLE t ADD COLUMN y INTEGER", "UPDATE t SET y = x * 2"),
    )
)


def version(path: Path) -> int:
    """The schema version in the file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return found


def run_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process of ours."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_settings_are_the_safe_ones(tmp_path: Path) -> None:
    """Write-ahead log, full sync, foreign keys, patience with other writers; folder made."""
    path = tmp_path / "new" / "x.db"
    with contextlib.closing(open_database(path, ONE)) as connection:
        for pragma, value in {
            "journal_mode": "wal",
            "synchronous": 2,
            "foreign_keys": 1,
            "busy_timeout": db.BUSY_TIMEOUT_MS,
            "user_version": 1,
        }.items():
            assert connection.execute(f"PRAGMA {pragma}").fetchone()[0] == value
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_old_database_is_brought_up_to_date_with_its_data(tmp_path: Path) -> None:
    """Only the migrations that are missing are run."""
    path = tmp_path / "x.db"
    with contextlib.closing(open_database(path, ONE)) as connection:
        connection.execute("INSERT INTO t VALUES (21)")
    for _ in range(2):
        with contextlib.closing(open_database(path, TWO)) as connection:
            assert connection.execute("SELECT x, y FROM t").fetchall() == [(21, 42)]
    assert version(path) == 2


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """STA001 says both versions; the file is left as it was."""
    path = tmp_path / "x.db"
    open_database(path, TWO).close()
    with pytest.raises(HeavyliftError) as caught:
        open_database(path, ONE)
    assert caught.value.code == "STA001"
    assert (caught.value.params["found"], caught.value.params["known"]) == (2, 1)
    assert version(path) == 2


def test_a_migration_that_fails_leaves_the_old_version(tmp_path: Path) -> None:
    """The statements before the failing one are undone; the reason is told."""
    path = tmp_path / "x.db"
    open_database(path, ONE).close()
    broken = Schema(
        migrations=(*ONE.migrations, ("ALTER TABLE t ADD COLUMN y INTEGER", "NO SUCH STATEMENT"))
    )
    with pytest.raises(HeavyliftError) as caught:
        open_database(path, broken)
    assert caught.value.code == "STA003"
    assert "syntax error" in str(caught.value.params["detail"])
    with contextlib.closing(open_database(path, ONE)) as connection:
        assert [column[1] for column in connection.execute("PRAGMA table_info(t)")] == ["x"]


_SLOW_MIGRATION = """
import sys
from pathlib import Path
from heavylift.state.db import Schema, open_database
many = (
    "INSERT INTO t SELECT value FROM ("
    "WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 20000)"
    " SELECT value FROM n)"
)
schema = Schema(migrations=(("CREATE TABLE t (x INTEGER)",), (*[many] * 40, "CREATE TABLE u (z)")))
print("go", flush=True)
open_database(Path(sys.argv[1]), schema)
print("done", flush=True)
"""


def test_a_kill_during_a_migration_leaves_the_old_or_the_new_version(tmp_path: Path) -> None:
    """Killed at twelve moments spread over the migration: never anything between, never damage."""
    began = time.perf_counter()
    whole = tmp_path / "whole.db"
    open_database(whole, ONE).close()
    child = run_python(_SLOW_MIGRATION, str(whole))
    assert child.stdout is not None
    child.stdout.readline()
    began = time.perf_counter()
    child.communicate(timeout=60)
    takes_s = time.perf_counter() - began
    assert version(whole) == 2
    found = set()
    for number in range(12):
        path = tmp_path / f"{number}.db"
        open_database(path, ONE).close()
        child = run_python(_SLOW_MIGRATION, str(path))
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(takes_s * (number + 0.5) / 12)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=60)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            rows = connection.execute("SELECT count(*) FROM t").fetchone()[0]
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
        state = (version(path), rows, "u" in tables)
        assert state in {(1, 0, False), (2, 800_000, True)}
        found.add(state[0])
    assert 1 in found


_WRITER = """
import sys
from pathlib import Path
from heavylift.state.db import Schema, open_database, transaction
connection = open_database(Path(sys.argv[1]), Schema(migrations=(("CREATE TABLE t (x INTEGER)",),)))
for _ in range(100):
    with transaction(connection):
        last = connection.execute("SELECT coalesce(max(x), 0) FROM t").fetchone()[0]
        connection.execute("INSERT INTO t VALUES (?)", (last + 1,))
"""


def test_processes_that_write_together_lose_nothing(tmp_path: Path) -> None:
    """Three processes create, migrate and count up in one database: every number once."""
    path = tmp_path / "x.db"
    children = [run_python(_WRITER, str(path)) for _ in range(3)]
    for child in children:
        _, err = child.communicate(timeout=120)
        assert (child.returncode, err) == (0, "")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = [row[0] for row in connection.execute("SELECT x FROM t ORDER BY x")]
    assert rows == list(range(1, 301))


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    """An exception inside undoes what was done, and the connection goes on."""
    with contextlib.closing(open_database(tmp_path / "x.db", ONE)) as connection:
        with contextlib.suppress(KeyError), transaction(connection):
            connection.execute("INSERT INTO t VALUES (1)")
            raise KeyError
        with transaction(connection):
            connection.execute("INSERT INTO t VALUES (2)")
        assert connection.execute("SELECT x FROM t").fetchall() == [(2,)]


def test_a_full_disk_is_an_error_that_loses_nothing(tmp_path: Path) -> None:
    """When a commit has no room the rows before it stay, and the next write works again."""
    with contextlib.closing(open_database(tmp_path / "x.db", ONE)) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sqlite3.OperationalError, match="full"), transaction(connection):
            connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(5000)])
        connection.execute(f"PRAGMA max_page_count = {pages + 100}")
        with transaction(connection):
            connection.execute("INSERT INTO t VALUES (2)")
        assert connection.execute("SELECT x FROM t").fetchall() == [(1,), (2,)]


def test_a_writer_that_keeps_the_lock_is_an_error_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STA004 after the wait, not a hang."""
    monkeypatch.setattr(db, "BUSY_TIMEOUT_MS", 50)
    path = tmp_path / "x.db"
    with (
        contextlib.closing(open_database(path, ONE)) as first,
        contextlib.closing(open_database(path, ONE)) as second,
        transaction(first),
    ):
        with pytest.raises(HeavyliftError) as caught, transaction(second):
            pass
        assert caught.value.code == "STA004"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """STA003 with SQLite's reason; so is a folder that cannot be made."""
    path = tmp_path / "x.db"
    path.write_text("this is a text file, not a database, and long enough to be told apart" * 20)
    with pytest.raises(HeavyliftError) as caught:
        open_database(path, ONE)
    assert caught.value.code == "STA003"
    with pytest.raises(HeavyliftError) as caught:
        open_database(path / "below" / "x.db", ONE)
    assert caught.value.code == "STA003"


def test_a_shared_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STA002 names the mount; nothing is created there. Links are followed."""
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 0:1 / {os.path.realpath(tmp_path)}/nfs rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(db, "_MOUNTINFO", table)
    (tmp_path / "link").symlink_to(tmp_path / "nfs")
    for folder in ("nfs", "link"):
        path = tmp_path / folder / "x.db"
        for use in (
            lambda path: open_database(path, ONE),
            lambda path: writer_lock(path).__enter__(),
        ):
            with pytest.raises(HeavyliftError) as caught:
                use(path)
            assert caught.value.code == "STA002"
            assert caught.value.params["fs_type"] == "nfs4"
    assert not (tmp_path / "nfs").exists()


def test_without_a_mount_table_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system without one is not Linux; there the decision cannot be made."""
    monkeypatch.setattr(db, "_MOUNTINFO", tmp_path / "absent")
    open_database(tmp_path / "x.db", ONE).close()


_HOLDER = """
import sys, time
from pathlib import Path
from heavylift.state.db import writer_lock
with writer_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_process_holds_the_writer_lock_and_a_kill_frees_it(tmp_path: Path) -> None:
    """STA005 names the holder at once; after `kill -9` the lock is free."""
    path = tmp_path / "x.db"
    child = run_python(_HOLDER, str(path))
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    with pytest.raises(HeavyliftError) as caught, writer_lock(path):
        pass
    assert caught.value.code == "STA005"
    assert caught.value.params["holder"] == str(child.pid)
    child.kill()
    child.communicate()
    with writer_lock(path):
        pass
    with writer_lock(path):
        pass
