"""Imported: what another planner's file offers, beside what its memory comes to here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heavylift.errors import Scalar
from heavylift.records.plan import Capacity, Layout, Status

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedRow:
    """One offer of the file. `said_bytes` is its own figure: of one GPU (a result folder) or of the
    whole rack (`said_total`, a recipe's minimum). `known_bytes` are ours of one GPU, `short_bytes`
    what they lack; `code` and `params` say why an offer could not be planned.
    """

    label: str
    model: str
    rack: str
    engine: str
    layout: Layout | None
    word: str | None = None
    said_bytes: int | None = None
    said_total: bool = False
    known_bytes: int | None = None
    total_bytes: int | None = None
    visible_bytes: int | None = None
    short_bytes: int = 0
    capacity: Capacity | None = None
    status: Status | None = None
    code: str | None = None
    params: dict[str, Scalar] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A whole file. `form`: `recipe` or `results`."""

    path: str
    form: str
    model: str
    rows: tuple[ImportedRow, ...]
    schema: int = SCHEMA

    @property
    def wrong(self) -> tuple[ImportedRow, ...]:
        """Offers that do not fit."""
        return tuple(row for row in self.rows if row.capacity is Capacity.DOES_NOT_FIT)
