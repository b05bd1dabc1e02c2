"""Diagnosis: what a log says went wrong, and the line each answer rests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from heavylift.records.plan import Fix, PlanVerdict

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A line of a log: its text (shortened), number (from 1), file, rank, and how often its like
    was seen.
    """

    line: str
    number: int
    file: str
    rank: str | None = None
    count: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """One possible cause, with what speaks for it.

    `confidence` is 0 to 1 by the rules of `heavylift.diagnose.match`; `rules` names those that
    were applied. `numbers` are what the failure printed, the unit at the end of each name.
    """

    cause_class: str
    area: str
    title: str
    confidence: float
    rules: tuple[str, ...]
    phase: str
    symptom: str
    evidence: Evidence
    also: tuple[Evidence, ...]
    fix: str
    source: str
    next_command: str | None
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Consequence:
    """A line that follows a failure, and the cause it is traced to (None: the log shows none)."""

    id: str
    title: str
    evidence: Evidence
    of: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """What the log tells of the run: engine, its version, the last phase, start settings."""

    engine: str | None = None
    engine_version: str | None = None
    phase: str = "unknown"
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanAnswer:
    """The planner's answer to a memory failure: the plan of what was started, and what would hold.

    `headroom_bytes` is per GPU of the worst rank; negative = that much is missing.
    """

    command: str
    verdict: PlanVerdict
    rack: str
    layout: str
    headroom_bytes: int
    fixes: tuple[Fix, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class WalkedStep:
    """One thing to look at, in words, with the command to type and the causes it can show."""

    text: str
    command: str | None
    causes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Walk:
    """What to look at, in order, for a symptom without a log."""

    symptom: str
    title: str
    steps: tuple[WalkedStep, ...]
    schema: int = SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Causes, the likeliest first. `recognised` False: nothing names or points to a cause.

    `root` is the earliest line that names or points to a cause; `errors` the first lines that speak
    of trouble at all. `lines` and `bytes` were read. `plan` answers a memory failure.
    `not_text` are the files that hold something else.
    """

    recognised: bool
    causes: tuple[Cause, ...]
    consequences: tuple[Consequence, ...]
    root: Evidence | None
    errors: tuple[Evidence, ...]
    context: RunContext
    files: tuple[str, ...]
    lines: int
    bytes: int
    plan: PlanAnswer | None = None
    not_text: tuple[str, ...] = ()
    schema: int = SCHEMA
