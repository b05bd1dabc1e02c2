"""Records of a comparison of quality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heavylift.records.served_model import ServedModel
from heavylift.stats import Interval

SCHEMA: Final = 1


class Verdict(StrEnum):
    """What a comparison says."""

    EQUIVALENT = "equivalent"
    WORSE = "worse"
    BETTER = "better"
    NOT_ENOUGH_DATA = "not_enough_data"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A call of a function that was asked for: its arguments, a list, and what it must return."""

    arguments: str
    expected: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question with a checkable answer. `expected`: each of these must be in the answer (of
    alternatives separated by `|`, one). `number`: the last number of the answer is it. `function`:
    the answer is a program, run in a sandbox, whose function must return what the `cases` (JSON)
    say.
    """

    id: str
    group: str
    language: str
    text: str
    expected: tuple[str, ...] = ()
    number: int | None = None
    function: str | None = None
    cases: tuple[Case, ...] = ()
    max_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A graded answer. `failure` names why there was nothing to grade, None = it was graded."""

    question: str
    group: str
    right: bool
    text: str = ""
    failure: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """Candidate against reference over one group, or over all (`group` = `all`).

    `p_value` is exact; `adjusted_p_value` for the number of groups. `interval` is at 95 %,
    `equivalence_interval` at 90 % (two one-sided tests at 5 %).
    """

    group: str
    items: int
    reference_rate: float
    candidate_rate: float
    difference: float
    interval: Interval
    equivalence_interval: Interval
    discordance: float
    p_value: float
    adjusted_p_value: float
    minimum_detectable_effect: float
    verdict: Verdict
    more_items: int
    reference_failures: Mapping[str, int] = field(default_factory=dict)
    candidate_failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """A divergence over all positions, in nats; the interval of the mean is over prompts."""

    mean: float
    interval: Interval
    median: float
    p99: float
    max: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """How far the predictions of the same tokens lie apart: lower bounds, see
    `heavylift.quality.divergence`.

    `forward`: of the candidate from the reference, `backward` the other way. `floor_mean`: the
    reference from itself, scored twice. `top1_agreement`: share of positions with the same
    likeliest token. `probability_change_rms`: of the forced tokens. `uncovered_*`: probability of
    the tokens that a server did not tell, of which it tells `top`.
    """

    prompts: int
    positions: int
    top: int
    forward: Spread
    backward: Spread
    floor_mean: float | None
    top1_agreement: float
    top1_interval: Interval
    probability_change_rms: float | None
    uncovered_reference_mean: float
    uncovered_reference_max: float
    uncovered_candidate_mean: float
    uncovered_candidate_max: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The comparison. `noise_floor`: the reference against itself; None = it was not asked twice.

    `same_text`: share of answers word for word the same, candidate against reference;
    `same_text_floor`: reference against itself. The difference, the interval and the minimum
    detectable effect beside the contrasts are those over all items. `detectable_beforehand` was
    worked out before the first answer, assuming that one item in ten differs. `settings`: how both
    sides were asked, which decides how alike a batch computes twice. `divergence` None =
    tokens were not scored; `divergence_missing` says why (`not_asked`, `not_offered`,
    `tokens_differ`, `no_text`, `files`).
    """

    reference: ServedModel
    candidate: ServedModel
    started_at: str
    heavylift_version: str
    margin: float
    verdict: Verdict
    difference: float
    interval: Interval
    minimum_detectable_effect: float
    detectable_beforehand: float
    contrasts: tuple[Contrast, ...]
    noise_floor: Contrast | None = None
    same_text: float | None = None
    same_text_floor: float | None = None
    divergence: Divergence | None = None
    divergence_missing: str | None = None
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    schema: int = SCHEMA
