"""Opening a database of ours: safe settings, migrations, and one writer.

Every database is SQLite on a local disk with a write-ahead log. A schema is a list of migrations;
`user_version` counts those that have been applied.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.state import mounts

BUSY_TIMEOUT_MS: Final = 10_000
"""How long a writer waits for another; writes of ours take milliseconds."""

_MOUNTINFO: Final = Path("/proc/self/mountinfo")


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """A database's history: each migration is the statements that lead to the next version."""

    migrations: tuple[tuple[str, ...], ...]

    @property
    def version(self) -> int:
        """The version this program knows."""
        return len(self.migrations)


def open_database(path: Path, schema: Schema) -> sqlite3.Connection:
    """A connection to the database at `path`, created or brought up to date if need be.

    Foreign keys are enforced, commits are synced to disk. Statements commit by themselves except
    inside `transaction`.

    Raises STA001 when a newer program wrote it, STA002 when it lies on a shared file system,
    STA003 when it is no database or cannot be opened.
    """
    refuse_shared(path)
    connection: sqlite3.Connection | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = sqlite3.connect(
            path, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        _migrate(connection, path, schema)
    except (sqlite3.Error, OSError) as problem:
        if connection is not None:
            connection.close()
        raise HeavyliftError("STA003", {"path": str(path), "detail": str(problem)}) from problem
    except HeavyliftError:
        if connection is not None:
            connection.close()
        raise
    return connection


def open_where_it_lies(path: Path, schema: Schema) -> sqlite3.Connection:
    """As `open_database`; a database in a folder that takes no files of SQLite's own is opened to
    be read, as it lies there. Raises as `open_database`.
    """
    try:
        return open_database(path, schema)
    except HeavyliftError as error:
        if error.code != "STA003" or not path.is_file() or os.access(path.parent, os.W_OK):
            raise
        return _to_be_read(path, schema, error)


def _to_be_read(path: Path, schema: Schema, why_not: HeavyliftError) -> sqlite3.Connection:
    """Nobody else has it open: their files would have been there for us. Raises `why_not` for what
    is no database of this version.
    """
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(address, uri=True, isolation_level=None)
    except sqlite3.Error:
        raise why_not from None
    try:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error:
        found = None
    if found != schema.version:
        connection.close()
        raise why_not
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All statements inside, or none. Takes the write lock at its start, so that what is read
    inside cannot change before it is written. Raises STA004 when another writer keeps it too long.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as problem:
        raise HeavyliftError("STA004", {"detail": str(problem)}) from problem
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk makes SQLite roll back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def writer_lock(path: Path) -> Iterator[None]:
    """Sole right to write to the database at `path`, for a program that keeps it for long.

    Held by a lock on a file beside it, which the kernel gives back when the process ends however
    it ends. Raises STA005, with the process that holds it, at once.
    """
    lock = path.with_name(f"{path.name}.writer")
    refuse_shared(lock)
    lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            params = {"path": str(path), "holder": holder or "?"}
            raise HeavyliftError("STA005", params) from problem
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def refuse_shared(path: Path) -> None:
    """Raises STA002 when `path` would lie on a file system that several hosts share."""
    try:
        table = mounts.parse(_MOUNTINFO.read_text("utf-8", "surrogateescape"))
    except OSError:  # no such table: not Linux
        return
    mount = mounts.mount_of(os.path.realpath(path), table)
    if mount is not None and mount.is_shared:
        raise HeavyliftError(
            "STA002", {"path": str(path), "fs_type": mount.fs_type, "mount": mount.point}
        )


def _migrate(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    if _version(connection) == schema.version:
        return
    with transaction(connection):
        # Read again: another process may have migrated while this one waited for the lock.
        found = _version(connection)
        if found > schema.version:
            raise HeavyliftError(
                "STA001", {"path": str(path), "found": found, "known": schema.version}
            )
        for statements in schema.migrations[found:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {schema.version}")


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version
