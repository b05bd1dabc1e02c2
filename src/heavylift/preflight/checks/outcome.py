"""What a check returns, and the two ways in which it may have nothing to judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from heavylift.errors import Scalar
from heavylift.records.finding import Severity

OK: Final = "ok"


class NotObservedError(Exception):
    """A check lacks an observation: the finding is `unknown`, with the reason and the probe.

    Internal to the checks: the runner turns it into a finding.
    """

    def __init__(self, reason: str, probe: str = "") -> None:
        super().__init__(reason, probe)
        self.reason = reason
        self.probe = probe


class NotApplicableError(Exception):
    """A check has no subject here, such as a card of another vendor. Internal to the checks."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A judgement. `case` is `ok` or names the text; no severity = the one the facts state."""

    case: str
    severity: Severity | None = None
    observed: Scalar = None
    expected: Scalar = None
    evidence: tuple[str, ...] = ()
    params: dict[str, Scalar] = field(default_factory=dict)


def ok(observed: Scalar, *evidence: str, expected: Scalar = None) -> Outcome:
    """All is well, and this is what was seen."""
    return Outcome(
        case=OK, severity=Severity.OK, observed=observed, expected=expected, evidence=evidence
    )


def well(case: str, observed: Scalar = None, *evidence: str) -> Outcome:
    """All is well in a way that needs words: the text is the case's."""
    return Outcome(case=case, severity=Severity.OK, observed=observed, evidence=evidence)


def bad(
    case: str,
    observed: Scalar,
    *evidence: str,
    expected: Scalar = None,
    severity: Severity | None = None,
    **params: Scalar,
) -> Outcome:
    """Something is wrong, as bad as the facts say or as `severity` says."""
    return Outcome(
        case=case,
        severity=severity,
        observed=observed,
        expected=expected,
        evidence=evidence,
        params=params,
    )


def info(case: str, observed: Scalar, *evidence: str, **params: Scalar) -> Outcome:
    """Nothing to judge, but worth saying."""
    return bad(case, observed, *evidence, severity=Severity.INFO, **params)
