"""Figures over time in SQLite. A file's size is bounded whatever is written, and however the clock
jumps: `Level.most_buckets` for each of at most `MOST_FIGURES` figures.

Each look is merged into every level at once: nothing has to be compacted later, and a kill at any
instant loses one look at most.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.records.series import LEVELS, MOST_FIGURES, Bucket, Level
from heavylift.state import paths
from heavylift.state.db import Schema, open_database, transaction

SCHEMA: Final = Schema(
    migrations=(
        (
            "CREATE TABLE figure (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT",
            """
            CREATE TABLE bucket (
                period_s INTEGER NOT NULL,
                figure INTEGER NOT NULL REFERENCES figure (id) ON DELETE CASCADE,
                at_s INTEGER NOT NULL,
                count INTEGER NOT NULL,
                low REAL NOT NULL,
                high REAL NOT NULL,
                total REAL NOT NULL,
                last REAL NOT NULL,
                PRIMARY KEY (period_s, at_s, figure)
            ) STRICT, WITHOUT ROWID
            """,
            "CREATE INDEX bucket_figure ON bucket (figure)",
        ),
    ),
)

_MERGE: Final = """
    INSERT INTO bucket (period_s, figure, at_s, count, low, high, total, last)
    VALUES (?, ?, ?, 1, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET
        count = count + 1,
        low = min(low, excluded.low),
        high = max(high, excluded.high),
        total = total + excluded.total,
        last = excluded.last
"""


class Series:
    """The store of one deployment, or of this machine. `add` is one transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        levels: tuple[Level, ...] = LEVELS,
        most_figures: int = MOST_FIGURES,
    ) -> None:
        self._connection = connection
        self._levels = levels
        self._most_figures = most_figures

    def add(self, at_s: float, figures: Mapping[str, float]) -> int:
        """Merge the figures of one look, and let go of what is too old; how many were taken.

        What lies in the future of `at_s` goes too: a clock that was set back would keep it for
        ever. Raises STA004 as `transaction`, STA003 when the disk fails.
        """
        values = {name: float(value) for name, value in figures.items() if math.isfinite(value)}
        try:
            with transaction(self._connection):
                self._forget(at_s)
                taken = [
                    (number, value)
                    for name, value in values.items()
                    if (number := self._number(name)) is not None
                ]
                self._connection.executemany(
                    _MERGE,
                    (
                        (level.period_s, number, _floor(at_s, level), value, value, value, value)
                        for level in self._levels
                        for number, value in taken
                    ),
                )
        except sqlite3.Error as problem:
            raise HeavyliftError("STA003", {"path": "series", "detail": str(problem)}) from problem
        return len(taken)

    def _forget(self, at_s: float) -> None:
        gone = 0
        for level in self._levels:
            now = _floor(at_s, level)
            gone = self._drop("at_s <= ?", level, now - level.keep_s)
            gone += self._drop("at_s > ?", level, now + level.period_s)
        # The last level keeps longest: a figure that is not there is nowhere.
        if gone:
            self._connection.execute(
                "DELETE FROM figure WHERE NOT EXISTS"
                " (SELECT 1 FROM bucket WHERE bucket.figure = figure.id)"
            )

    def _drop(self, which: str, level: Level, at_s: int) -> int:
        statement = f"DELETE FROM bucket WHERE period_s = ? AND {which}"  # noqa: S608 - ours
        return self._connection.execute(statement, (level.period_s, at_s)).rowcount

    def _number(self, name: str) -> int | None:
        """The figure's number; None when there is no room for another."""
        row = self._connection.execute("SELECT id FROM figure WHERE name = ?", (name,)).fetchone()
        if row is not None:
            return int(row[0])
        count = self._connection.execute("SELECT count(*) FROM figure").fetchone()[0]
        if count >= self._most_figures:
            return None
        return self._connection.execute("INSERT INTO figure (name) VALUES (?)", (name,)).lastrowid

    def names(self) -> tuple[str, ...]:
        """The figures there are."""
        rows = self._connection.execute("SELECT name FROM figure ORDER BY name")
        return tuple(row[0] for row in rows)

    def read(
        self, name: str, *, level: Level, since_s: float = 0.0, until_s: float = math.inf
    ) -> tuple[Bucket, ...]:
        """The buckets of a figure at one level that begin in [since, until), in order of time."""
        rows = self._connection.execute(
            """
            SELECT at_s, count, low, high, total, last FROM bucket
            JOIN figure ON figure.id = bucket.figure
            WHERE name = ? AND period_s = ? AND at_s >= ? AND at_s < ? ORDER BY at_s
            """,
            (name, level.period_s, since_s, until_s),
        )
        return tuple(
            Bucket(
                at_s=at_s,
                period_s=level.period_s,
                count=count,
                low=low,
                high=high,
                mean=total / count,
                last=last,
            )
            for at_s, count, low, high, total, last in rows
        )

    def size(self) -> int:
        """Buckets there are, of all figures and levels."""
        return int(self._connection.execute("SELECT count(*) FROM bucket").fetchone()[0])


def _floor(at_s: float, level: Level) -> int:
    return math.floor(at_s / level.period_s) * level.period_s


def series_path(deployment: str | None = None) -> Path:
    """Where the series of a deployment lie; None = of this machine, and of engines not ours."""
    if deployment is None:
        return paths.state_dir() / "series.db"
    return paths.deployment_dir(deployment) / "series.db"


@contextlib.contextmanager
def open_series(
    path: Path, *, levels: tuple[Level, ...] = LEVELS, most_figures: int = MOST_FIGURES
) -> Iterator[Series]:
    """The store at `path`. Raises as `db.open_database`."""
    with contextlib.closing(open_database(path, SCHEMA)) as connection:
        # A look lost in a power cut is no loss; a disk synced every second is.
        connection.execute("PRAGMA synchronous = NORMAL")
        yield Series(connection, levels=levels, most_figures=most_figures)
