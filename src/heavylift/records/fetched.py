"""What `heavylift fetch` is about to do, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from heavylift.records.integrity import Integrity

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """A model fetched into a folder, or with `transferred` false what fetching it would take.

    `total_bytes` are those of all files, `needed_bytes` those that are not there yet, `safe_bytes`
    twice the weights, less what is there: room for a second copy while an engine repacks. `licence`
    is what the hub or the facts state, None when neither does. `integrity` is the check afterwards.
    """

    model: str
    revision: str
    host: str
    folder: str
    files: int
    weights_bytes: int
    total_bytes: int
    needed_bytes: int
    safe_bytes: int
    free_bytes: int
    licence: str | None
    licence_from: str | None
    transferred: bool
    integrity: Integrity | None = None
    schema: int = field(default=SCHEMA)
