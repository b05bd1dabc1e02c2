"""Shapes of the points of a go-live report: what must be shown before a service takes traffic."""

from __future__ import annotations

from dataclasses import dataclass

from heavylift.facts.schema import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class GoLivePointFacts(Rule):
    """A point. `proof` is the kind of evidence that proves it, with at least one of `facets` where
    there are any; evidence must be of the same `bound_to` (release, recipe, revision, layout …) and
    reach what was promised of each figure in `reach`. Older than `max_age_days` it is no proof any
    more. A point that is missing holds when the point `covered_by` is proven. `commands` prove it:
    the first all of whose `{words}` are known is shown. `needed_for`: start, verify or traffic.
    """

    id: str
    group: str
    needed_for: str
    proof: str
    commands: tuple[str, ...]
    facets: tuple[str, ...] = ()
    bound_to: tuple[str, ...] = ()
    reach: tuple[str, ...] = ()
    max_age_days: int | None = None
    covered_by: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptLogFlag(Rule):
    """A flag with which an engine writes what people ask into its log."""

    engine: str
    flag: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GoLiveBook(Rule):
    """The points in the order in which they are shown. `reach_ratio` is the share of a promised
    figure that has to be reached (a prompt leaves room for its answer); evidence may be dated
    `clock_slack_s` seconds after now. A waiver holds for at most `waiver_days` after it was given.
    `slo` stands in commands where nobody stated one.
    `otherwise` are commands where none of a point's own can be given.
    """

    points: tuple[GoLivePointFacts, ...]
    prompt_log_flags: tuple[PromptLogFlag, ...]
    otherwise: tuple[str, ...]
    reach_ratio: float
    clock_slack_s: int
    waiver_days: int
    slo: str
