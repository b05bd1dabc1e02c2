"""Records of a verification: a trial, a check, the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from heavylift.records.served_model import ServedModel
from heavylift.stats import Interval

SCHEMA: Final = 1


class Status(StrEnum):
    """What became of a check. `unknown` is never `pass`."""

    PASS = "pass"  # noqa: S105 - a verdict, not a secret
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


class Profile(StrEnum):
    """How much is asked."""

    SMOKE = "smoke"
    ACCEPTANCE = "acceptance"
    SOAK = "soak"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One trial of a check. `reason` None = it passed; else its name: a failure class of the wire
    or one of the judges' own. `evidence` is what was seen, cut short.

    `unsupported`: the server refused the feature itself. `undecided`: nothing can be concluded.
    `figures` are measured on the way. `answer`: a question that never changes, and what was said.
    """

    reason: str | None = None
    evidence: str = ""
    unsupported: bool = False
    undecided: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)
    answer: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A check as its file states it.

    `probe` names the questions, `params` fill them. `trials` per profile; a profile that is not
    named does not run it. At least `required_rate` of the trials must pass; `on_failure` is the
    status when they do not. `needs`: the features it is about; a server that refuses one fails
    only where the model is known to have it. `title` comes from the catalogue for shipped checks.
    """

    id: str
    probe: str
    trials: Mapping[str, int]
    required_rate: float = 1.0
    on_failure: Status = Status.FAIL
    needs: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None

    @property
    def group(self) -> str:
        """The part of the id before its first dot."""
        return self.id.partition(".")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """The outcome of a check: `rate` of `trials` that passed, with its 95 % interval (exact).

    `reasons` counts the names of what went wrong. `rate` None = no trial could be judged.
    """

    id: str
    status: Status
    rate: float | None
    interval: Interval | None
    trials: int
    required_rate: float
    reasons: Mapping[str, int] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    title: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """A verification. `verdict` is the worst status of its checks; skipped ones do not count.

    `answers`: to the questions that never change, for the next release to be held against.
    `narrowed`: some checks of the profile were left out, or only some were asked for.
    """

    subject: ServedModel
    profile: Profile
    started_at: str
    heavylift_version: str
    seconds: float
    verdict: Status
    checks: tuple[CheckResult, ...]
    answers: Mapping[str, str] = field(default_factory=dict)
    narrowed: bool = False
    schema: int = SCHEMA
