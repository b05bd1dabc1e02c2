"""Go-live reports: for one deployment, every point that must hold, and what proves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.errors import Scalar

SCHEMA: Final = 1


class Standing(StrEnum):
    """How a point stands. Nothing is proven by default: what nobody showed is missing."""

    PROVEN = "proven"
    WAIVED = "waived"
    """Somebody took it on, by name and until a day that has not come."""
    MISSING = "missing"
    FAILED = "failed"

    @property
    def is_settled(self) -> bool:
        """True when the point holds nothing up."""
        return self in (Standing.PROVEN, Standing.WAIVED)


class Level(StrEnum):
    """What a point is needed for, in the order in which a deployment gets there."""

    START = "start"
    VERIFY = "verify"
    TRAFFIC = "traffic"


class Readiness(StrEnum):
    """The verdict, worst first."""

    CANNOT_START = "cannot_start"
    CAN_START = "can_start"
    CAN_VERIFY = "can_verify"
    READY = "ready"


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiver:
    """A point that somebody took on: `who`, `why`, and the last day it holds (`until`, ISO date).

    `at` is when it was given (ISO 8601, UTC).
    """

    point: str
    who: str
    why: str
    until: str
    at: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceFile:
    """What a standing rests on: where it lies (None = seen just now) and when it was made."""

    kind: str
    at: str
    path: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GoLivePoint:
    """One point. `reason` is a code of what was seen or why it is no proof (`fits`, `other_release`
    with the two values in `params`). `command` would prove it, empty for what is proven. `waiver`
    stands also where it has expired and does not count. `points_for` is what it is needed for.
    """

    id: str
    group: str
    needed_for: Level
    standing: Standing
    reason: str
    params: dict[str, Scalar] = field(default_factory=dict)
    evidence: EvidenceFile | None = None
    command: str | None = None
    waiver: Waiver | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelCount:
    """Points that a level needs, those of the levels below apart, and how many are settled."""

    level: Level
    points: int
    settled: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """How far proof goes beside what was promised: `context_tokens`, `concurrency`. None = unknown.

    "It loads" is the first line of a table like this, never the last.
    """

    figure: str
    promised: int | None
    proven: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DataNote:
    """What is kept of requests, and where: a code with its parameters."""

    code: str
    params: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class LicenceTerm:
    """A condition of a licence, in words of ours: `id`, `text`, its source and day."""

    id: str
    text: str
    source: str
    as_of: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LicenceState:
    """The licence of a model as the facts know it; `name` None = nobody stated it.

    `acknowledged_at`: when somebody here said that it was read; None = nobody did.
    """

    name: str | None = None
    source: str | None = None
    as_of: str | None = None
    note: str | None = None
    terms: tuple[LicenceTerm, ...] = ()
    acknowledged_at: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GoLive:
    """A go-live report. `verdict` follows from the points: a level is reached when all its points
    and those of the levels below are proven or waived. `required` are the points asked for by name;
    `passed` decides the exit status. `gpus` is 0 for a host without cards, None where nobody knows.
    """

    name: str
    model: str
    engine: str
    engine_version: str
    made_at: str
    heavylift_version: str
    verdict: Readiness
    passed: bool
    points: tuple[GoLivePoint, ...]
    levels: tuple[LevelCount, ...]
    reach: tuple[Reach, ...]
    licence: LicenceState = LicenceState()
    data_notes: tuple[DataNote, ...] = ()
    required: tuple[str, ...] = ()
    release: int | None = None
    model_revision: str | None = None
    image: str | None = None
    layout: str | None = None
    rack: str | None = None
    gpus: int | None = None
    weights_bytes: int | None = None
    budget_bytes: int | None = None
    url: str | None = None
    next_command: str | None = None
    schema: int = SCHEMA
