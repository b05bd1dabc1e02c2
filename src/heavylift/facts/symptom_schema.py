"""Shapes of the symptom files: lines of failing logs, what caused them, what to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from heavylift.facts.schema import Rule


class Strength(StrEnum):
    """How much a line says of its cause: `names` it, `points` to it (usually this), `hints` at it
    (compatible with it, and with health), or is a `leftover` (worth saying when nothing else is).
    """

    NAMES = "names"
    POINTS = "points"
    HINTS = "hints"
    LEFTOVER = "leftover"


@dataclass(frozen=True, kw_only=True, slots=True)
class SymptomFacts(Rule):
    """A kind of log line that speaks for a cause.

    A line is looked at when it holds one of `anchors` (lower case, compared without regard to
    case); then `regex` must be found in it, when there is one. Named groups of `regex` are numbers
    of the failure. `phases` and `engines` empty = any; `unknown` is the phase of a log that does
    not tell. `beside` lists symptoms of which one must be there too. `area` and `fix` take the
    place of the cause's own. `since` and `until` bound the engine version. `reference` is the
    thread the wording was seen in.
    """

    id: str
    anchors: tuple[str, ...]
    weight: Strength
    regex: str = ""
    phases: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    area: str | None = None
    fix: dict[str, str] = field(default_factory=dict)
    reference: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CauseFacts(Rule):
    """A cause class with the symptoms that speak for it. `id` is the class name.

    `title` and `fix` are texts by language (`en` always). `explains` names causes whose symptoms
    are usual effects of this one. `hint_command` may hold MODEL, RACK and other words to replace.
    """

    id: str
    area: str
    title: dict[str, str]
    fix: dict[str, str]
    symptoms: tuple[SymptomFacts, ...]
    explains: tuple[str, ...] = ()
    hint_command: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsequenceFacts(Rule):
    """A kind of line that follows a failure elsewhere and is never a cause by itself."""

    id: str
    anchors: tuple[str, ...]
    title: dict[str, str]
    regex: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogMark(Rule):
    """A line that tells where the log stands: the phase, the engine, what it was started with.

    `reach` not 0 = it tells the phase of a failure up to so many lines away and nothing of later
    lines (a frame of a traceback). `trouble` = it speaks of an error, whatever it may be. `version`
    has groups named `version…`; each entry of `settings` a group `value`.
    """

    id: str
    anchors: tuple[str, ...]
    phase: str | None = None
    engine: str | None = None
    reach: int = 0
    trouble: bool = False
    version: str = ""
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberFacts(Rule):
    """Numbers that a failure prints: named groups of `regex`, the unit at the end of each name."""

    id: str
    regex: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WalkStep:
    """One thing to look at: words by language, a command to type, the causes it can show."""

    text: dict[str, str]
    causes: tuple[str, ...]
    command: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WalkFacts(Rule):
    """What to look at, in order, for a symptom that comes without a log."""

    id: str
    title: dict[str, str]
    steps: tuple[WalkStep, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SymptomBook:
    """A file of symptoms: one family of causes, or the marks of all of them."""

    id: str
    causes: tuple[CauseFacts, ...] = ()
    consequences: tuple[ConsequenceFacts, ...] = ()
    marks: tuple[LogMark, ...] = ()
    numbers: tuple[NumberFacts, ...] = ()
    walks: tuple[WalkFacts, ...] = ()
