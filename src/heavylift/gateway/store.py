"""The gateway's database: keys, teams, and what has been used.

One file that every gateway process of a host and the command line share. What open requests hold
is in `open_request`, what finished ones cost in `usage` and `slice`; nothing is counted twice, so
a sum cannot drift from what it sums up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.facts.price_schema import ApiPriceFacts
from heavylift.gateway.cost import ModelUse, cost_usd
from heavylift.gateway.database import Database, SqliteDatabase
from heavylift.gateway.keys import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    Created,
    Key,
    Scope,
    check_name,
    check_network,
    digest,
    make_secret,
    shown,
)
from heavylift.gateway.quota import NO_LIMITS, Limits
from heavylift.state import paths
from heavylift.state.db import Schema, open_database

DATABASE: Final = "gateway.db"
AUDIT: Final = "audit.jsonl"

SCHEMA: Final = Schema(
    migrations=(
        (
            """
            CREATE TABLE key (
                id TEXT PRIMARY KEY,
                name TEXT NOT NULL,
                team TEXT,
                record BLOB NOT NULL
            ) STRICT
            """,
            "CREATE TABLE team (name TEXT PRIMARY KEY, limits BLOB NOT NULL) STRICT",
            """
            CREATE TABLE open_request (
                id INTEGER PRIMARY KEY,
                holder TEXT NOT NULL,
                key_id TEXT NOT NULL,
                team TEXT,
                model TEXT NOT NULL,
                prompt_tokens INTEGER NOT NULL,
                output_tokens INTEGER NOT NULL,
                slice INTEGER NOT NULL,
                day INTEGER NOT NULL,
                began_at REAL NOT NULL
            ) STRICT
            """,
            """
            CREATE INDEX open_of_key
            ON open_request (key_id, slice, day, prompt_tokens, output_tokens)
            """,
            """
            CREATE INDEX open_of_team
            ON open_request (team, slice, day, prompt_tokens, output_tokens)
            WHERE team IS NOT NULL
            """,
            """
            CREATE TABLE slice (
                subject TEXT NOT NULL,
                number INTEGER NOT NULL,
                requests INTEGER NOT NULL,
                tokens INTEGER NOT NULL,
                PRIMARY KEY (subject, number)
            ) STRICT, WITHOUT ROWID
            """,
            """
            CREATE TABLE usage (
                key_id TEXT NOT NULL,
                day INTEGER NOT NULL,
                team TEXT NOT NULL,
                model TEXT NOT NULL,
                requests INTEGER NOT NULL,
                prompt_tokens INTEGER NOT NULL,
                completion_tokens INTEGER NOT NULL,
                cached_tokens INTEGER NOT NULL,
                estimated INTEGER NOT NULL,
                PRIMARY KEY (key_id, day, team, model)
            ) STRICT, WITHOUT ROWID
            """,
            "CREATE INDEX usage_of_team ON usage (team, day)",
            "CREATE TABLE boot (id TEXT NOT NULL) STRICT",
        ),
    ),
)

Grouping = Literal["key", "team", "day"]
_KEY: Final = msgspec.json.Decoder(Key)
_LIMITS: Final = msgspec.json.Decoder(Limits)
_MOST_KNOWN: Final = 10_000
_KEY_OF_ID: Final = """
SELECT key.record, team.limits FROM key LEFT JOIN team ON team.name = key.team WHERE key.id = ?
"""
_COLUMNS: Final[dict[Grouping, str]] = {"key": "key_id", "team": "team", "day": "day"}
_SUMS: Final = ", ".join(
    f"CAST(sum({name}) AS BIGINT)"
    for name in ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "estimated")
)


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a key, a team or a day used. `estimated` counts requests whose engine did not say all.

    Only the field it is grouped by is set: `key_id` with `name`, `team`, or `day` (UTC date).
    `cost_usd_low` and `cost_usd_high` are what it would have cost at providers, absent where a
    model has no known price.
    """

    key_id: str | None = None
    name: str | None = None
    team: str | None = None
    day: str | None = None
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    estimated: int
    cost_usd_low: float | None = None
    cost_usd_high: float | None = None


