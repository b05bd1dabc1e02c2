"""The ledger: reserves before a request is admitted and settles when it has ended.

Reservations are rows, written before the request goes to an engine and taken away with its cost
in the same transaction. A gateway process holds a lock for as long as it lives; rows whose holder
is gone are charged their bound by whichever gateway notices first, so that a killed gateway
neither leaks a reservation nor gives anything away.

The event loop does the writing itself: a transaction takes some tens of microseconds, less than a
trip to another thread, and all that came in one turn of the loop share one. A transaction is safe
from the end of the process at once and from a power cut after the next checkpoint, which a thread
makes every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.gateway import quota
from heavylift.gateway.keys import Key
from heavylift.gateway.quota import Bound, Cost, Limits, Moment, Refusal, Slice, Taken
from heavylift.gateway.store import DATABASE, SCHEMA, Store
from heavylift.state.db import open_database, transaction, writer_lock

_BUSY_MS: Final = 5
"""How long a write waits inside the event loop for another process; then it is tried again."""
_RETRY_S: Final = 0.005
_GIVE_UP_S: Final = 5.0
_SETTLE_DELAY_S: Final = 0.01
"""How long a settlement waits for company: it is in no hurry, its reservation still stands."""
_LEAST_OUTPUT: Final = 16
"""An open-ended answer is shortened to what the quota has left, but not below this."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

Steady = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """An admitted request. `bound` is what it may cost, with an open length made definite.

    `tokens_left` and `requests_left` are what the key has after it; None = not limited.
    """

    id: int
    key_id: str
    bound: Bound
    tokens_left: int | None
    requests_left: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """A request whose gateway died, and what it was charged."""

    key_id: str
    model: str
    began_at: float
    cost: Cost


@dataclass(frozen=True, slots=True)
class _Held:
    """A row of `open_request`: whose it is, where it counts, and the most it may cost."""

    id: int
    key_id: str
    team: str | None
    model: str
    slice: int
    day: int
    began_at: float
    prompt_tokens: int
    output_tokens: int


_HELD: Final = ", ".join(field.name for field in fields(_Held))


@dataclass(slots=True)
class _Reserve:
    key: Key
    model: str
    bound: Bound
    since: float
    answer: asyncio.Future[Reservation | Refusal]


@dataclass(frozen=True, slots=True)
class _Settle:
    id: int
    cost: Cost


