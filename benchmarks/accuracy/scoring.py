"""What a plan says against what was measured, case by case, and what the cases come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from cases import GGUF_ENGINES, Case

from heavylift.errors import HeavyliftError
from heavylift.plan.planner import Knowledge
from heavylift.planning import Planning, as_started
from heavylift.records.plan import Plan, PlanRequest
from heavylift.units import GIB

# Where a start did not name its card: terms of a rank do not depend on it, verdicts are not asked.
ANY_CARD: Final = "H200"
EXACT: Final = ("log", "table")
# A printed concurrency has two decimals; tokens that say the same say it closer.
_SAME: Final = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A term of a case: `error` relative to what was measured, 0 inside a planned interval."""

    case: Case
    term: str
    planned: tuple[float, float | None]
    measured: float
    error: float


@dataclass(kw_only=True)
class Result:
    """A case planned: its scores by term, the verdict on a known card, or why not."""

    case: Case
    plan: Plan | None = None
    scores: list[Score] = field(default_factory=list)
    verdict: str | None = None
    reason: str | None = None

    def score(self, term: str) -> Score | None:
        """The score of a term, or None."""
        return next((each for each in self.scores if each.term == term), None)


def score_all(cases: Iterable[Case], planning: Planning) -> list[Result]:
    """Every case, planned."""
    return [_score(case, planning) for case in cases]


def _score(case: Case, planning: Planning) -> Result:
    if case.lacks("all"):
        return Result(case=case, reason=case.lacks("all"))
    if case.engine is None:
        return Result(case=case, reason=f"no engine of ours: {case.missing.get('engine', 'named')}")
    try:
        plan, named = plan_of(case, planning)
    except HeavyliftError as error:
        return Result(case=case, reason=f"{error.code}")
    result = Result(case=case, plan=plan)
    for term, ask in _TERMS.items():
        if case.lacks(_ASKED_OF[term]) is None:
            found = ask(case, plan)
            if found is not None:
                result.scores.append(found)
    if named and case.outcome in ("ok", "oom") and case.lacks("fit") is None:
        result.verdict = plan.capacity_verdict.value
    return result


def plan_of(case: Case, planning: Planning) -> tuple[Plan, bool]:
    """The plan of a case, and whether its card is the one of the start. Raises as planning does."""
    knowledge = _knowledge(case, planning)
    count = case.cards or case.layout.get("tensor", 1)
    named = case.card is not None and case.cards is not None
    try:
        _, rack = planning.rack(f"{count}x{case.card or ANY_CARD}")
    except HeavyliftError:
        named = False
        _, rack = planning.rack(f"{count}x{ANY_CARD}")
    if rack is None:
        raise TypeError(case)
    layout = dict(case.layout)
    if "tensor" not in layout and case.engine != "ollama":
        layout |= {"tensor": 1} if count == 1 else {}
    request = PlanRequest(
        model=case.plan_as,
        rack=rack,
        engine=case.engine,
        engine_version=case.engine_version,
        context_tokens=case.context,
        concurrency=case.slots,
        kv_cache_dtype=case.kv_dtype,
        layout_constraints=layout,
        gpu_memory_utilization=case.fraction,
        max_num_batched_tokens=case.batched_tokens,
        max_num_seqs=case.max_num_seqs,
        draft_tokens=case.draft_tokens,
        drafter=case.drafter,
        vision=False if case.text_only else None,
    )
    return as_started(planning.plan(request, knowledge, with_fixes=False), knowledge), named


def _knowledge(case: Case, planning: Planning) -> Knowledge:
    return planning.knowledge(case.plan_as)


# --- terms ---------------------------------------------------------------------------------------


def _weights(case: Case, plan: Plan) -> Score | None:
    said = case.measured.get("weights_gib")
    if said is None:
        return None
    # The low is what is planned; the high only says what a copy known by its name may add.
    low = plan.per_gpu.weights_bytes.low / GIB
    return _scored(case, "weights", low, low, said)


def _kv_each(case: Case, plan: Plan) -> Score | None:
    """KV bytes of a token; where sequences keep states or windows, of a whole sequence."""
    pool, tokens = case.measured.get("kv_gib"), case.measured.get("kv_tokens")
    if case.measured.get("kv_gib_total") and case.context:
        # Cells of every slot; one sequence is planned.
        said = case.measured["kv_gib_total"] * GIB / case.context
        return _scored(case, "kv_each", plan.kv_bytes_per_token, plan.kv_bytes_per_token, said)
    if pool is None:
        return None
    if case.engine in GGUF_ENGINES:
        # No pool: the cells of all slots for the context that was set.
        planned = plan.per_gpu.kv_cache_bytes.low / GIB
        return _scored(case, "kv_each", planned, planned, pool) if case.context else None
    if plan.engine == "vllm" and _keeps_more_than_tokens(plan):
        return _kv_sequence(case, plan, pool)
    each = plan.kv_bytes_per_token / plan.layout.decode_context_parallel_size
    return None if tokens is None else _scored(case, "kv_each", each, each, pool * GIB / tokens)


