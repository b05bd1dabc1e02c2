"""Figures of a stage from its samples, and the comparison of two runs. Pure.

Definitions, the same in every report: see `DEFINITIONS` for their keys in the catalogue.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from heavylift.bench.records import (
    Comparison,
    Distribution,
    Figures,
    Found,
    MetricChange,
    RequestCounts,
    Sample,
    Stage,
)
from heavylift.bench.slo import Slo
from heavylift.stats import Chance, Interval, bootstrap, mean, quantile, rate_interval

DEFINITIONS: Final = (
    "ttft",
    "ttfa",
    "tpot",
    "itl",
    "e2e",
    "goodput",
    "window",
    "rates",
    "errors",
    "cached",
    "output_length",
)
CHUNK_GAP_BELOW: Final = 0.9
"""With fewer chunks per token than this a gap is between chunks and says nothing per token."""


def tpot_s(
    first_s: float | None, last_s: float | None, tokens: int, in_first_chunk: int
) -> float | None:
    """Seconds per output token after the first chunk; None when nothing came after it.

    Formula: (t_last − t_first) / (completion_tokens − tokens_in_first_chunk).
    """
    if first_s is None or last_s is None or tokens <= in_first_chunk:
        return None
    return (last_s - first_s) / (tokens - in_first_chunk)


def distribution(values: Iterable[float | None]) -> Distribution | None:
    """The distribution of the values that are known; None when none is."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    p50, p90, p95, p99 = (quantile(known, share) for share in (0.5, 0.9, 0.95, 0.99))
    return Distribution(
        count=len(known),
        mean=mean(known),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        min=known[0],
        max=known[-1],
    )


def counts(samples: Sequence[Sample]) -> RequestCounts:
    """How many succeeded and how the others failed."""
    failures = Counter(str(sample.failure) for sample in samples if sample.failure is not None)
    failed = failures.total()
    return RequestCounts(
        ok=len(samples) - failed, failed=failed, failures=dict(sorted(failures.items()))
    )


def figures(samples: Sequence[Sample], slo: Slo | None = None) -> Figures:
    """The figures of a stage: latencies and rates over successes, with the error rate beside."""
    good = [sample for sample in samples if sample.failure is None]
    window_s = _window_s(samples)
    chunks = sum(sample.chunks for sample in good)
    output = sum(sample.completion_tokens for sample in good)
    ttft, ttfa = (distribution(s.ttft_s for s in good), distribution(s.ttfa_s for s in good))
    tpot, e2e = (distribution(s.tpot_s for s in good), distribution(s.e2e_s for s in good))
    itl = distribution(gap for sample in good for gap in sample.itl_s)
    prompt = _total(sample.prompt_tokens for sample in good)
    chunks_per_token = chunks / output if output else None
    by_metric = {"ttft": ttft, "ttfa": ttfa, "tpot": tpot, "itl": itl, "e2e": e2e}
    return Figures(
        requests=counts(samples),
        window_s=window_s,
        ttft_s=ttft,
        ttfa_s=ttfa,
        tpot_s=tpot,
        itl_s=itl,
        e2e_s=e2e,
        stamp_error_s=distribution(error for sample in good for error in sample.stamp_error_s),
        itl_is_chunk_gap=chunks_per_token is not None and chunks_per_token < CHUNK_GAP_BELOW,
        counted_by_server=all(sample.counted_by_server for sample in good),
        chunks_per_token=chunks_per_token,
        output_tokens_per_s=_per_s(output, window_s),
        total_tokens_per_s=None if prompt is None else _per_s(output + prompt, window_s),
        achieved_per_s=_per_s(len(good), window_s),
        error_rate=1 - len(good) / len(samples) if samples else 0.0,
        goodput_per_s=(
            None if slo is None else _per_s(sum(slo.holds_for(s) for s in good), window_s)
        ),
        slo_met=None if slo is None else slo.met_by(by_metric),
        prompt_tokens_mean=None if prompt is None or not good else prompt / len(good),
        output_tokens_mean=output / len(good) if good else None,
        reasoning_share=_share(_total(s.reasoning_tokens for s in good), output),
        cached_share=_share(_total(s.cached_tokens for s in good), prompt),
        output_length_deviation=_output_length_deviation(good),
    )


def headline(stages: Sequence[Stage], found: Found | None) -> Stage:
    """The stage whose figures stand for the run: the one found, else the last."""
    if found is None or found.concurrency is None:
        return stages[-1]
    return next(s for s in reversed(stages) if s.load.concurrency == found.concurrency)


def _window_s(samples: Sequence[Sample]) -> float:
    if not samples:
        return 0.0
    return max(s.ended_s for s in samples) - min(s.started_s for s in samples)


