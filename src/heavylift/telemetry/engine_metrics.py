"""What an engine tells of itself on its metrics page, and what two looks at it make. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from heavylift.records.watch import EngineNow, LengthBin, Quantiles, Sight
from heavylift.telemetry import engine_queue
from heavylift.telemetry.engine_queue import EngineQueue, MetricNames
from heavylift.telemetry.prometheus import Buckets, histogram, samples

_COUNTERS: Final = (
    "preemptions",
    "prompt_tokens",
    "generation_tokens",
    "prefix_hits",
    "prefix_queries",
    "requests",
)
_HISTOGRAMS: Final = ("ttft", "tpot", "e2e", "prompt_length", "output_length")


@dataclass(frozen=True, kw_only=True, slots=True)
class EnginePage:
    """One look: the queue, counters since the engine's start, histograms of times and lengths."""

    at_s: float
    queue: EngineQueue
    counters: dict[str, float] = field(default_factory=dict)
    prefix_hit_ratio: float | None = None
    times: dict[str, Buckets] = field(default_factory=dict)

    @property
    def tells(self) -> bool:
        """True when at least one name we know stood on the page."""
        return self.queue != EngineQueue() or bool(self.counters) or bool(self.times)


def read(page: str, names: MetricNames, at_s: float) -> EnginePage:
    """A metrics page; replicas are summed, of several names the first that is there counts."""
    found = samples(page)

    def values(figure: str) -> tuple[float, ...]:
        return next((found[name] for name in names.get(figure, ()) if name in found), ())

    times = {
        figure: buckets
        for figure in _HISTOGRAMS
        for buckets in [
            next(filter(None, (histogram(page, name) for name in names.get(figure, ()))), None)
        ]
        if buckets is not None
    }
    ratios = values("prefix_hit_ratio")
    return EnginePage(
        at_s=at_s,
        queue=engine_queue.read(page, names),
        counters={figure: sum(told) for figure in _COUNTERS if (told := values(figure))},
        prefix_hit_ratio=sum(ratios) / len(ratios) if ratios else None,
        times=times,
    )


def now(pages: Sequence[EnginePage]) -> EngineNow:
    """The engine at the last look; rates and quantiles over the looks before it.

    A counter that fell began again: the engine was started anew, and what was before is left out.
    Where no request ended in the window, quantiles are those since the start, and say so.
    """
    if not pages:
        return EngineNow(sight=Sight.NO_METRICS)
    last = pages[-1]
    if not last.tells:
        return EngineNow(sight=Sight.NO_KNOWN_METRICS)
    first = _since_start(pages)
    window_s = last.at_s - first.at_s

    def grown(figure: str) -> float | None:
        if window_s <= 0 or figure not in first.counters or figure not in last.counters:
            return None
        return last.counters[figure] - first.counters[figure]

    def rate(figure: str) -> float | None:
        more = grown(figure)
        return None if more is None else more / window_s

    return EngineNow(
        sight=Sight.SEEN,
        running=last.queue.running,
        waiting=last.queue.waiting,
        kv_use_ratio=last.queue.kv_use_ratio,
        preemptions=last.counters.get("preemptions"),
        preemptions_in_window=grown("preemptions"),
        prefix_hit_ratio=_hits(last, grown("prefix_hits"), grown("prefix_queries")),
        prompt_tokens=last.counters.get("prompt_tokens"),
        generation_tokens=last.counters.get("generation_tokens"),
        prompt_tokens_per_s=rate("prompt_tokens"),
        output_tokens_per_s=rate("generation_tokens"),
        requests=last.counters.get("requests"),
        steps=last.queue.steps,
        ttft=_quantiles(first, last, "ttft"),
        tpot=_quantiles(first, last, "tpot"),
        e2e=_quantiles(first, last, "e2e"),
        prompt_lengths=_lengths(first, last, "prompt_length"),
        output_lengths=_lengths(first, last, "output_length"),
        window_s=window_s if window_s > 0 else None,
    )


def _since_start(pages: Sequence[EnginePage]) -> EnginePage:
    """The first look of the engine's present life."""
    first = pages[-1]
    for page in reversed(pages[:-1]):
        if any(page.counters.get(name, 0.0) > first.counters.get(name, 0.0) for name in _COUNTERS):
            break
        first = page
    return first


def _hits(last: EnginePage, hits: float | None, queries: float | None) -> float | None:
    """The share of tokens found in the prefix cache: in the window, else since the start."""
    if hits is not None and queries:
        return hits / queries
    all_hits, all_queries = last.counters.get("prefix_hits"), last.counters.get("prefix_queries")
    if all_hits is not None and all_queries:
        return all_hits / all_queries
    return last.prefix_hit_ratio


def _quantiles(first: EnginePage, last: EnginePage, figure: str) -> Quantiles | None:
    buckets = last.times.get(figure)
    if buckets is None:
        return None
    before = dict(first.times.get(figure, ())) if first is not last else {}
    inside = tuple((bound, count - before.get(bound, 0.0)) for bound, count in buckets)
    basis = "window" if before and inside[-1][1] > 0 else "since_start"
    chosen = inside if basis == "window" else buckets
    count = chosen[-1][1]
    if count <= 0:
        return None
    return Quantiles(
        p50_s=bucket_quantile(chosen, 0.5),
        p99_s=bucket_quantile(chosen, 0.99),
        basis=basis,
        count=round(count),
    )


def _lengths(first: EnginePage, last: EnginePage, figure: str) -> tuple[LengthBin, ...]:
    """Requests that ended in the window, by length; none without an earlier look."""
    buckets, before = last.times.get(figure), dict(first.times.get(figure, ()))
    if buckets is None or first is last or not before:
        return ()
    found, below = [], 0.0
    for bound, count in buckets:
        upto = count - before.get(bound, 0.0)
        if upto > below:
            most = None if math.isinf(bound) else round(bound)
            found.append(LengthBin(most_tokens=most, requests=round(upto - below)))
        below = max(below, upto)
    return tuple(found)


def bucket_quantile(buckets: Buckets, share: float) -> float:
    """The `share` quantile (above 0) of a histogram that is not empty, in its unit.

    Formula: linear inside the bucket in which rank share·n lies; in the last, infinite bucket its
    lower bound, which the true value exceeds.
    Source: https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile.
    """
    rank = share * buckets[-1][1]
    place = next(number for number, (_, count) in enumerate(buckets) if 0 < count >= rank)
    low, below = buckets[place - 1] if place else (0.0, 0.0)
    bound, count = buckets[place]
    return low if math.isinf(bound) else low + (bound - low) * (rank - below) / (count - below)
