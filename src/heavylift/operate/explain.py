"""Why an engine ended: the first cause in its logs, with the planner's answer to memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from heavylift.diagnose import evidence
from heavylift.diagnose.match import diagnose
from heavylift.diagnose.replan import MEMORY_CAUSES
from heavylift.diagnose.symptoms import CompiledSymptoms
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.operate.recipes import Recipe
from heavylift.planning import Planning
from heavylift.records.deployment import Failure
from heavylift.records.diagnosis import Cause

_LANGUAGE: Final = "en"
_NO_LOG: Final = frozenset({"RUN033"})
"""Failures that are known before there is a log."""


_RUNTIME: Final = "oom_at_runtime"
_MEMORY_CAUSE_OF_PHASE: Final[Mapping[str, str]] = {
    "weights": "weights_do_not_fit",
    "memory": "static_memory_fraction",
    "graphs": "oom_graph_capture",
}


class Explaining:
    """Explains failures of one recipe."""

    def __init__(self, catalog: Catalog, recipe: Recipe) -> None:
        self._catalog = catalog
        self._recipe = recipe

    def explain(self, failure: Failure, logs: tuple[Path, ...]) -> Failure:
        """The failure with the first cause that the logs show, if they show one.

        Raises DIA001 for a log that cannot be read.
        """
        if not logs or failure.code in _NO_LOG:
            return failure
        symptoms = CompiledSymptoms(self._catalog.symptoms())
        diagnosis = diagnose(evidence.read(map(str, logs), symptoms), _LANGUAGE)
        if not diagnosis.recognised:
            return failure
        cause = _of_phase(diagnosis.causes, failure.phase)
        fix = self._planned_fix() if cause.cause_class in MEMORY_CAUSES else None
        return replace(
            failure,
            cause_class=cause.cause_class,
            title=cause.title,
            line=cause.evidence.line,
            fix=cause.fix,
            source=cause.source,
            next_command=fix or cause.next_command,
        )

    def _planned_fix(self) -> str | None:
        """The command of the nearest plan that holds; None without a plan, or where none does."""
        plan = self._recipe.plan
        if plan is None:
            return None
        fixes = plan.fixes
        if not fixes:
            planning = Planning(self._catalog)
            try:
                again = planning.plan(plan.request, planning.knowledge(plan.request.model))
            except HeavyliftError:
                return None
            fixes = again.fixes
        return fixes[0].command if fixes else None


def _of_phase(causes: Sequence[Cause], phase: str) -> Cause:
    """The likeliest cause. A log that does not tell its phase leaves a memory failure open; the
    supervisor knows the phase, and an engine that has not served did not run out while serving.
    """
    first = causes[0]
    if first.cause_class != _RUNTIME or phase not in _MEMORY_CAUSE_OF_PHASE:
        return first
    wanted = _MEMORY_CAUSE_OF_PHASE[phase]
    return next((cause for cause in causes if cause.cause_class == wanted), first)
