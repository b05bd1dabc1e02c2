"""The ledger and the key store in Postgres, for gateways on several hosts.

The rows and the rules are those of the file (see `books`); what differs is how writers take turns,
whose clock counts, and how the end of a process is known:

- One row holds the clock. Every transaction begins by moving it on, which locks it: writers of all
  hosts take turns. The clock is the server's and never goes back, so hosts need not agree on time.
- A gateway holds an advisory lock of its session for as long as it is connected. Rows whose holder
  has none are charged their bound by whoever looks next. A gateway that is cut off and connects
  again takes its rows over, as far as nobody has charged them.
- Writing waits for the network, so a thread does it; all that came meanwhile is written together.
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from heavylift.errors import HeavyliftError
from heavylift.gateway import quota
from heavylift.gateway.books import Books, Lost, Settlement
from heavylift.gateway.database import Rows, Values
from heavylift.gateway.keys import Key
from heavylift.gateway.ledger import Clock, Ledger, Waiting
from heavylift.gateway.store import Store
from heavylift.gateway.writer import Writer

T = TypeVar("T")

_SCHEMA: Final = "heavylift_gateway"
_VERSION: Final = 1
_SETUP_LOCK: Final = 4_891_273_001
_SETTINGS: Final = (
    f"-c search_path={_SCHEMA}"
    # What waits longer than this is tried again; a frozen host must not hold the others up.
    " -c lock_timeout=2s -c statement_timeout=5s -c idle_in_transaction_session_timeout=5s"
    # A host that is cut off without a word: its lock is given back within half a minute.
    " -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
)

_TABLES: Final = (
    "CREATE TABLE schema_version (version INTEGER NOT NULL)",
    "CREATE TABLE clock (at DOUBLE PRECISION NOT NULL)",
    "INSERT INTO clock VALUES (0)",
    """
    CREATE TABLE key (
        number BIGINT GENERATED ALWAYS AS IDENTITY,
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        team TEXT,
        record BYTEA NOT NULL
    )
    """,
    "CREATE TABLE team (name TEXT PRIMARY KEY, limits BYTEA NOT NULL)",
    """
    CREATE TABLE open_request (
        id BIGINT PRIMARY KEY,
        holder TEXT NOT NULL,
        key_id TEXT NOT NULL,
        team TEXT,
        model TEXT NOT NULL,
        prompt_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL,
        slice BIGINT NOT NULL,
        day BIGINT NOT NULL,
        began_at DOUBLE PRECISION NOT NULL
    )
    """,
    "CREATE INDEX open_of_key ON open_request (key_id)",
    "CREATE INDEX open_of_team ON open_request (team) WHERE team IS NOT NULL",
    """
    CREATE TABLE slice (
        subject TEXT NOT NULL,
        number BIGINT NOT NULL,
        requests BIGINT NOT NULL,
        tokens BIGINT NOT NULL,
        PRIMARY KEY (subject, number)
    )
    """,
    """
    CREATE TABLE usage (
        key_id TEXT NOT NULL,
        day BIGINT NOT NULL,
        team TEXT NOT NULL,
        model TEXT NOT NULL,
        requests BIGINT NOT NULL,
        prompt_tokens BIGINT NOT NULL,
        completion_tokens BIGINT NOT NULL,
        cached_tokens BIGINT NOT NULL,
        estimated BIGINT NOT NULL,
        PRIMARY KEY (key_id, day, team, model)
    )
    """,
    "CREATE INDEX usage_of_team ON usage (team, day)",
)
_TICK: Final = """
UPDATE clock SET at = greatest(at, extract(epoch FROM clock_timestamp())) RETURNING at
"""


class PostgresDatabase:
    """A connection, made again when it was lost. For one thread at a time."""

    in_order = "key.number"

    def __init__(
        self, url: str, *, on_connect: Callable[[PostgresDatabase], None] | None = None
    ) -> None:
        """`on_connect` is called with every new connection, before anything else uses it."""
        self._driver = _driver()
        self._url = url
        self._on_connect = on_connect
        self._connection: Any = None
        self._inside = False
        self.at = 0.0
        """The clock, at the beginning of the latest transaction: epoch seconds."""

    def open(self) -> None:
        """Connect. Raises GW023 when that is not possible."""
        self.close()
        try:
            self._connection = self._driver.connect(
                self._url,
                autocommit=True,
                connect_timeout=5,
                options=_SETTINGS,
                application_name="heavylift gateway",
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
            )
            self._inside = False
            if self._on_connect is not None:
                self._on_connect(self)
        except self._driver.Error as problem:
            self.close()
            raise _unreachable(problem) from problem

    def close(self) -> None:
        """Give the connection up, and with it the locks of its session."""
        if self._connection is not None:
            with contextlib.suppress(self._driver.Error):
                self._connection.close()
        self._connection = None

    def execute(self, statement: str, values: Values = ()) -> Rows:
        """As `Database.execute`. Raises GW023."""
        try:
            return self._execute(statement, values)
        except HeavyliftError:
            # Outside of a transaction we only read and begin, which may be done again.
            if self._inside or self._connection is None or not self._connection.closed:
                raise
            return self._execute(statement, values)

    def _execute(self, statement: str, values: Values) -> Rows:
        cursor: Rows = self._tried(lambda: self._open().execute(_ours(statement), values))
        return cursor

    def execute_each(self, statement: str, rows: Iterable[Values]) -> None:
        """As `Database.execute_each`. Raises GW023."""
        self._tried(lambda: self._open().cursor().executemany(_ours(statement), rows))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """As `Database.transaction`; moves the clock on. Raises GW023."""
        self.execute("BEGIN")
        self._inside = True
        try:
            self.at = self.execute(_TICK).fetchone()[0]
            yield
            self.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(HeavyliftError):
                self.execute("ROLLBACK")
            raise
        finally:
            self._inside = False

    def _open(self) -> Any:
        if self._connection is None or self._connection.closed:
            if self._inside:  # what was begun is gone with its connection
                raise HeavyliftError("GW023", {"detail": "connection_lost"})
            self.open()
        return self._connection

    def _tried(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except self._driver.Error as problem:
            raise _unreachable(problem) from problem


class PostgresLedger(Ledger):
    """The ledger of one gateway among those of several hosts. Made by `open_remote_ledger`."""

    def __init__(
        self,
        database: PostgresDatabase,
        desk: PostgresDatabase,
        books: Books,
        *,
        clocks: tuple[Clock, Clock] | None = None,
    ) -> None:
        """`desk` is the connection for keys and usage: a look at a key waits for no write."""
        super().__init__(
            database,
            desk,
            books,
            clocks=clocks or (lambda: database.at, lambda: database.at),
            folder=Path(),
        )
        self._clerk = Writer("keys")

    async def key(self, key_id: str) -> Key | None:
        """As `Ledger.key`. Raises GW023."""
        return await self.manage(lambda store: store.key(key_id))

    async def manage(self, work: Callable[[Store], T]) -> T:
        """As `Ledger.manage`, in a thread of its own. Raises GW023."""
        return await self._clerk.do(lambda: work(self.store))

    def flush(self) -> bool:
        """As `Ledger.flush`, but the writing has only begun when it returns."""
        if self._waiting or self._settles:
            self._flush()
        return not self.waits

    def _try_again(self, waiting: list[Waiting], problem: Exception) -> None:
        # A connection that is lost at its end leaves it open whether all was written.
        self._settles.extend(Settlement(made, quota.NOTHING) for made in self._books.attempted)
        super()._try_again(waiting, problem)

    def _recover(self, holder: str) -> list[Lost]:
        with self.database.transaction():
            free = "SELECT pg_try_advisory_xact_lock(?)"
            if not self.database.execute(free, (_lock_number(holder),)).fetchone()[0]:
                return []  # alive
            return self._books.charge_lost(holder)

    def checkpoint(self) -> None:
        """Nothing: the server sees to its own."""

    def close(self) -> None:
        """End the threads."""
        super().close()
        self._clerk.close()


@contextlib.contextmanager
def open_remote_ledger(
    url: str, *, steady: Clock | None = None, epoch: Clock | None = None
) -> Iterator[PostgresLedger]:
    """The ledger in a Postgres database, held by this process until the block is left.

    `steady` and `epoch` take the place of the server's clock. Raises GW022 without the extra, GW023
    when the database cannot be used, STA001 when a newer program made it.
    """
    books: Books | None = None

    def hold(database: PostgresDatabase) -> None:
        """Take a lock under a new name, and what is still there under the one before."""
        holder = uuid.uuid4().hex
        database.execute("SELECT pg_advisory_lock(?)", (_lock_number(holder),))
        if books is not None:
            with database.transaction():
                database.execute(
                    "UPDATE open_request SET holder = ? WHERE holder = ?", (holder, books.holder)
                )
            books.holder = holder
        else:
            first.append(holder)

    first: list[str] = []
    _set_up(url)
    database = PostgresDatabase(url, on_connect=hold)
    desk = PostgresDatabase(url)
    with contextlib.closing(database), contextlib.closing(desk):
        database.open()
        desk.open()
        books = Books(database, first[0])
        clocks = None if steady is None or epoch is None else (steady, epoch)
        with contextlib.closing(PostgresLedger(database, desk, books, clocks=clocks)) as ledger:
            yield ledger


@contextlib.contextmanager
def open_remote_store(url: str) -> Iterator[Store]:
    """The keys and the usage in a Postgres database. Raises as `open_remote_ledger`."""
    _set_up(url)
    database = PostgresDatabase(url)
    with contextlib.closing(database):
        database.open()
        yield Store(database)


def _set_up(url: str) -> None:
    """Make the tables if they are not there."""
    database = PostgresDatabase(url)
    with contextlib.closing(database):
        database.execute("SELECT pg_advisory_lock(?)", (_SETUP_LOCK,))
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}")
        there = database.execute(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = ?",
            (_SCHEMA, "schema_version"),
        ).fetchone()
        if there is None:
            database.execute("BEGIN")
            for statement in _TABLES:
                database.execute(statement)
            database.execute("INSERT INTO schema_version VALUES (?)", (_VERSION,))
            database.execute("COMMIT")
        found = database.execute("SELECT version FROM schema_version").fetchone()[0]
        if found > _VERSION:
            raise HeavyliftError("STA001", {"path": _SCHEMA, "found": found, "known": _VERSION})


def _driver() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError as problem:
        raise HeavyliftError("GW022", hint_command="pip install 'heavylift[postgres]'") from problem
    return psycopg


def _lock_number(holder: str) -> int:
    return int(holder[:15], 16)


@functools.lru_cache(maxsize=1024)
def _ours(statement: str) -> bytes:
    """The statement with the marks that the driver wants."""
    return statement.replace("?", "%s").encode()


def _unreachable(problem: Exception) -> HeavyliftError:
    return HeavyliftError("GW023", {"detail": " ".join(str(problem).split())})
