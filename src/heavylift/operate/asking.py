"""Questions to a deployment that serves: where it is, with which key, what its model can do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from heavylift.bench.files import shipped_prose
from heavylift.facts.catalog import Catalog
from heavylift.launch.attempt import key_of, serving_rank
from heavylift.operate import secret_file
from heavylift.operate.proof import features_of
from heavylift.operate.recipes import Recipe
from heavylift.state import paths
from heavylift.verify import run as verification
from heavylift.verify.records import Check, CheckResult, Profile, Status, Verification
from heavylift.verify.suites import shipped
from heavylift.wire.client import Endpoint, Limits

_WAIT_S: Final = 3600.0
TOOLS: Final = "tools.forced"
LADDER: Final = "context.ladder"
_TOOL_WORDS: Final = {
    Status.PASS: "well_formed",
    Status.WARN: "well_formed",
    Status.FAIL: "malformed",
    Status.SKIPPED: "not_offered",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A deployment that serves, for questions."""

    name: str
    url: str
    model: str
    release: int
    recipe: Recipe

    def endpoint(self) -> Endpoint:
        """Where it is, with the key its clients need."""
        path = paths.deployment_dir(self.name) / secret_file.FILE
        secrets = secret_file.read(path) if path.is_file() else {}
        ranks = self.recipe.spec.ranks
        return Endpoint.parse(self.url, key_of(ranks[serving_rank(ranks)], secrets) or None)

    def wish(
        self,
        only: Iterable[str],
        *,
        checks: tuple[Check, ...] | None = None,
        answer_tokens: int,
        context_tokens: int | None = None,
    ) -> verification.Wish:
        """A verification of some checks; answers may take as long as a prompt of a million."""
        catalog = Catalog()
        return verification.Wish(
            endpoint=self.endpoint(),
            checks=tuple(map(_once, shipped() if checks is None else checks)),
            profile=Profile.SMOKE,
            prose=shipped_prose(),
            markers=tuple(each for found in catalog.reply_formats() for each in found.markers),
            model=self.model,
            only=tuple(only),
            expected=features_of(catalog, self.recipe),
            limits=Limits(first_byte_s=_WAIT_S, gap_s=_WAIT_S),
            answer_tokens=answer_tokens,
            context_tokens=context_tokens,
            release=str(self.release),
        )


def _once(check: Check) -> Check:
    """Tool calls are looked at on every rung: once each time."""
    if check.id != TOOLS:
        return check
    return replace(check, trials=dict.fromkeys(check.trials, 1))


def tool_word(found: Verification) -> str:
    """How tool calls came: `well_formed`, `malformed`, `not_offered`, or `unknown`."""
    result = next((check for check in found.checks if check.id == TOOLS), None)
    return "unknown" if result is None else _TOOL_WORDS.get(result.status, "unknown")


def lost(results: Iterable[CheckResult]) -> tuple[int, int]:
    """Trials that were made, and those of them that failed."""
    made = failed = 0
    for result in results:
        if result.status is Status.SKIPPED or result.rate is None:
            continue
        made += result.trials
        failed += round((1 - result.rate) * result.trials)
    return made, failed
