"""Deployments: what is wanted, runs, releases and receipts, kept on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.records.deployment import Deployment, RunState
from heavylift.records.plan import Layout
from heavylift.records.receipt import Receipt
from heavylift.records.release import Release, Verdict
from heavylift.state import paths
from heavylift.state.db import Schema, open_where_it_lies, transaction

SCHEMA: Final = Schema(
    migrations=(
        (
            """
            CREATE TABLE release (
                deployment TEXT NOT NULL,
                number INTEGER NOT NULL,
                verified INTEGER NOT NULL,
                record BLOB NOT NULL,
                PRIMARY KEY (deployment, number)
            ) STRICT
            """,
            """
            CREATE TABLE receipt (
                id INTEGER PRIMARY KEY,
                digest TEXT NOT NULL UNIQUE,
                model TEXT NOT NULL,
                variant TEXT NOT NULL,
                engine TEXT NOT NULL,
                rack TEXT NOT NULL,
                layout TEXT NOT NULL,
                taken_at TEXT NOT NULL,
                record BLOB NOT NULL
            ) STRICT
            """,
            "CREATE INDEX receipt_key ON receipt (model, variant, engine, rack, layout)",
        ),
        (
            "CREATE TABLE deployment (name TEXT PRIMARY KEY, record BLOB NOT NULL) STRICT",
            """
            CREATE TABLE run (
                number INTEGER PRIMARY KEY,
                id TEXT NOT NULL UNIQUE,
                deployment TEXT NOT NULL,
                record BLOB NOT NULL
            ) STRICT
            """,
            "CREATE INDEX run_deployment ON run (deployment, number)",
        ),
    ),
)

_VERIFY: Final = "verify"
_PASSED: Final = frozenset({"pass", "warn"})
"""A remark is no failure: a release with one can be gone back to."""


@contextlib.contextmanager
def _written() -> Iterator[None]:
    """Raises STA009 where the disk does not take what is written."""
    try:
        yield
    except sqlite3.OperationalError as problem:
        raise HeavyliftError("STA009", {"detail": str(problem)}) from problem


class Deployments:
    """The store of deployments, runs, releases and receipts. Every method is one transaction.

    Methods that write raise STA009 when the disk is full or takes nothing.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add_release(self, release: Release) -> Release:
        """The release as saved, with the next number of its deployment in place of its own."""
        with _written(), transaction(self._connection):
            query = "SELECT coalesce(max(number), 0) + 1 FROM release WHERE deployment = ?"
            number = self._connection.execute(query, (release.deployment,)).fetchone()[0]
            numbered = replace(release, number=number)
            self._connection.execute(
                "INSERT INTO release (deployment, number, verified, record) VALUES (?, ?, ?, ?)",
                (numbered.deployment, number, is_verified(numbered), msgspec.json.encode(numbered)),
            )
        return numbered

    def add_verdict(self, deployment: str, number: int, verdict: Verdict) -> Release:
        """The release with one more verdict. Raises STA006 when there is no such release."""
        with _written(), transaction(self._connection):
            release = self.release(deployment, number)
            judged = replace(release, verdicts=(*release.verdicts, verdict))
            self._connection.execute(
                "UPDATE release SET verified = ?, record = ? WHERE deployment = ? AND number = ?",
                (is_verified(judged), msgspec.json.encode(judged), deployment, number),
            )
        return judged

    def add_receipt_digest(self, deployment: str, number: int, digest: str) -> Release:
        """The release with the receipt its engine's log gave. Raises STA006 as `add_verdict`."""
        with _written(), transaction(self._connection):
            known = replace(self.release(deployment, number), receipt_digest=digest)
            self._connection.execute(
                "UPDATE release SET record = ? WHERE deployment = ? AND number = ?",
                (msgspec.json.encode(known), deployment, number),
            )
        return known

    def release(self, deployment: str, number: int) -> Release:
        """One release. Raises STA006 when there is no such release."""
        query = "SELECT record FROM release WHERE deployment = ? AND number = ?"
        row = self._connection.execute(query, (deployment, number)).fetchone()
        if row is None:
            raise HeavyliftError("STA006", {"deployment": deployment, "number": number})
        return _release(row)

    def releases(self, deployment: str) -> tuple[Release, ...]:
        """All releases of a deployment, newest first."""
        query = "SELECT record FROM release WHERE deployment = ? ORDER BY number DESC"
        return tuple(map(_release, self._connection.execute(query, (deployment,))))

    def latest_verified(self, deployment: str, *, but: int | None = None) -> Release | None:
        """The newest release whose last verification passed: the one to go back to. `but` is left
        out.
        """
        query = """
            SELECT record FROM release WHERE deployment = ? AND verified = 1 AND number IS NOT ?
            ORDER BY number DESC LIMIT 1
        """
        row = self._connection.execute(query, (deployment, but)).fetchone()
        return None if row is None else _release(row)

    def save_deployment(self, deployment: Deployment) -> None:
        """Keep what is wanted of a deployment, in place of what was."""
        query = """
            INSERT INTO deployment (name, record) VALUES (?, ?)
            ON CONFLICT (name) DO UPDATE SET record = excluded.record
        """
        with _written():
            self._connection.execute(query, (deployment.name, msgspec.json.encode(deployment)))

    def deployment(self, name: str) -> Deployment | None:
        """The deployment of that name, or None."""
        query = "SELECT record FROM deployment WHERE name = ?"
        row = self._connection.execute(query, (name,)).fetchone()
        return None if row is None else _deployment(row)

    def deployments(self) -> tuple[Deployment, ...]:
        """All deployments, by name."""
        rows = self._connection.execute("SELECT record FROM deployment ORDER BY name")
        return tuple(map(_deployment, rows))

    def save_run(self, run: RunState) -> None:
        """Keep a run as it stands; its place among the runs is that of its first time."""
        query = """
            INSERT INTO run (id, deployment, record) VALUES (?, ?, ?)
            ON CONFLICT (id) DO UPDATE SET record = excluded.record
        """
        with _written():
            self._connection.execute(query, (run.id, run.deployment, msgspec.json.encode(run)))

    def run(self, identifier: str) -> RunState | None:
        """The run of that id, or None."""
        query = "SELECT record FROM run WHERE id = ?"
        row = self._connection.execute(query, (identifier,)).fetchone()
        return None if row is None else _run(row)

    def runs(self, deployment: str, *, most: int = 20) -> tuple[RunState, ...]:
        """The last runs of a deployment, newest first."""
        query = "SELECT record FROM run WHERE deployment = ? ORDER BY number DESC LIMIT ?"
        return tuple(map(_run, self._connection.execute(query, (deployment, most))))

    def save_receipt(self, receipt: Receipt) -> str:
        """The digest under which the receipt is kept. Saving it again changes nothing."""
        record = msgspec.json.encode(receipt)
        digest = f"sha256:{hashlib.sha256(record).hexdigest()}"
        with _written(), transaction(self._connection):
            self._connection.execute(
                """
                INSERT INTO receipt
                    (digest, model, variant, engine, rack, layout, taken_at, record)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (digest) DO NOTHING
                """,
                (
                    digest,
                    receipt.model,
                    receipt.variant,
                    receipt.engine,
                    receipt.rack,
                    receipt.layout.label,
                    receipt.taken_at,
                    record,
                ),
            )
        return digest

    def receipts(
        self, *, model: str, variant: str, engine: str, rack: str, layout: Layout
    ) -> tuple[Receipt, ...]:
        """Receipts of exactly this combination, newest first."""
        query = """
            SELECT record FROM receipt
            WHERE model = ? AND variant = ? AND engine = ? AND rack = ? AND layout = ?
            ORDER BY taken_at DESC, id DESC
        """
        key = (model, variant, engine, rack, layout.label)
        return tuple(map(_receipt, self._connection.execute(query, key)))


