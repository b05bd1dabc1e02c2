"""The ledger: reserves before a request is admitted and settles when it has ended.

Reservations are rows, written before the request goes to an engine and taken away with its cost
in the same transaction. A gateway process holds a lock for as long as it lives; rows whose holder
is gone are charged their bound by whichever gateway notices first, so that a killed gateway
neither leaks a reservation nor gives anything away.

A thread writes: a busy disk holds up who wants to be admitted, and no stream that runs. All that
came during one write share the next. A transaction is safe from the end of the process at once and
from a power cut after the next checkpoint, which another thread makes every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from heavylift.errors import HeavyliftError
from heavylift.gateway import quota
from heavylift.gateway.books import Books, Lost, Reservation, Settlement, Wish
from heavylift.gateway.database import Database, SqliteDatabase
from heavylift.gateway.keys import Key
from heavylift.gateway.quota import Bound, Cost, Moment, Refusal
from heavylift.gateway.store import DATABASE, SCHEMA, Store
from heavylift.gateway.writer import Writer
from heavylift.state.db import open_database, transaction, writer_lock

__all__ = ["Ledger", "Lost", "Reservation", "open_ledger"]

T = TypeVar("T")
Clock = Callable[[], float]

_BUSY_MS: Final = 5
"""How long a write waits for another process; then it is tried again, with what came meanwhile."""
_RETRY_S: Final = 0.005
_POLL_S: Final = 0.0005
_GIVE_UP_S: Final = 5.0
_SETTLE_DELAY_S: Final = 0.01
"""How long a settlement waits for company: it is in no hurry, its reservation still stands."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(slots=True)
class Waiting:
    """A wish, since when it waits, and where its answer goes."""

    wish: Wish
    since: float
    answer: asyncio.Future[Reservation | Refusal]


@dataclass(slots=True, eq=False)
class Turn:
    """What is written together, and how far it is: set by the thread that writes."""

    waiting: list[Waiting]
    settles: list[Settlement]
    ended: bool = False
    written: bool = False