def _per_s(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _total(values: Iterable[int | None]) -> int | None:
    """The sum; None as soon as one is unknown: a partial sum would pass for the whole."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def _output_length_deviation(good: Sequence[Sample]) -> float | None:
    """Mean of |got − wanted| / wanted; None when no length was asked for."""
    wanted = [(s.completion_tokens, s.wanted_tokens) for s in good if s.wanted_tokens]
    if not wanted:
        return None
    return mean([abs(got - want) / want for got, want in wanted])


# --- two runs ------------------------------------------------------------------------------------

Reading = Callable[[Sample], float | None]

_LATENCIES: Final[tuple[tuple[str, Reading, float], ...]] = tuple(
    (f"{name}_{label}", reading, share)
    for name, reading in (
        ("ttft", lambda sample: sample.ttft_s),
        ("ttfa", lambda sample: sample.ttfa_s),
        ("tpot", lambda sample: sample.tpot_s),
        ("e2e", lambda sample: sample.e2e_s),
    )
    for label, share in (("p50", 0.5), ("p99", 0.99))
)
_FEWEST: Final = 2


def compare(
    a: Sequence[Sample], b: Sequence[Sample], *, names: tuple[str, str], chance: Chance
) -> Comparison:
    """B against A, metric by metric, with bootstrap intervals of the difference.

    Requests with the same prompt are paired, which takes the difference between prompts out of
    it; where no prompt is in both, the two runs are resampled each for itself. Rows that failed
    in either run are left out of the latencies; compare the error rates first. Of runs with several
    stages only the loads that both had are compared: another load has other latencies by rights.
    """
    loads = _common_loads(a, b)
    if loads:
        a = [sample for sample in a if sample.load in loads]
        b = [sample for sample in b if sample.load in loads]
    good_a = {_pair_key(sample): sample for sample in a if sample.failure is None}
    good_b = {_pair_key(sample): sample for sample in b if sample.failure is None}
    pairs = [(sample, good_b[key]) for key, sample in good_a.items() if key in good_b]
    changes = []
    for metric, reading, share in _LATENCIES:
        if pairs:
            change = _paired(pairs, reading, share, chance)
        else:
            change = _unpaired(good_a.values(), good_b.values(), reading, share, chance)
        if change is not None:
            at_a, at_b, interval = change
            changes.append(_change(metric, at_a, at_b, interval))
    return Comparison(
        a=names[0],
        b=names[1],
        pairs=len(pairs),
        requests_a=counts(a),
        requests_b=counts(b),
        errors=_errors(a, b),
        changes=tuple(changes),
        loads=loads,
    )


def _common_loads(a: Sequence[Sample], b: Sequence[Sample]) -> tuple[str, ...]:
    """The loads of both runs, in order; none where each has one load, or where they share none."""
    of_a, of_b = ({sample.load: None for sample in side} for side in (a, b))
    if max(len(of_a), len(of_b)) == 1:
        return ()
    return tuple(load for load in of_a if load is not None and load in of_b)


def _errors(a: Sequence[Sample], b: Sequence[Sample]) -> MetricChange:
    """The share of requests that failed. The interval is never a point where none failed.

    Formula: the hybrid of the two runs' exact intervals. Source: Newcombe, Interval estimation for
    the difference between independent proportions, Statistics in Medicine 17, 1998, method 10.
    """
    failed = [sum(sample.failure is not None for sample in side) for side in (a, b)]
    rates = [count / len(side) if side else 0.0 for count, side in zip(failed, (a, b), strict=True)]
    of_a, of_b = (
        rate_interval(count, len(side)) for count, side in zip(failed, (a, b), strict=True)
    )
    below = math.hypot(rates[1] - of_b.low, of_a.high - rates[0])
    above = math.hypot(of_b.high - rates[1], rates[0] - of_a.low)
    difference = rates[1] - rates[0]
    interval = Interval(low=difference - below, high=difference + above)
    return _change("error_rate", rates[0], rates[1], interval)


def _pair_key(sample: Sample) -> tuple[int, int, str]:
    return (sample.index, sample.turn, sample.prompt_digest)


def _change(metric: str, a: float, b: float, interval: Interval) -> MetricChange:
    if interval.low > 0:
        is_worse: bool | None = True
    else:
        is_worse = False if interval.high < 0 else None
    return MetricChange(
        metric=metric,
        a=a,
        b=b,
        difference=b - a,
        low=interval.low,
        high=interval.high,
        is_worse=is_worse,
    )


def _paired(
    pairs: Sequence[tuple[Sample, Sample]], reading: Reading, share: float, chance: Chance
) -> tuple[float, float, Interval] | None:
    known = [
        (of_a, of_b)
        for of_a, of_b in ((reading(a), reading(b)) for a, b in pairs)
        if of_a is not None and of_b is not None
    ]
    if len(known) < _FEWEST:
        return None

    def difference(drawn: Sequence[tuple[float, float]]) -> float:
        return _at([b for _, b in drawn], share) - _at([a for a, _ in drawn], share)

    interval = bootstrap(known, difference, chance)
    return _at([a for a, _ in known], share), _at([b for _, b in known], share), interval


def _unpaired(
    a: Iterable[Sample], b: Iterable[Sample], reading: Reading, share: float, chance: Chance
) -> tuple[float, float, Interval] | None:
    tagged = [(0, reading(sample)) for sample in a] + [(1, reading(sample)) for sample in b]
    known = [(side, value) for side, value in tagged if value is not None]
    sides = [[value for side, value in known if side == wanted] for wanted in (0, 1)]
    if min(map(len, sides)) < _FEWEST:
        return None

    def difference(_: Sequence[tuple[int, float]]) -> float:
        # Each side is drawn for itself, so that none can come out empty.
        drawn = [[side[int(chance() * len(side))] for _ in side] for side in sides]
        return _at(drawn[1], share) - _at(drawn[0], share)

    interval = bootstrap(known, difference, chance)
    return _at(sides[0], share), _at(sides[1], share), interval


def _at(values: Sequence[float], share: float) -> float:
    return quantile(sorted(values), share)