class Store:
    """Keys, teams and usage. Every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, tuple[tuple[bytes, bytes | None], Key]] = {}

    def create_key(
        self,
        name: str,
        *,
        now_epoch_s: float,
        scope: Scope = Scope.INFER,
        team: str | None = None,
        models: tuple[str, ...] = (),
        networks: tuple[str, ...] = (),
        limits: Limits = NO_LIMITS,
        max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS,
        expires_at: float | None = None,
        batches: bool = False,
        unique: bool = False,
    ) -> Created:
        """A new key. Raises GW010 and GW011 for a name or a network that is none, GW015 when the
        name shall be `unique` and a live key has it.
        """
        key_id, key = make_secret()
        record = Key(
            id=key_id,
            name=check_name(name),
            shown=shown(key),
            digest=digest(key),
            scope=scope,
            team=None if team is None else check_name(team),
            models=models,
            networks=tuple(check_network(network) for network in networks),
            limits=limits,
            max_output_tokens=max_output_tokens,
            batches=batches,
            created_at=now_epoch_s,
            expires_at=expires_at,
        )
        with self._database.transaction():
            if unique:
                self._refuse_taken(name, now_epoch_s)
            self._database.execute(
                "INSERT INTO key (id, name, team, record) VALUES (?, ?, ?, ?)",
                (key_id, name, team, msgspec.json.encode(record)),
            )
        return _created(record, key)

    def rotate_key(self, id_or_name: str, *, now_epoch_s: float, grace_s: float) -> Created:
        """A new secret for the same key; the one before is good for `grace_s` more.

        Raises GW012 when no key that is not revoked has this id or name, GW013 when several have.
        """
        with self._database.transaction():
            record = self._one(id_or_name)
            _, other = make_secret()
            key = f"{other[:3]}{record.id}{other[3 + len(record.id) :]}"
            rotated = replace(
                record,
                shown=shown(key),
                digest=digest(key),
                previous_digest=record.digest,
                previous_until=now_epoch_s + grace_s,
            )
            self._save(rotated)
        return _created(rotated, key)

    def revoke_key(self, id_or_name: str, *, now_epoch_s: float) -> Key:
        """The key, which from now on opens nothing. Raises as `rotate_key`."""
        with self._database.transaction():
            revoked = replace(self._one(id_or_name), revoked_at=now_epoch_s)
            self._save(revoked)
        return revoked

    def set_team(self, name: str, limits: Limits) -> None:
        """Give a team its limits. They count for the keys of the team together."""
        check_name(name)
        with self._database.transaction():
            self._database.execute(
                """
                INSERT INTO team (name, limits) VALUES (?, ?)
                ON CONFLICT (name) DO UPDATE SET limits = excluded.limits
                """,
                (name, msgspec.json.encode(limits)),
            )

    def key(self, key_id: str) -> Key | None:
        """The key of this id, with the limits of its team; None when there is none."""
        row = self._database.execute(_KEY_OF_ID, (key_id,)).fetchone()
        if row is None:
            return None
        # What is kept is the decoding, never the record: a revocation counts at once.
        known = self._known.get(key_id)
        if known is None or known[0] != row:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[key_id] = row, _key(*row)
        return known[1]

    def keys(self) -> tuple[Key, ...]:
        """All keys, the revoked ones too, in the order of their making."""
        rows = self._database.execute(
            f"""
            SELECT key.record, team.limits FROM key LEFT JOIN team ON team.name = key.team
            ORDER BY {self._database.in_order}
            """  # noqa: S608 - a column of the database's own
        )
        return tuple(_key(*row) for row in rows.fetchall())

    def priced_usage(
        self, by: Grouping, prices: Sequence[ApiPriceFacts], *, since_day: int = 0
    ) -> tuple[Usage, ...]:
        """As `usage`, with what it would have cost at providers."""
        column = _COLUMNS[by]
        found = self._database.execute(
            f"""
            SELECT {column}, model, {_SUMS}
            FROM usage WHERE day >= ? GROUP BY {column}, model ORDER BY {column}
            """,  # noqa: S608 - one of three names
            (since_day,),
        ).fetchall()
        costs = [
            cost_usd(
                [
                    ModelUse(
                        model=model,
                        prompt_tokens=prompt,
                        completion_tokens=completion,
                        cached_tokens=cached,
                    )
                    for group, model, _, prompt, completion, cached, _ in found
                    if group == each
                ],
                prices,
            )
            for each in dict.fromkeys(row[0] for row in found)
        ]
        return tuple(
            row
            if cost is None
            else msgspec.structs.replace(row, cost_usd_low=cost[0], cost_usd_high=cost[1])
            for row, cost in zip(self.usage(by, since_day=since_day), costs, strict=True)
        )

    def usage(self, by: Grouping, *, since_day: int = 0) -> tuple[Usage, ...]:
        """What was used, summed by key, team or UTC day, from `since_day` (days since the epoch).

        Keys that used nothing have no row.
        """
        column = _COLUMNS[by]
        rows = self._database.execute(
            f"""
            SELECT {column}, {_SUMS}
            FROM usage WHERE day >= ? GROUP BY {column} ORDER BY {column}
            """,  # noqa: S608 - one of three names written above
            (since_day,),
        ).fetchall()
        names = dict(self._database.execute("SELECT id, name FROM key").fetchall())
        return tuple(_usage(by, names, *row) for row in rows)

    def open_requests(self) -> int:
        """How many requests hold a reservation, of all gateways together."""
        count: int = self._database.execute("SELECT count(*) FROM open_request").fetchone()[0]
        return count

    def _refuse_taken(self, name: str, now_epoch_s: float) -> None:
        rows = self._database.execute("SELECT record FROM key WHERE name = ?", (name,))
        for (record,) in rows.fetchall():
            key = _KEY.decode(record)
            expired = key.expires_at is not None and now_epoch_s >= key.expires_at
            if key.revoked_at is None and not expired:
                hint = f"heavylift keys rotate {key.id}"
                raise HeavyliftError("GW015", {"name": name, "id": key.id}, hint_command=hint)

    def _one(self, id_or_name: str) -> Key:
        rows = self._database.execute(
            "SELECT record FROM key WHERE id = ? OR name = ?", (id_or_name, id_or_name)
        )
        keys = [_KEY.decode(record) for (record,) in rows.fetchall()]
        live = [key for key in keys if key.revoked_at is None]
        if not live:
            raise HeavyliftError("GW012", {"key": id_or_name}, hint_command="heavylift keys list")
        if len(live) > 1:
            raise HeavyliftError(
                "GW013", {"name": id_or_name, "ids": ", ".join(key.id for key in live)}
            )
        return live[0]

    def _save(self, key: Key) -> None:
        self._database.execute(
            "UPDATE key SET record = ? WHERE id = ?", (msgspec.json.encode(key), key.id)
        )


def default_folder() -> Path:
    """Where this user's gateway keeps its database and its audit."""
    return paths.state_dir() / "gateway"