class Ledger:
    """The ledger of one gateway process. Made by `open_ledger`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        folder: Path,
        holder: str,
        *,
        steady: Steady,
        epoch: Callable[[], float],
    ) -> None:
        self.store = Store(connection)
        self._connection = connection
        self._folder = folder
        self._holder = holder
        self._steady = steady
        self._epoch = epoch
        self._reserves: deque[_Reserve] = deque()
        self._settles: deque[_Settle] = deque()
        self._timer: asyncio.Handle | None = None
        self._hurry = False

    def now(self) -> Moment:
        """Now, on both clocks."""
        return Moment(steady_s=self._steady(), epoch_s=self._epoch())

    # --- for the event loop ---------------------------------------------------------------------

    async def reserve(self, key: Key, model: str, bound: Bound) -> Reservation | Refusal:
        """The reservation of a request, or why it is not admitted.

        Raises GW020 when the ledger cannot be written: without it nothing is admitted.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reservation | Refusal] = loop.create_future()
        self._reserves.append(_Reserve(key, model, bound, loop.time(), answer))
        self._flush_soon()
        try:
            return await answer
        except asyncio.CancelledError:
            # Admitted in the same turn in which the client went: nobody else knows of the row.
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                given = answer.result()
                if isinstance(given, Reservation):
                    self.settle(given.id, quota.NOTHING)
            raise

    def settle(self, reservation_id: int, cost: Cost) -> None:
        """Put the cost in the place of the reservation. Never fails: it is tried until it is done;
        until then the reservation stands.
        """
        self._settles.append(_Settle(reservation_id, cost))
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

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._hurry = None, False
        reserves = [one for one in self._reserves if not one.answer.done()]
        self._reserves.clear()
        settles = list(self._settles)
        if not reserves and not settles:
            return
        now = self.now()
        try:
            with transaction(self._connection):
                for done in settles:
                    self._do_settle(done.id, done.cost)
                answers = [self._do_reserve(one.key, one.model, one.bound, now) for one in reserves]
        except (HeavyliftError, sqlite3.Error) as problem:
            self._try_again(reserves, problem)
            return
        self._settles.clear()
        for one, answer in zip(reserves, answers, strict=True):
            one.answer.set_result(answer)

    def _try_again(self, reserves: list[_Reserve], problem: Exception) -> None:
        """Another process holds the lock, or the disk is full: keep what can wait a little."""
        loop = asyncio.get_running_loop()
        busy = isinstance(problem, HeavyliftError)
        for one in reserves:
            if busy and loop.time() - one.since < _GIVE_UP_S:
                self._reserves.append(one)
            else:
                one.answer.set_exception(HeavyliftError("GW020", {"detail": str(problem)}))
        self._timer = loop.call_later(_RETRY_S if busy else 1.0, self._flush)

    # --- statements -----------------------------------------------------------------------------

    def _do_reserve(self, key: Key, model: str, bound: Bound, now: Moment) -> Reservation | Refusal:
        subjects = [("key_id", key.id, key.limits)]
        if key.team is not None and key.team_limits.any:
            subjects.append(("team", key.team, key.team_limits))
        taken = [
            (limits, self._taken(column, name, limits, now)) for column, name, limits in subjects
        ]
        lefts = [quota.tokens_left(limits, used, now) for limits, used in taken]
        left = min((some for some in lefts if some is not None), default=None)
        definite = replace(bound, output_tokens=bound.shortened(left, _LEAST_OUTPUT), elastic=False)
        for limits, used in taken:
            refusal = quota.judge(limits, used, definite.tokens, now)
            if refusal is not None:
                return refusal
        cursor = self._connection.execute(
            """
            INSERT INTO open_request
                (holder, key_id, team, model, prompt_tokens, output_tokens, slice, day, began_at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            (
                self._holder,
                key.id,
                key.team,
                model,
                definite.prompt_tokens,
                definite.output_tokens,
                now.slice,
                now.day,
                now.epoch_s,
            ),
        )
        requests_left = quota.requests_left(*taken[0], now)
        return Reservation(
            id=cursor.lastrowid or 0,
            key_id=key.id,
            bound=definite,
            tokens_left=None if left is None else left - definite.tokens,
            requests_left=None if requests_left is None else requests_left - 1,
        )

    def _taken(self, column: str, name: str, limits: Limits, now: Moment) -> Taken:
        """What a key or team has taken, as far as its limits ask."""
        if not limits.any:
            return Taken()
        still_open = self._connection.execute(
            f"""
            SELECT slice, day, count(*), sum(prompt_tokens + output_tokens)
            FROM open_request WHERE {column} = ? GROUP BY slice, day
            """,  # noqa: S608 - one of two column names written in `_do_reserve`
            (name,),
        ).fetchall()
        return Taken(
            slices=self._slices(column, name, still_open, now) if limits.by_minute else (),
            day_settled_tokens=(
                0 if limits.tokens_per_day is None else self._day_tokens(column, name, now.day)
            ),
            # A request that was open at midnight is charged to the day it began in.
            day_open_tokens=sum(tokens for _, day, _, tokens in still_open if day == now.day),
            open_requests=sum(count for _, _, count, _ in still_open),
        )

    def _slices(
        self, column: str, name: str, still_open: list[tuple[int, int, int, int]], now: Moment
    ) -> tuple[Slice, ...]:
        rows = self._connection.execute(
            "SELECT number, requests, tokens FROM slice WHERE subject = ? AND number >= ?",
            (f"{column}:{name}", now.first_slice),
        )
        settled = [
            Slice(number=number, requests=requests, settled_tokens=tokens)
            for number, requests, tokens in rows
        ]
        return (
            *settled,
            *(
                Slice(number=number, requests=count, open_tokens=tokens)
                for number, _, count, tokens in still_open
            ),
        )

    def _day_tokens(self, column: str, name: str, day: int) -> int:
        tokens: int = self._connection.execute(
            f"""
            SELECT coalesce(sum(prompt_tokens + completion_tokens), 0)
            FROM usage WHERE {column} = ? AND day = ?
            """,  # noqa: S608 - as in `_taken`
            (name, day),
        ).fetchone()[0]
        return tokens

    def _do_settle(self, reservation_id: int, cost: Cost) -> None:
        """Charge a request. Doing it again changes nothing: its row is gone."""
        row = self._connection.execute(
            f"DELETE FROM open_request WHERE id = ? RETURNING {_HELD}",  # noqa: S608 - our own names
            (reservation_id,),
        ).fetchone()
        if row is not None:
            self._charge(_Held(*row), cost)

    def _charge(self, held: _Held, cost: Cost) -> None:
        subjects = [f"key_id:{held.key_id}"]
        if held.team is not None:
            subjects.append(f"team:{held.team}")
        for subject in subjects:
            self._connection.execute(
                """
                INSERT INTO slice (subject, number, requests, tokens) VALUES (?, ?, 1, ?)
                ON CONFLICT (subject, number)
                DO UPDATE SET requests = requests + 1, tokens = tokens + excluded.tokens
                """,
                (subject, held.slice, cost.tokens),
            )
        self._connection.execute(
            """
            INSERT INTO usage VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?)
            ON CONFLICT (key_id, day, team, model) DO UPDATE SET
                requests = requests + 1,
                prompt_tokens = prompt_tokens + excluded.prompt_tokens,
                completion_tokens = completion_tokens + excluded.completion_tokens,
                cached_tokens = cached_tokens + excluded.cached_tokens,
                estimated = estimated + excluded.estimated
            """,
            (
                held.key_id,
                held.day,
                held.team or "",
                held.model,
                cost.prompt_tokens,
                cost.completion_tokens,
                cost.cached_tokens,
                int(cost.estimated),
            ),
        )

    # --- housekeeping ---------------------------------------------------------------------------

    def recover(self) -> tuple[Lost, ...]:
        """Charge the requests of gateways that are gone. Raises GW020 when that cannot be written.

        A gateway is gone when nobody holds its lock: the kernel gives the lock back however the
        process ends, and no later process takes the same name.
        """
        try:
            holders = self._connection.execute(
                "SELECT DISTINCT holder FROM open_request WHERE holder <> ?", (self._holder,)
            ).fetchall()
            return tuple(lost for (holder,) in holders for lost in self._recover(holder))
        except sqlite3.Error as problem:
            raise HeavyliftError("GW020", {"detail": str(problem)}) from problem

    def _recover(self, holder: str) -> list[Lost]:
        path = _lock_path(self._folder, holder)
        try:
            with writer_lock(path), transaction(self._connection):
                found = [self._charge_lost(held) for held in self._held_by(holder)]
        except HeavyliftError as error:
            if error.code in ("STA004", "STA005"):  # busy; or alive
                return []
            raise
        path.with_name(f"{path.name}.writer").unlink(missing_ok=True)
        return found

    def _held_by(self, holder: str) -> list[_Held]:
        query = f"SELECT {_HELD} FROM open_request WHERE holder = ?"  # noqa: S608 - our own names
        return [_Held(*row) for row in self._connection.execute(query, (holder,)).fetchall()]

    def _charge_lost(self, held: _Held) -> Lost:
        bound = Bound(prompt_tokens=held.prompt_tokens, output_tokens=held.output_tokens)
        cost = quota.lost(bound)
        self._do_settle(held.id, cost)
        return Lost(key_id=held.key_id, model=held.model, began_at=held.began_at, cost=cost)

    def sweep(self) -> None:
        """Forget slices that no longer count. Left for the next time when the database is busy."""
        with contextlib.suppress(HeavyliftError, sqlite3.Error), transaction(self._connection):
            self._connection.execute(
                "DELETE FROM slice WHERE number < ?", (self.now().first_slice,)
            )

    def checkpoint(self) -> None:
        """Carry what was written into the main file, synced. For a thread: it waits for the disk.

        A connection of its own, so that the event loop's is not held.
        """
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(self._folder / DATABASE)) as connection,
        ):
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def open_requests(self) -> int:
        """How many requests hold a reservation, of all gateways together."""
        count: int = self._connection.execute("SELECT count(*) FROM open_request").fetchone()[0]
        return count


@contextlib.contextmanager
def open_ledger(
    folder: Path,
    *,
    steady: Steady | None = None,
    epoch: Callable[[], float] = time.time,
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
        try:
            yield Ledger(connection, folder, holder, steady=steady or _steady_s, epoch=epoch)
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
