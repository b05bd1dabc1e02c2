"""The journal of a batch: which rows there are, where each stands, and how far its files count.

One SQLite database per batch folder, in write-ahead mode with every commit synced (state/db.py).
The journal is the truth: a row is done when a commit says so, and a byte of an output file counts
when it lies before the recorded end of that file.

A claim is a lease that no clock ends. Its holder is the process with the writer's lock of the
folder, which the kernel takes back however the process ends; so a claim of an earlier run is known
to be dead, and a claim of this run can have no second holder.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from heavylift.batch.inputs import Draft
from heavylift.batch.records import Claim, Counts, Settled, State
from heavylift.errors import HeavyliftError
from heavylift.state.db import Schema, open_database, transaction

JOURNAL: Final = "journal.db"

_ROW: Final = """
    CREATE TABLE {name} (
        seq INTEGER PRIMARY KEY,
        custom_id TEXT NOT NULL UNIQUE,
        key BLOB NOT NULL,
        line INTEGER NOT NULL,
        at INTEGER NOT NULL,
        size INTEGER NOT NULL,
        state INTEGER NOT NULL DEFAULT 0,
        claims INTEGER NOT NULL DEFAULT 0,
        attempts INTEGER NOT NULL DEFAULT 0,
        reason TEXT,
        out_at INTEGER,
        out_size INTEGER,
        twin_of INTEGER,
        prompt_tokens INTEGER NOT NULL DEFAULT 0,
        completion_tokens INTEGER NOT NULL DEFAULT 0
    ) STRICT
