"""Evidence: what was seen of a deployment, in the one form in which it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from heavylift.errors import Scalar

ALWAYS_BOUND: Final = ("deployment", "model", "url")
"""What no evidence may contradict, whatever its point: a proof of something else is none."""


class Outcome(StrEnum):
    """What a piece of evidence says by itself."""

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"
    """It was looked at, and nothing follows: unreadable, undecided, without an objective."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """One piece of evidence. `kind` is the proof that points ask for, `at` an ISO time, `path` the
    file (None = seen just now).

    `bound` says what it was made of: the release, recipe, layout … by name; what it does not state
    is left out. `facets` are what it covers (`acceptance`), `reach` how far it went
    (`context_tokens`). `reason` is a code with `params`.
    """

    kind: str
    outcome: Outcome
    reason: str
    at: str
    params: Mapping[str, Scalar] = field(default_factory=dict)
    path: str | None = None
    facets: frozenset[str] = frozenset()
    bound: Mapping[str, str] = field(default_factory=dict)
    reach: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The deployment that is judged. `bound` holds what its evidence must be of: for each name the
    values that are its own; a name that is not there is not known and cannot be held against
    anything. `promised` is what it is meant to hold. `words` fill the commands.
    """

    bound: Mapping[str, frozenset[str]] = field(default_factory=dict)
    promised: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


def moment(iso: str) -> datetime | None:
    """The time that an ISO 8601 text states, in UTC where it names no zone; None for no time."""
    try:
        found = datetime.fromisoformat(iso)
    except ValueError:
        return None
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError:
        return None
