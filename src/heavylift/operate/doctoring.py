"""The doctor before a start: what is wrong with this machine for a recipe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.operate.recipes import Recipe
from heavylift.preflight.checks.runner import DoctorReport, judge
from heavylift.preflight.checks.view import Target
from heavylift.preflight.snapshot import Wanted, take_snapshot
from heavylift.preflight.target import no_target, of_model, of_plan
from heavylift.records.finding import Finding, Severity

GROUPS: Final = ("platform", "topology", "host", "network", "software")


@dataclass(frozen=True, kw_only=True, slots=True)
class Examined:
    """What the doctor found. `failed` are the failures that nobody took on (`despite`)."""

    report: DoctorReport
    failed: tuple[Finding, ...]


def examine(recipe: Recipe, despite: Iterable[str] = ()) -> Examined:
    """Look at this machine and judge it for a recipe. Takes seconds, minutes at worst.

    Raises USE087 for a finding that no check has.
    """
    catalog = Catalog()
    facts = {group: catalog.checks(group) for group in GROUPS}
    known = {check.id for checks in facts.values() for check in checks}
    taken = frozenset(despite)
    for name in sorted(taken - known):
        raise HeavyliftError("USE087", {"finding": name})
    spec = recipe.spec
    place = None if spec.model_path is None else Path(spec.model_path)
    wanted = Wanted(checkpoint=place if place is not None and place.is_dir() else None)
    target = replace(_target(recipe, catalog), spec=spec)
    report = judge([take_snapshot(wanted)], target, facts, target_name=spec.model)
    return Examined(
        report=report,
        failed=tuple(
            finding
            for finding in report.findings
            if finding.severity is Severity.FAIL and finding.id not in taken
        ),
    )


def _target(recipe: Recipe, catalog: Catalog) -> Target:
    if recipe.plan is not None:
        return of_plan(recipe.plan, catalog)
    try:
        return of_model(recipe.spec.model, catalog)
    except HeavyliftError:
        # A model nobody described: the machine is judged by itself, and by the launch.
        return no_target(catalog)
