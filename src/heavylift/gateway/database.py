"""What the ledger and the key store ask of a database, and SQLite as one.

Statements are written once, with `?` for a value, in the SQL that every database of ours reads.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from heavylift.state.db import transaction

Values = Sequence[Any]
MOST_VALUES: Final = 500
"""Values of one statement at most: more statements are made of longer lists."""


class Rows(Protocol):
    """What a statement brought."""

    def fetchone(self) -> Any:
        """The next row; None after the last."""

    def fetchall(self) -> list[Any]:
        """All rows."""


class Database(Protocol):
    """A database with the tables of the gateway."""

    in_order: str
    """The column of `key` that grows with every new key."""

    def execute(self, statement: str, values: Values = ()) -> Rows:
        """What the statement brings."""

    def execute_each(self, statement: str, rows: Iterable[Values]) -> None:
        """The statement once for each of the rows of values."""

    def transaction(self) -> AbstractContextManager[None]:
        """All statements inside, or none; nobody else writes meanwhile. Raises STA004 when others
        write for too long.
        """


class SqliteDatabase:
    """A connection to the file that all gateways of a host share."""

    in_order = "key.rowid"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.execute = connection.execute

    def execute_each(self, statement: str, rows: Iterable[Values]) -> None:
        """As `Database.execute_each`."""
        self.connection.executemany(statement, rows)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """As `Database.transaction`."""
        with transaction(self.connection):
            yield


def marks(values: Sequence[Any]) -> str:
    """Question marks for so many values."""
    return ", ".join("?" * len(values))