class Ledger:
    """The ledger of one gateway process. Made by `open_ledger`."""

    def __init__(
        self,
        database: Database,
        desk: Database,
        books: Books,
        *,
        clocks: tuple[Clock, Clock],
        folder: Path,
    ) -> None:
        """`desk` is the connection for keys: a look at a key waits for no write. `clocks`: one that
        never jumps, and the wall clock. `folder`: of the locks of holders.
        """
        self.store = Store(desk)
        self.database = database
        self.before_write: Callable[[], None] = lambda: None
        """What the thread does before it writes: the audit's lines go first, so that a request that
        was settled has its line."""
        self._written = Store(database)
        self._books = books
        self._clocks = clocks
        self._folder = folder
        self._writer = Writer("ledger")
        self._alone = threading.Lock()
        self._waiting: deque[Waiting] = deque()
        self._settles: deque[Settlement] = deque()
        self._timer: asyncio.Handle | None = None
        self._hurry = False
        self._writing: Turn | None = None
        self._more = False
        self._closed = False

    def now(self) -> Moment:
        """Now, on both clocks."""
        steady, epoch = self._clocks
        return Moment(steady_s=steady(), epoch_s=epoch())

    # --- for the event loop ---------------------------------------------------------------------

    async def key(self, key_id: str) -> Key | None:
        """The key of this id as it is now, with the limits of its team; None when there is none."""
        return self.store.key(key_id)

    async def manage(self, work: Callable[[Store], T]) -> T:
        """What some work on keys and usage brings."""
        return await self._writer.do(lambda: self._apart(lambda: work(self._written)))

    async def reserve(self, key: Key, model: str, bound: Bound) -> Reservation | Refusal:
        """The reservation of a request, or why it is not admitted.

        Raises GW020 when the ledger cannot be written: without it nothing is admitted.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reservation | Refusal] = loop.create_future()
        self._waiting.append(Waiting(Wish(key, model, bound), loop.time(), answer))
        self._flush_soon()
        try:
            return await answer
        except asyncio.CancelledError:
            # Admitted in the same turn in which the client went: nobody else knows of the row.
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._give_back(answer.result())
            raise

    def _give_back(self, given: Reservation | Refusal) -> None:
        if isinstance(given, Reservation):
            self.settle(given.id, quota.NOTHING)

    def settle(self, reservation_id: int, cost: Cost) -> None:
        """Put the cost in the place of the reservation. Never fails: it is tried until it is done;
        until then the reservation stands.
        """
        self._settles.append(Settlement(reservation_id, cost))
        self.write_soon()

    def write_soon(self) -> None:
        """Write in a moment, with whatever else comes until then."""
        self._more = True
        if self._timer is None and self._writing is None:
            self._timer = asyncio.get_running_loop().call_later(_SETTLE_DELAY_S, self._flush)

    @property
    def waits(self) -> bool:
        """True while something is still to be written."""
        return bool(self._settles or self._waiting) or self._writing is not None

    def flush(self) -> bool:
        """Write what waits, and wait for it; True when nothing waits any more. For the end: until
        then the thread writes.
        """
        begun = self._writing
        while begun is not None and not begun.ended:
            time.sleep(_POLL_S)
        turn = self._take()
        problem: Exception | None = None
        answers: list[Reservation | Refusal] = []
        try:
            answers = self._write(turn)
        except (HeavyliftError, sqlite3.Error) as error:
            problem = error
        self._end(turn, answers, problem)
        return not self._settles and (begun is None or begun.written)

    def _flush_soon(self) -> None:
        if self._hurry or self._writing is not None:
            return
        self._hurry = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_soon(self._flush)

    def _take(self) -> Turn:
        """What waits."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._hurry, self._more = None, False, False
        waiting = [one for one in self._waiting if not one.answer.done()]
        turn = Turn(waiting, list(self._settles))
        self._waiting.clear()
        self._settles.clear()
        return turn

    def _flush(self) -> None:
        """Have what waits written; what comes during one write goes with the next."""
        if self._writing is not None or self._closed:
            return
        turn = self._writing = self._take()

        def then(answers: Any, problem: Exception | None) -> None:
            self._writing = None
            self._end(turn, answers, problem)
            if self._timer is None and self._waiting:
                self._flush()
            elif self._more:
                self.write_soon()

        self._writer.start(lambda: self._write(turn), then)

    def _write(self, turn: Turn) -> list[Reservation | Refusal]:
        """Write what belongs together. In the thread, or at the end."""
        try:
            with self._alone:
                self.before_write()
                answers = self._book(turn) if turn.waiting or turn.settles else []
            turn.written = True
            return answers
        finally:
            turn.ended = True

    def _book(self, turn: Turn) -> list[Reservation | Refusal]:
        self._books.attempted.clear()
        with self.database.transaction():
            return self._books.book(turn.settles, [one.wish for one in turn.waiting], self.now())

    def _apart(self, work: Callable[[], T]) -> T:
        """Some work while nothing else is written through the same connection."""
        with self._alone:
            return work()

    def _end(
        self, turn: Turn, answers: list[Reservation | Refusal], problem: Exception | None
    ) -> None:
        """A write has ended."""
        if problem is not None:
            self._settles.extendleft(reversed(turn.settles))
            self._try_again(turn.waiting, problem)
            return
        for one, answer in zip(turn.waiting, answers, strict=True):
            if one.answer.done():  # the client went while it was written
                self._give_back(answer)
            else:
                one.answer.set_result(answer)

    def _try_again(self, waiting: list[Waiting], problem: Exception) -> None:
        """Another process holds the lock, or the disk is full: keep what can wait a little."""
        loop = asyncio.get_running_loop()
        busy = isinstance(problem, HeavyliftError)
        for one in waiting:
            if one.answer.done():
                continue
            if busy and loop.time() - one.since < _GIVE_UP_S:
                self._waiting.append(one)
            else:
                detail = problem.code if isinstance(problem, HeavyliftError) else str(problem)
                one.answer.set_exception(HeavyliftError("GW020", {"detail": detail}))
        self._timer = loop.call_later(_RETRY_S if busy else 1.0, self._flush)

    def close(self) -> None:
        """End the thread, once it has written what it was given."""
        self._closed = True
        self._writer.close()

    # --- housekeeping ---------------------------------------------------------------------------

    async def tidy(self) -> tuple[Lost, ...]:
        """Forget what no longer counts, and `recover`. Raises GW020."""

        def work() -> tuple[Lost, ...]:
            self.sweep()
            return self.recover()

        return await self._writer.do(work)

    def recover(self) -> tuple[Lost, ...]:
        """Charge the requests of gateways that are gone. Raises GW020 when that cannot be written.

        A gateway is gone when nobody holds its lock: it is given back however the process ends,
        and no later process takes the same name.
        """
        try:
            holders = self._apart(self._books.other_holders)
            return tuple(lost for holder in holders for lost in self._recover(holder))
        except sqlite3.Error as problem:
            raise HeavyliftError("GW020", {"detail": str(problem)}) from problem

    def _recover(self, holder: str) -> list[Lost]:
        path = _lock_path(self._folder, holder)
        try:
            with writer_lock(path), self._alone, self.database.transaction():
                found = self._books.charge_lost(holder)
        except HeavyliftError as error:
            if error.code in ("STA004", "STA005"):  # busy; or alive
                return []
            raise
        path.with_name(f"{path.name}.writer").unlink(missing_ok=True)
        return found

    def sweep(self) -> None:
        """Forget slices that no longer count. Left for the next time when the database is busy."""
        with (
            contextlib.suppress(HeavyliftError, sqlite3.Error),
            self._alone,
            self.database.transaction(),
        ):
            self._books.forget_before(self.now().first_slice)

    def checkpoint(self) -> None:
        """Carry what was written into the main file, synced. For a thread: it waits for the disk.

        A connection of its own, so that the event loop's is not held.
        """
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(self._folder / DATABASE)) as own,
        ):
            own.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def open_requests(self) -> int:
        """How many requests hold a reservation, of all gateways together."""
        return self.store.open_requests()


