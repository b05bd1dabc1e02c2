"""Why an engine ended: the first cause in its logs, with the planner's answer where memory is it."""

from __future__ import annotations

from collections.abc import Mapping
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

_LANGUAGE: Final = "en"
_NO_LOG: Final = frozenset({"RUN033"})
"""Failures that are known before there is a log."""


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
        cause = diagnosis.causes[0]
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


def numbers(failure: Failure) -> Mapping[str, object]:
    """The parameters of a failure's text."""
    return {key: value for key, value in failure.params.items() if key != "was_killed"}
