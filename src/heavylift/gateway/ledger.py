"""The ledger: reserves before a request is admitted and settles when it has ended.

Reservations are rows, written before the request goes to an engine and taken away with its cost
in the same transaction. A gateway process holds a lock for as long as it lives; rows whose holder
is gone are charged their bound by whichever gateway notices first, so that a killed gateway
neither leaks a reservation nor gives anything away.

On a host's own file the event loop does the writing itself: a transaction takes some tens of
microseconds, less than a trip to another thread, and all that came in one turn of the loop share
one. A transaction is safe from the end of the process at once and from a power cut after the next
checkpoint, which a thread makes every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from heavylift.errors import HeavyliftError
from heavylift.gateway import quota
from heavylift.gateway.books import Books, Lost, Reservation, Settlement, Wish
from heavylift.gateway.database import Database, SqliteDatabase
from heavylift.gateway.keys import Key
from heavylift.gateway.quota import Bound, Cost, Moment, Refusal
from heavylift.gateway.store import DATABASE, SCHEMA, Store
from heavylift.state.db import open_database, transaction, writer_lock

__all__ = ["Ledger", "Lost", "Reservation", "open_ledger"]

T = TypeVar("T")
Clock = Callable[[], float]

_BUSY_MS: Final = 5
"""How long a write waits inside the event loop for another process; then it is tried again."""
_RETRY_S: Final = 0.005
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


class Ledger:
    """The ledger of one gateway process. Made by `open_ledger`."""

    def __init__(
        self,
        database: Database,
        books: Books,
        *,
        clocks: tuple[Clock, Clock],
        folder: Path,
    ) -> None:
        """`clocks`: one that never jumps, and the wall clock. `folder`: of the locks of holders."""
        self.store = Store(database)
        self.database = database
        self._books = books
        self._clocks = clocks
        self._folder = folder
        self._waiting: deque[Waiting] = deque()
        self._settles: deque[Settlement] = deque()
        self._timer: asyncio.Handle | None = None
        self._hurry = False

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
        return work(self.store)

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
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SETTLE_DELAY_S, self._flush)

    def flush(self) -> bool:
        """Write what waits, at once; True when nothing waits any more."""
        self._flush()
        return not self._settles

    def _flush_soon(self) -> None:
        if self._hurry:
            return
        self._hurry = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_soon(self._flush)

    def _take(self) -> tuple[list[Waiting], list[Settlement]]:
        """What waits. Settlements stay until they are written."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._hurry = None, False
        waiting = [one for one in self._waiting if not one.answer.done()]
        self._waiting.clear()
        return waiting, list(self._settles)

    def _flush(self) -> None:
        waiting, settles = self._take()
        if not waiting and not settles:
            return
        try:
            answers = self._write(waiting, settles)
        except (HeavyliftError, sqlite3.Error) as problem:
            self._try_again(waiting, problem)
        else:
            self._done(waiting, settles, answers)

    def _write(
        self, waiting: list[Waiting], settles: list[Settlement]
    ) -> list[Reservation | Refusal]:
        self._books.attempted.clear()
        with self.database.transaction():
            return self._books.book(settles, [one.wish for one in waiting], self.now())

    def _done(
        self,
        waiting: list[Waiting],
        settles: list[Settlement],
        answers: list[Reservation | Refusal],
    ) -> None:
        for _ in settles:
            self._settles.popleft()
        for one, answer in zip(waiting, answers, strict=True):
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

    # --- housekeeping ---------------------------------------------------------------------------

    async def tidy(self) -> tuple[Lost, ...]:
        """Forget what no longer counts, and `recover`."""
        self.sweep()
        return self.recover()

    def recover(self) -> tuple[Lost, ...]:
        """Charge the requests of gateways that are gone. Raises GW020 when that cannot be written.

        A gateway is gone when nobody holds its lock: it is given back however the process ends,
        and no later process takes the same name.
        """
        try:
            holders = self._books.other_holders()
            return tuple(lost for holder in holders for lost in self._recover(holder))
        except sqlite3.Error as problem:
            raise HeavyliftError("GW020", {"detail": str(problem)}) from problem

    def _recover(self, holder: str) -> list[Lost]:
        path = _lock_path(self._folder, holder)
        try:
            with writer_lock(path), self.database.transaction():
                found = self._books.charge_lost(holder)
        except HeavyliftError as error:
            if error.code in ("STA004", "STA005"):  # busy; or alive
                return []
            raise
        path.with_name(f"{path.name}.writer").unlink(missing_ok=True)
        return found

    def sweep(self) -> None:
        """Forget slices that no longer count. Left for the next time when the database is busy."""
        with contextlib.suppress(HeavyliftError, sqlite3.Error), self.database.transaction():
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
        writer_lock(lock),
    ):
        _note_boot(connection, boot_id if boot_id is not None else _boot_id())
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        database = SqliteDatabase(connection)
        try:
            yield Ledger(
                database,
                Books(database, holder),
                folder=folder,
                clocks=(steady or _steady_s, epoch),
            )
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