@contextlib.contextmanager
def open_ledger(
    folder: Path,
    *,
    steady: Clock | None = None,
    epoch: Clock = time.time,
    boot_id: str | None = None,
) -> Iterator[Ledger]:
    """The ledger in a folder, held by this process until the block is left.

    `steady` is a clock shared by all processes of the host that never jumps. Raises as
    `db.open_database`.
    """
    holder = uuid.uuid4().hex
    lock = _lock_path(folder, holder)
    with (
        contextlib.closing(open_database(folder / DATABASE, SCHEMA)) as connection,
        contextlib.closing(open_database(folder / DATABASE, SCHEMA)) as desk,
        writer_lock(lock),
    ):
        _note_boot(connection, boot_id if boot_id is not None else _boot_id())
        for each in (connection, desk):
            each.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            each.execute("PRAGMA synchronous = NORMAL")
            each.execute("PRAGMA wal_autocheckpoint = 0")
        database = SqliteDatabase(connection)
        ledger = Ledger(
            database,
            SqliteDatabase(desk),
            Books(database, holder),
            folder=folder,
            clocks=(steady or _steady_s, epoch),
        )
        try:
            with contextlib.closing(ledger):
                yield ledger
        finally:
            lock.with_name(f"{lock.name}.writer").unlink(missing_ok=True)


def _lock_path(folder: Path, holder: str) -> Path:
    return folder / "holders" / holder


def _steady_s() -> float:
    """Seconds since the host started, the time asleep included."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:  # not Linux
        return ""


def _note_boot(connection: sqlite3.Connection, boot_id: str) -> None:
    """Forget the slices of an earlier boot: their clock began anew."""
    with transaction(connection):
        known = connection.execute("SELECT id FROM boot").fetchone()
        if known is not None and known[0] == boot_id:
            return
        connection.execute("DELETE FROM slice")
        connection.execute("DELETE FROM boot")
        connection.execute("INSERT INTO boot (id) VALUES (?)", (boot_id,))