"""

SCHEMA: Final = Schema(
    migrations=(
        (
            _ROW.format(name="row"),
            "CREATE TABLE file (name TEXT PRIMARY KEY, size INTEGER NOT NULL) STRICT",
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT",
        ),
    ),
)

_SLICE_ROWS: Final = 2000

INVALID: Final = "invalid"
"""Why a row is skipped for good; every other reason passes with the next run."""
CANCELLED: Final = "cancelled"

T = TypeVar("T")


class Journal:
    """The journal of one batch. Writing methods are one transaction each unless they say more."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._cursor = 0
        """Rows up to here have been offered to this run."""

    # --- facts about the batch -------------------------------------------------------------------

    def get(self, key: str, kind: type[T]) -> T | None:
        """A fact of the batch; None = it was never set."""
        query = "SELECT value FROM meta WHERE key = ?"
        row = self._connection.execute(query, (key,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=kind)

    def put(self, **facts: Any) -> None:
        """Set facts; None removes one."""
        with transaction(self._connection):
            put(self._connection, facts)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read inside is of one moment, whatever a run commits meanwhile."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")

    # --- taking rows in --------------------------------------------------------------------------

    @contextlib.contextmanager
    def intake(self) -> Iterator[Intake]:
        """All rows of an input, in place of those of an earlier one, or none of them.

        A row whose name and key are known keeps its outcome; one whose key has changed, or that
        is gone, loses it.
        """
        with transaction(self._connection):
            self._connection.execute(_ROW.format(name="incoming"))
            yield Intake(self._connection)
            self._connection.execute(
                """
                UPDATE incoming SET (state, claims, attempts, reason, out_at, out_size,
                                     prompt_tokens, completion_tokens)
                    = (r.state, r.claims, r.attempts, r.reason, r.out_at, r.out_size,
                       r.prompt_tokens, r.completion_tokens)
                FROM row r
                WHERE r.custom_id = incoming.custom_id AND r.key = incoming.key
                  AND r.state IN (?, ?) AND incoming.state = ?
                """,
                (State.OK, State.FAILED, State.PENDING),
            )
            self._connection.execute("DROP TABLE row")
            self._connection.execute("ALTER TABLE incoming RENAME TO row")

    # --- the run ---------------------------------------------------------------------------------

    def begin_run(self, *, dedupe: bool) -> None:
        """Take over what an earlier run left: its claims, and rows skipped for a passing reason.

        Rows it had claimed may have been sent; they will be sent again, and counted as such. With
        `dedupe`, of rows with one key only the first is offered; the others are its twins.
        """
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE row SET state = ? WHERE state = ?", (State.PENDING, State.SENT)
            )
            self._connection.execute(
                "UPDATE row SET state = ?, reason = NULL WHERE state = ? AND reason != ?",
                (State.PENDING, State.SKIPPED, INVALID),
            )
            put(self._connection, {"cancelled": None})
            self._connection.execute("UPDATE row SET twin_of = NULL WHERE twin_of IS NOT NULL")
            if dedupe:
                self._find_twins()
        self._cursor = 0

    def _find_twins(self) -> None:
        self._connection.execute(
            """
            CREATE TEMP TABLE first AS
            SELECT key, min(seq) AS seq FROM row WHERE length(key) > 0
            GROUP BY key HAVING count(*) > 1
            """
        )
        self._connection.execute("CREATE INDEX temp.first_key ON first (key)")
        self._connection.execute(
            """
            UPDATE row SET twin_of = first.seq FROM first
            WHERE row.key = first.key AND row.seq != first.seq AND row.state = ?
            """,
            (State.PENDING,),
        )
        self._connection.execute("DROP TABLE first")

    def twins(self, limit: int) -> list[tuple[int, str, int, int, int, str | None]]:
        """Twins whose first is done: `seq, custom_id, state, out_at, out_size, reason`; the last
        four are the first's.
        """
        return self._connection.execute(
            """
            SELECT row.seq, row.custom_id, f.state, f.out_at, f.out_size, f.reason
            FROM row JOIN row f ON f.seq = row.twin_of
            WHERE row.state = ? AND f.state IN (?, ?) ORDER BY row.seq LIMIT ?
            """,
            (State.PENDING, State.OK, State.FAILED, limit),
        ).fetchall()

    def commit(
        self,
        settled: Sequence[tuple[Settled, int]],
        sizes: dict[str, int],
        *,
        want: int = 0,
        unsent: Iterable[int] = (),
        broken_off: Iterable[int] = (),
    ) -> list[Claim]:
        """One group commit: outcomes with the place of their lines, the files' new ends, rows
        given back (`unsent`, or sent and `broken_off`), and up to `want` rows claimed for sending.

        The files must have been synced before.
        """
        with transaction(self._connection):
            run = self._connection.executemany
            run(
                """
                UPDATE row SET state = ?, attempts = ?, reason = ?, out_at = ?, out_size = ?,
                               prompt_tokens = ?, completion_tokens = ?
                WHERE seq = ?
                """,
                [
                    (
                        row.state,
                        row.attempts,
                        row.reason,
                        at,
                        len(row.line),
                        row.prompt_tokens,
                        row.completion_tokens,
                        row.seq,
                    )
                    for row, at in settled
                ],
            )
            run("INSERT OR REPLACE INTO file (name, size) VALUES (?, ?)", sizes.items())
            run(
                "UPDATE row SET state = ?, claims = claims - 1 WHERE seq = ?",
                [(State.PENDING, seq) for seq in unsent],
            )
            run(
                "UPDATE row SET state = ? WHERE seq = ?",
                [(State.PENDING, seq) for seq in broken_off],
            )
            return self._claim(want) if want else []

    def _claim(self, want: int) -> list[Claim]:
        found = self._connection.execute(
            """
            SELECT seq, line, at, size FROM row
            WHERE seq > ? AND state = ? AND twin_of IS NULL ORDER BY seq LIMIT ?
            """,
            (self._cursor, State.PENDING, want),
        ).fetchall()
        if not found:
            return []
        self._cursor = found[-1][0]
        self._connection.executemany(
            "UPDATE row SET state = ?, claims = claims + 1 WHERE seq = ?",
            [(State.SENT, row[0]) for row in found],
        )
        return [Claim(seq=seq, line=line, at=at, size=size) for seq, line, at, size in found]

    def skip_the_rest(self, reason: str) -> int:
        """How many rows were marked as skipped: all that have no outcome."""
        with transaction(self._connection):
            marked = self._connection.execute(
                "UPDATE row SET state = ?, reason = ? WHERE state IN (?, ?)",
                (State.SKIPPED, reason, State.PENDING, State.SENT),
            )
            put(self._connection, {"cancelled": True if reason == CANCELLED else None})
        return marked.rowcount

    def reopen_failed(self) -> int:
        """How many failed rows were made pending again."""
        with transaction(self._connection):
            marked = self._connection.execute(
                """
                UPDATE row SET state = ?, reason = NULL, out_at = NULL, out_size = NULL
                WHERE state = ?
                """,
                (State.PENDING, State.FAILED),
            )
        return marked.rowcount

    def reopen_beyond(self, state: State, end: int) -> int:
        """How many rows were made pending because their line lies beyond `end` of its file."""
        with transaction(self._connection):
            marked = self._connection.execute(
                """
                UPDATE row SET state = ?, reason = NULL, out_at = NULL, out_size = NULL
                WHERE state = ? AND out_at + out_size > ?
                """,
                (State.PENDING, state, end),
            )
        return marked.rowcount

    # --- looking ---------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Rows by state and what they used."""
        totals: dict[int, int] = dict(
            self._connection.execute("SELECT state, count(*) FROM row GROUP BY state")
        )
        prompt, completion, resent = self._connection.execute(
            """
            SELECT coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0),
                   coalesce(sum(max(claims, 1) - 1), 0)
            FROM row
            """
        ).fetchone()
        return Counts(
            input=sum(totals.values()),
            pending=totals.get(State.PENDING, 0),
            sent=totals.get(State.SENT, 0),
            ok=totals.get(State.OK, 0),
            failed=totals.get(State.FAILED, 0),
            skipped=totals.get(State.SKIPPED, 0),
            resent=resent,
            prompt_tokens=prompt,
            completion_tokens=completion,
        )

    def reasons(self) -> dict[str, int]:
        """Failed and skipped rows by reason, the most frequent first."""
        query = """
            SELECT reason, count(*) FROM row WHERE reason IS NOT NULL AND state IN (?, ?)
            GROUP BY reason ORDER BY 2 DESC, 1
        """
        return dict(self._connection.execute(query, (State.FAILED, State.SKIPPED)))

    def places(self, state: State) -> Iterator[tuple[int, int, str]]:
        """Place, size and name of the output lines of the rows in `state`, by place."""
        query = """
            SELECT out_at, out_size, custom_id FROM row
            WHERE state = ? AND out_at IS NOT NULL ORDER BY out_at
        """
        return iter(self._connection.execute(query, (state,)))

    def in_order(self, state: State) -> Iterator[tuple[int, int, int, int, int]]:
        """`seq, at, size, out_at, out_size` of the rows in `state`, in the order of the input.

        Read in slices, so that the database may be written to in between.
        """
        after = -1
        while True:
            slice_ = self._connection.execute(
                """
                SELECT seq, at, size, coalesce(out_at, -1), coalesce(out_size, 0) FROM row
                WHERE seq > ? AND state = ? ORDER BY seq LIMIT ?
                """,
                (after, state, _SLICE_ROWS),
            ).fetchall()
            if not slice_:
                return
            yield from slice_
            after = slice_[-1][0]

    def skip_invalid(self, seqs: Iterable[int]) -> None:
        """Mark rows as not valid."""
        with transaction(self._connection):
            self._connection.executemany(
                "UPDATE row SET state = ?, reason = ? WHERE seq = ?",
                [(State.SKIPPED, INVALID, seq) for seq in seqs],
            )

    def longer_than(self, size: int, after: int, count: int) -> list[tuple[int, int, int, int]]:
        """`seq, line, at, size` of the next pending rows, from `after` on, whose spooled line is
        longer than `size`.
        """
        query = """
            SELECT seq, line, at, size FROM row
            WHERE seq > ? AND state = ? AND size > ? ORDER BY seq LIMIT ?
        """
        return self._connection.execute(query, (after, State.PENDING, size, count)).fetchall()

    def sample(self, count: int) -> list[tuple[int, int]]:
        """`at, size` of about `count` pending rows, spread evenly over the input."""
        (total,) = self._connection.execute("SELECT count(*) FROM row").fetchone()
        query = """
            SELECT at, size FROM row WHERE state = ? AND seq % ? = ? ORDER BY seq LIMIT ?
        """
        step = max(1, total // max(1, count))
        # seq counts from 1, so a step of one takes every row.
        values = (State.PENDING, step, 1 % step, count)
        return self._connection.execute(query, values).fetchall()

    def sendable(self) -> int:
        """Rows that have a line in the spooled input."""
        query = "SELECT count(*) FROM row WHERE size > 0"
        count: int = self._connection.execute(query).fetchone()[0]
        return count

    def input_bytes(self) -> int:
        """Bytes of the spooled lines of all rows that can be sent."""
        query = "SELECT coalesce(sum(size), 0) FROM row WHERE state = ?"
        total: int = self._connection.execute(query, (State.PENDING,)).fetchone()[0]
        return total

    def sizes(self) -> dict[str, int]:
        """The recorded ends of the files."""
        return dict(self._connection.execute("SELECT name, size FROM file"))

    def output_bytes(self, state: State) -> int:
        """Bytes of all lines of the rows in `state`."""
        query = "SELECT coalesce(sum(out_size), 0) FROM row WHERE state = ?"
        total: int = self._connection.execute(query, (state,)).fetchone()[0]
        return total

    def move(self, places: Iterable[tuple[int, int]], name: str, size: int) -> None:
        """New places (`out_at, seq`) of a file's lines, which now ends at `size`; the file of that
        name with `.new` behind it takes its place once this is on disk.
        """
        with transaction(self._connection):
            self._connection.executemany("UPDATE row SET out_at = ? WHERE seq = ?", places)
            statement = "INSERT OR REPLACE INTO file (name, size) VALUES (?, ?)"
            self._connection.execute(statement, (name, size))
            put(self._connection, {f"swap {name}": True})


def put(connection: sqlite3.Connection, facts: dict[str, Any]) -> None:
    """Set facts, inside a transaction; None removes one."""
    for key, value in facts.items():
        if value is None:
            connection.execute("DELETE FROM meta WHERE key = ?", (key,))
        else:
            statement = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"
            connection.execute(statement, (key, msgspec.json.encode(value)))


class Intake:
    """Takes rows in, inside the transaction of `Journal.intake`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._seq = 0

    def add(self, draft: Draft, at: int, size: int) -> int | None:
        """Takes a row; the line of an earlier one of the same name when there is one."""
        self._seq += 1
        values = (self._seq, draft.custom_id, draft.key, draft.line, at, size)
        statement = """
            INSERT INTO incoming (seq, custom_id, key, line, at, size) VALUES (?, ?, ?, ?, ?, ?)
            ON CONFLICT (custom_id) DO NOTHING
        """
        if self._connection.execute(statement, values).rowcount:
            return None
        query = "SELECT line FROM incoming WHERE custom_id = ?"
        earlier: int = self._connection.execute(query, (draft.custom_id,)).fetchone()[0]
        return earlier

    def orphans(self) -> int:
        """How many rows with an answer are not among those taken in: it would be thrown away."""
        query = """
            SELECT count(*) FROM row WHERE state = ?
            AND NOT EXISTS (SELECT 1 FROM incoming WHERE incoming.custom_id = row.custom_id)
        """
        count: int = self._connection.execute(query, (State.OK,)).fetchone()[0]
        return count

    def put(self, **facts: Any) -> None:
        """Set facts of the batch together with the rows."""
        put(self._connection, facts)

    def skip(self, line: int) -> None:
        """Takes a row that is not valid: it is counted and never sent."""
        self._seq += 1
        self._connection.execute(
            """
            INSERT INTO incoming (seq, custom_id, key, line, at, size, state, reason)
            VALUES (?, ?, x'', ?, 0, 0, ?, ?)
            """,
            # Begins with a NUL so that it does not meet the name of a valid row.
            (self._seq, f"\0line {line}", line, State.SKIPPED, INVALID),
        )


@contextlib.contextmanager
def open_journal(folder: Path, *, must_exist: bool = False) -> Iterator[Journal]:
    """The journal of a batch folder. Raises BAT003 when there is none and there must be one, else
    as `db.open_database`.
    """
    path = folder / JOURNAL
    if must_exist and not path.is_file():
        raise HeavyliftError("BAT003", {"path": str(folder)})
    with contextlib.closing(open_database(path, SCHEMA)) as connection:
        yield Journal(connection)