def _kv_sequence(case: Case, plan: Plan, pool_gib: float) -> Score | None:
    sequences = _sequences(case)
    if sequences is None:
        return None
    kv, state = plan.per_gpu.kv_cache_bytes, plan.per_gpu.recurrent_state_bytes
    low, high = kv.low + state.low, (kv.high or kv.low) + (state.high or state.low)
    return _scored(case, "kv_each", low, high, pool_gib * GIB / sequences)


def _keeps_more_than_tokens(plan: Plan) -> bool:
    grown = plan.kv_bytes_per_token * plan.context_tokens
    return (
        plan.per_gpu.recurrent_state_bytes.low > 0 or plan.per_gpu.kv_cache_bytes.low > 1.02 * grown
    )


def _sequences(case: Case) -> float | None:
    """How many sequences of the longest length the pool holds, as closely as the log says."""
    printed, tokens = case.measured.get("sequences"), case.measured.get("kv_tokens")
    if tokens is None or not case.context:
        return printed
    by_tokens = tokens / case.context
    if printed is None or abs(by_tokens / printed - 1) < _SAME:
        return by_tokens
    return printed


def _kv_pool(case: Case, plan: Plan) -> Score | None:
    """What the pool holds: tokens as printed, or its GiB. No more than planned may be there."""
    tokens = case.measured.get("kv_tokens")
    if case.lacks("weights") or case.engine in GGUF_ENGINES:
        # What weights leave is not known either, and those engines keep no pool.
        return None
    if tokens is not None:
        planned = plan.capacity.kv_tokens
        return _scored(case, "kv_pool", planned.low, planned.high, tokens)
    pool = case.measured.get("kv_gib")
    if pool is None:
        return None
    room = plan.per_gpu.headroom_bytes + plan.per_gpu.kv_cache_bytes.low
    return _scored(case, "kv_pool", 0, max(0, room) / GIB, pool)


def _scored(case: Case, term: str, low: float, high: float | None, said: float) -> Score:
    if said < low:
        error = low / said - 1
    elif high is not None and said > high:
        error = high / said - 1
    else:
        error = 0.0
    return Score(case=case, term=term, planned=(low, high), measured=said, error=error)


_TERMS: Final[dict[str, Callable[[Case, Plan], Score | None]]] = {
    "weights": _weights,
    "kv_each": _kv_each,
    "kv_pool": _kv_pool,
}
_ASKED_OF: Final = {"weights": "weights", "kv_each": "kv", "kv_pool": "kv"}


# --- sums ----------------------------------------------------------------------------------------


def has_weights(case: Case) -> bool:
    """True for a case whose weights were measured exactly."""
    return case.evidence in EXACT and "weights_gib" in case.measured


def has_kv(case: Case) -> bool:
    """True for a case whose KV pool was measured exactly."""
    return case.evidence in EXACT and bool({"kv_gib", "kv_tokens"} & case.measured.keys())


@dataclass(frozen=True, slots=True)
class Summary:
    """A term over some cases: planned of total, median and worst error."""

    planned: int
    total: int
    median: float | None
    worst: float | None

    @classmethod
    def of(cls, scores: Sequence[Score], total: int, planned: int | None = None) -> Summary:
        """The summary of scores among `total` cases."""
        errors = sorted(abs(each.error) for each in scores)
        return cls(
            planned=len(scores) if planned is None else planned,
            total=total,
            median=median(errors) if errors else None,
            worst=errors[-1] if errors else None,
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """Verdicts against outcomes. `tight` says yes with a warning: it counts as yes, and apart."""

    table: Counter[tuple[str, str]]

    def count(self, outcome: str, *verdicts: str) -> int:
        """Cases of an outcome that got one of the verdicts."""
        return sum(self.table[outcome, verdict] for verdict in verdicts)

    @property
    def decided(self) -> float | None:
        """Balanced accuracy over the cases that were decided: fits or does not fit."""
        return _balanced(
            (self.count("ok", "fits"), self.count("ok", "fits", "does_not_fit")),
            (self.count("oom", "does_not_fit"), self.count("oom", "fits", "does_not_fit")),
        )

    @property
    def warned(self) -> float | None:
        """Balanced accuracy when a start that ran out of memory had to be warned of (tight or no),
        and one that ran had not to be refused.
        """
        every = ("fits", "tight", "does_not_fit")
        return _balanced(
            (self.count("ok", "fits", "tight"), self.count("ok", *every)),
            (self.count("oom", "tight", "does_not_fit"), self.count("oom", *every)),
        )

    @property
    def by_exit_status(self) -> float | None:
        """Balanced accuracy of the bare answer, in which tight is a yes."""
        every = ("fits", "tight", "does_not_fit")
        return _balanced(
            (self.count("ok", "fits", "tight"), self.count("ok", *every)),
            (self.count("oom", "does_not_fit"), self.count("oom", *every)),
        )


def _balanced(*shares: tuple[int, int]) -> float | None:
    if any(total == 0 for _, total in shares):
        return None
    return sum(right / total for right, total in shares) / len(shares)


def fit(results: Iterable[Result]) -> Fit:
    """The table of verdicts against outcomes."""
    return Fit(Counter((each.case.outcome, each.verdict) for each in results if each.verdict))
