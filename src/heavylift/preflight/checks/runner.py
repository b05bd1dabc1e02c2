"""Runs the checks over one or several snapshots: facts and judgements become findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from heavylift.errors import HeavyliftError, Scalar
from heavylift.facts.schema import CheckFacts
from heavylift.preflight.checks import (
    amd,
    host,
    network,
    nvidia,
    platform,
    software,
    topology,
    windows,
)
from heavylift.preflight.checks.outcome import (
    OK,
    NotApplicableError,
    NotObservedError,
    Outcome,
)
from heavylift.preflight.checks.view import Target, View
from heavylift.records.finding import Finding, Severity
from heavylift.records.snapshot import Snapshot

Check = Callable[[View, CheckFacts], Outcome]

CHECKS: Final[Mapping[str, Check]] = {
    **platform.CHECKS,
    **amd.CHECKS,
    **nvidia.CHECKS,
    **windows.CHECKS,
    **topology.CHECKS,
    **host.CHECKS,
    **network.CHECKS,
    **software.CHECKS,
}
"""The checks of one host by id."""

ACROSS_HOSTS: Final = "node.equal"
"""The one check that looks at all hosts at once."""

ALL_HOSTS: Final = "*"
_SHOWN_CHARACTERS: Final = 300
_OF_PLAN: Final = "plan."
"""Checks of the plan's arithmetic: the same on every host, so they are made once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A check that has no subject on a host: which, where, and why as a code."""

    id: str
    subject: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Checks that are shown together, in order."""

    id: str
    checks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorReport:
    """All findings, in the order of the facts, host by host; and what did not apply."""

    hosts: tuple[str, ...]
    taken_at: tuple[str, ...]
    target: str | None
    groups: tuple[Group, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]

    @property
    def failed(self) -> bool:
        """True when a check failed. What is unknown is no failure and no success."""
        return any(finding.severity is Severity.FAIL for finding in self.findings)


def judge(
    snapshots: Sequence[Snapshot],
    target: Target,
    checks: Mapping[str, Iterable[CheckFacts]],
    *,
    target_name: str | None = None,
) -> DoctorReport:
    """The findings of all checks (by group) on all hosts."""
    views = [View(snapshot, target) for snapshot in snapshots]
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    groups: list[Group] = []
    for group, listed in checks.items():
        facts = tuple(listed)
        groups.append(Group(id=group, checks=tuple(check.id for check in facts)))
        for check in facts:
            for result in _results(views, check):
                if isinstance(result, Finding):
                    findings.append(result)
                else:
                    skipped.append(result)
    return DoctorReport(
        hosts=tuple(snapshot.host for snapshot in snapshots),
        taken_at=tuple(snapshot.taken_at for snapshot in snapshots),
        target=target_name,
        groups=tuple(groups),
        findings=tuple(findings),
        skipped=tuple(skipped),
    )


def _results(views: list[View], check: CheckFacts) -> Iterable[Finding | Skipped]:
    if check.id == ACROSS_HOSTS:
        yield _run(lambda: network.nodes_equal(views), check, ALL_HOSTS)
        return
    if check.id.startswith(_OF_PLAN):
        yield _run(lambda: _on_host(views[0], check), check, ALL_HOSTS)
        return
    for view in views:
        yield _run(lambda view=view: _on_host(view, check), check, view.snapshot.host)  # type: ignore[misc] # bound now, not when called


def _on_host(view: View, check: CheckFacts) -> Outcome:
    _require_scope(view, check)
    return CHECKS[check.id](view, check)


def _run(judged: Callable[[], Outcome], check: CheckFacts, subject: str) -> Finding | Skipped:
    try:
        outcome = judged()
    except NotApplicableError as error:
        return Skipped(id=check.id, subject=subject, reason=error.reason)
    except NotObservedError as error:
        return _unknown(check, subject, error.reason, error.probe)
    except (HeavyliftError, LookupError, TypeError, ValueError, OverflowError):
        # A snapshot is a foreign document: what in it has another shape was not observed.
        return _unknown(check, subject, "unreadable", "")
    observed, expected = _printable(outcome.observed), _printable(outcome.expected)
    severity = outcome.severity or Severity(check.severity)
    has_own_fix = outcome.case in check.case_fixes
    # What the facts call bad has a remedy, be it only worth saying; a mere remark has none.
    remark = outcome.severity in (Severity.OK, Severity.INFO)
    needs_fix = has_own_fix or not remark
    fix = f"doctor.fix.{check.id}" + (f".{outcome.case}" if has_own_fix else "")
    return Finding(
        id=check.id,
        code="doctor.ok" if outcome.case == OK else f"doctor.{check.id}.{outcome.case}",
        severity=severity,
        subject=subject,
        observed=observed,
        expected=expected,
        fix=fix if needs_fix else None,
        evidence=tuple(str(_printable(line)) for line in outcome.evidence),
        source=check.source,
        params={
            "observed": observed,
            "expected": expected,
            **{name: _printable(value) for name, value in outcome.params.items()},
        },
    )


def _printable(value: Scalar) -> Scalar:
    """A value as it may be shown: what machines say must not steer a terminal or fill a screen."""
    if not isinstance(value, str):
        return value
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"


def _unknown(check: CheckFacts, subject: str, reason: str, probe: str) -> Finding:
    # Of a tool its name and command are enough; the options are ours.
    shown = str(_printable(probe.removeprefix("read:").removeprefix("tool:").split(" --")[0]))
    return Finding(
        id=check.id,
        code=f"doctor.unknown.{reason}",
        severity=Severity.UNKNOWN,
        subject=subject,
        source=check.source,
        params={"probe": shown},
    )


def _require_scope(view: View, check: CheckFacts) -> None:
    """Raises not-applicable where the check has no subject on this host."""
    if check.vendors and not set(check.vendors) & view.vendors:
        raise NotApplicableError(f"no_{check.vendors[0]}")
    for word in check.scope:
        if not _SCOPES[word](view):
            raise NotApplicableError(f"not_{word}")


def _several_gpus(view: View) -> bool:
    planned = view.planned_gpus
    return planned > 1 if planned is not None else view.gpu_count > 1


_SCOPES: Final[Mapping[str, Callable[[View], bool]]] = {
    "native": lambda view: not view.wsl,
    "wsl": lambda view: view.wsl,
    "container": lambda view: view.container,
    "gpu": lambda view: bool(view.vendors),
    "several_gpus": _several_gpus,
    "several_nodes": lambda view: view.planned_nodes > 1,
    "rdma": lambda view: bool(view.infiniband),
}
