"""What was kept: the last plan, for `explain`; and receipts of earlier starts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from heavylift.cli.text import text
from heavylift.errors import HeavyliftError, reason
from heavylift.facts.catalog import Catalog
from heavylift.records.plan import Plan
from heavylift.records.receipt import Receipt
from heavylift.state.paths import state_dir

if TYPE_CHECKING:
    from heavylift.telemetry.start_log import StartLog


def _path() -> Path:
    return state_dir() / "last-plan.json"


def save(plan: Plan) -> None:
    """Keep the plan. A read-only home is no reason for a plan to fail."""
    with contextlib.suppress(OSError, HeavyliftError):
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".new")
        scratch.write_bytes(msgspec.json.encode(plan))
        scratch.replace(path)


def load() -> Plan:
    """The plan kept last. Raises PLAN040 when there is none, PLAN041 when it cannot be read."""
    try:
        raw = _path().read_bytes()
    except OSError as error:
        raise HeavyliftError("PLAN040", hint_command=first_command()) from error
    return decode_plan(raw, str(_path()))


def first_command() -> str:
    """What to type who has typed nothing yet."""
    showcase = Catalog().showcase()
    return f"heavylift plan {showcase.model} --on {showcase.rack}"


def decode_plan(raw: bytes, path: str) -> Plan:
    """A plan from its JSON. Raises PLAN041 when it is none, or of another schema."""
    try:
        return msgspec.json.decode(raw, type=Plan)
    except msgspec.MsgspecError as error:
        raise HeavyliftError("PLAN041", {"path": path, "reason": reason(error)}) from error


def kept_receipt(plan: Plan) -> Receipt | None:
    """The newest receipt kept here of a start of exactly this plan, or None."""
    path = _deployments_path()
    if path is None:
        return None
    import sqlite3

    from heavylift.state.kept_receipts import newest_receipt

    try:
        return newest_receipt(path, plan)
    except (HeavyliftError, sqlite3.Error, msgspec.MsgspecError):
        # A plan rests on facts; a store that cannot be read takes nothing away from it.
        click.echo(text("plan.store_unreadable", path=path), err=True)
        return None


def _deployments_path() -> Path | None:
    """The store, where there is one: a plan makes none. SQLite is not loaded to find that out."""
    try:
        path = state_dir() / "deployments.db"
    except HeavyliftError:
        return None
    return path if path.is_file() else None


_MOST_LOG_BYTES = 256 * 2**20


def read_receipt(path: Path) -> Receipt:
    """A receipt from a JSON file. Raises PLAN042 when it is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Receipt)
    except (OSError, msgspec.MsgspecError) as error:
        raise HeavyliftError("PLAN042", {"path": str(path), "reason": reason(error)}) from error


def read_measured(path: Path) -> Receipt | StartLog:
    """A receipt from a JSON file, or what an engine's start-up log tells. Raises PLAN042 for a file
    that cannot be read, PLAN043 for a text that tells no memory.
    """
    from heavylift.telemetry.start_log import read_start

    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_LOG_BYTES + 1)
        if len(raw) > _MOST_LOG_BYTES:
            raise HeavyliftError("PLAN042", {"path": str(path), "reason": "> 256 MiB"})
        if raw.lstrip()[:1] == b"{":
            return msgspec.json.decode(raw, type=Receipt)
    except (OSError, msgspec.MsgspecError) as error:
        raise HeavyliftError("PLAN042", {"path": str(path), "reason": reason(error)}) from error
    # Progress bars end in carriage returns.
    lines = raw.decode("utf-8", "replace").replace("\r", "\n").split("\n")
    try:
        return read_start(lines, Catalog().engine_logs())
    except HeavyliftError as error:
        if error.code != "RUN020":
            raise
        what = str(error.params["what"])
        raise HeavyliftError("PLAN043", {"path": str(path), "what": what}) from error