def deployments_path() -> Path:
    """Where this user's store lies."""
    return paths.state_dir() / "deployments.db"


@contextlib.contextmanager
def open_deployments(path: Path) -> Iterator[Deployments]:
    """The store at `path`. Raises as `db.open_database`."""
    try:
        connection = open_where_it_lies(path, SCHEMA)
    except HeavyliftError as error:
        if error.code != "STA003" or not path.is_file() or not os.access(path.parent, os.W_OK):
            raise
        # It holds what was begun and measured here: put aside, a new one is begun.
        aside = f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.broken')}"
        raise HeavyliftError(error.code, error.params, hint_command=aside) from error
    with contextlib.closing(connection):
        yield Deployments(connection)


def is_verified(release: Release) -> bool:
    """True when the last verification of the release passed; False when there was none."""
    statuses = [verdict.status for verdict in release.verdicts if verdict.stage == _VERIFY]
    return bool(statuses) and statuses[-1] in _PASSED


def _release(row: tuple[bytes]) -> Release:
    return msgspec.json.decode(row[0], type=Release)


def _deployment(row: tuple[bytes]) -> Deployment:
    return msgspec.json.decode(row[0], type=Deployment)


def _run(row: tuple[bytes]) -> RunState:
    return msgspec.json.decode(row[0], type=RunState)


def _receipt(row: tuple[bytes]) -> Receipt:
    return msgspec.json.decode(row[0], type=Receipt)