@contextlib.contextmanager
def open_store(folder: Path, *, must_exist: bool = False) -> Iterator[Store]:
    """The store in a folder, made if need be. Raises as `db.open_database`, and GW014 when it
    `must_exist` and does not.
    """
    if must_exist and not (folder / DATABASE).exists():
        raise HeavyliftError(
            "GW014", {"path": str(folder)}, hint_command="heavylift keys create NAME"
        )
    with contextlib.closing(open_database(folder / DATABASE, SCHEMA)) as connection:
        yield Store(SqliteDatabase(connection))


def _key(record: bytes, team_limits: bytes | None) -> Key:
    key = _KEY.decode(record)
    return key if team_limits is None else replace(key, team_limits=_LIMITS.decode(team_limits))


def _created(record: Key, key: str) -> Created:
    return Created(
        id=record.id,
        key=key,
        name=record.name,
        team=record.team,
        scope=record.scope,
        expires_at=record.expires_at,
    )


def _usage(by: Grouping, names: dict[str, str], group: str | int, *sums: int) -> Usage:
    requests, prompt_tokens, completion_tokens, cached_tokens, estimated = sums
    key_id = str(group) if by == "key" else None
    return Usage(
        key_id=key_id,
        name=None if key_id is None else names.get(key_id),
        team=str(group) if by == "team" else None,
        day=utc_date(int(group)) if by == "day" else None,
        requests=requests,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=cached_tokens,
        estimated=estimated,
    )


def utc_date(day: int) -> str:
    """A day of the ledger as a date."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()
