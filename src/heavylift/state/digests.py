"""Digests of files that were hashed once: an unchanged file is not read again."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from heavylift.checkpoint.integrity import FileIdentity
from heavylift.state.db import Schema, open_database, open_where_it_lies
from heavylift.state.paths import state_dir

_SCHEMA: Final = Schema(
    migrations=(
        (
            """
            CREATE TABLE digests (
                path TEXT PRIMARY KEY,
                inode INTEGER NOT NULL,
                size INTEGER NOT NULL,
                mtime_ns INTEGER NOT NULL,
                sha256 TEXT NOT NULL,
                hashed_at TEXT NOT NULL
            ) STRICT
            """,
            """
            CREATE TABLE licences (
                model TEXT NOT NULL,
                licence TEXT NOT NULL,
                accepted_at TEXT NOT NULL,
                PRIMARY KEY (model, licence)
            ) STRICT
            """,
        ),
    )
)


def default_path() -> Path:
    """Where the digests lie."""
    return state_dir() / "digests.db"


class DigestStore:
    """The digests, and the licences that were accepted. Raises as `open_database`."""

    def __init__(self, path: Path | None = None) -> None:
        self._database = open_database(path or default_path(), _SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()

    def get(self, identity: FileIdentity) -> str | None:
        """The SHA-256 of exactly this file, None when it was never read or has changed."""
        row: tuple[str] | None = self._database.execute(
            "SELECT sha256 FROM digests WHERE path = ? AND inode = ? AND size = ? AND mtime_ns = ?",
            _key(identity),
        ).fetchone()
        return None if row is None else row[0]

    def put(self, identity: FileIdentity, sha256: str) -> None:
        """Keep a digest in place of an older one of the same path."""
        self._database.execute(
            "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, ?, ?)",
            (*_key(identity), sha256, _now()),
        )

    def accepted(self, model: str, licence: str) -> bool:
        """True when this licence of this model was accepted here before."""
        found: sqlite3.Cursor = self._database.execute(
            "SELECT 1 FROM licences WHERE model = ? AND licence = ?", (model, licence)
        )
        return found.fetchone() is not None

    def accepted_at(self, models: Iterable[str]) -> str | None:
        """When a licence of one of these models was first accepted here; None = none was."""
        return _first_accepted(self._database, models)

    def accept(self, model: str, licence: str) -> None:
        """Keep that it was accepted, and when."""
        self._database.execute(
            "INSERT OR IGNORE INTO licences VALUES (?, ?, ?)", (model, licence, _now())
        )


def accepted_at(models: Iterable[str], path: Path | None = None) -> str | None:
    """As `DigestStore.accepted_at`, without making a database, and from one that cannot be written:
    a report can be asked for where the state is only read. Raises as `open_database`.
    """
    place = path or default_path()
    if not place.is_file():
        return None
    with contextlib.closing(open_where_it_lies(place, _SCHEMA)) as connection:
        return _first_accepted(connection, models)


def _first_accepted(connection: sqlite3.Connection, models: Iterable[str]) -> str | None:
    times = [
        row[0]
        for model in models
        for row in connection.execute("SELECT accepted_at FROM licences WHERE model = ?", (model,))
    ]
    return min(times, default=None)


def _key(identity: FileIdentity) -> tuple[str, int, int, int]:
    # SQLite's numbers are signed; inodes of some file systems use the last bit.
    inode = identity.inode - 2**64 if identity.inode >= 2**63 else identity.inode
    return identity.path, inode, identity.size, identity.mtime_ns


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
