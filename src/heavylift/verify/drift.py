"""Drift over a long run: whether latency grows, memory fills, or requests begin to fail. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from heavylift.stats import Chance, Interval, bootstrap, mean, median
from heavylift.telemetry.gpu_readings import GpuReading
from heavylift.verify.judge import result
from heavylift.verify.records import Check, CheckResult, Status, Trial

Point = tuple[float, float]
"""Seconds after the start, and what was measured then."""

_FEWEST: Final = 8
"""Points in a third of the run that say anything of it."""
_TICK_S: Final = 0.001
"""Latencies below a millisecond are the host's, not the engine's: growth counts from there."""
_KEPT_WAITING: Final = 0.05
"""More of its ready time in which an engine waits for a processor than before: neighbours."""
_MOST: Final = 400
"""Points of a third that are resampled: more say nothing new."""
SLOWER: Final = 0.10
"""Growth of the median latency from the first third to the last that counts as drift: what
neighbours on a busy host make of it by themselves is less."""
FULLER: Final = 0.01
"""Growth of a GPU's memory, as a share of all it has, that counts as drift: allocators round."""
HORIZON_HOURS: Final = 7 * 24.0
"""A machine that is full within a week of service has a leak that somebody must see."""
_BLOCKS: Final = 20
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSide:
    """The engine's processes on this machine over time: bytes held, and the share of their ready
    time in which they waited for a processor; and what the machine had left.
    """

    name: str
    points: Sequence[Point]
    available_bytes: int | None
    waits: Sequence[Point] = ()


def drift_results(
    latencies: Mapping[str, Sequence[Point]],
    gpus: Sequence[GpuReading],
    outcomes: tuple[int, int],
    chance: Chance,
    host: HostSide | None = None,
) -> tuple[CheckResult, ...]:
    """The checks of a soak. `latencies` by name; `outcomes`: requests, and how many of them did not
    arrive whole; `host` None = the engine's processes were not to be seen.
    """
    requests, failed = outcomes
    errors = Trial(
        reason="requests_fail" if failed > _ALLOWED * requests else None,
        evidence=f"{failed} of {requests} requests did not arrive whole",
        figures={"error_ratio": failed / requests if requests else 0.0},
        undecided=requests == 0,
    )
    results = [_judged("soak.errors", errors, Status.FAIL)]
    results += [
        _judged(f"soak.{name}", latency_drift(points, chance, host), Status.WARN)
        for name, points in latencies.items()
    ]
    if gpus:
        results.append(_judged("soak.memory", memory_drift(gpus), Status.FAIL))
    if host is not None:
        # What it would come to is worked out, not seen: a warning.
        results.append(_judged("soak.host_memory", host_memory_drift(host, chance), Status.WARN))
    return tuple(results)


_ALLOWED: Final = 0.001
"""One request in a thousand."""


def latency_drift(points: Sequence[Point], chance: Chance, host: HostSide | None = None) -> Trial:
    """Whether the median of the last third lies above that of the first, beyond `SLOWER`.

    The lower end of the bootstrap interval decides: a wavering server is not a slowing one. Where
    the engine also waited longer for a processor than before, its neighbours may have done it:
    then nothing can be concluded of the engine.
    """
    early, late = _thirds(points)
    if min(len(early), len(late)) < _FEWEST:
        return Trial(reason="too_short", evidence=f"{len(points)} points", undecided=True)
    early, late = _thinned(early), _thinned(late)

    def growth(first: Sequence[float], last: Sequence[float]) -> float:
        return (median(last) - median(first)) / max(median(first), _TICK_S)

    def drawn(values: Sequence[float]) -> list[float]:
        return [values[int(chance() * len(values))] for _ in values]

    # Each third is drawn for itself.
    interval = bootstrap(early, lambda _: growth(drawn(early), drawn(late)), chance, resamples=400)
    change = growth(early, late)
    evidence = (
        f"median {median(early) * 1e3:.1f} ms in the first third, {median(late) * 1e3:.1f} ms "
        f"in the last: {change:+.1%} [{interval.low:+.1%}, {interval.high:+.1%}]"
    )
    figures = {"growth_ratio": change, "growth_low": interval.low, "growth_high": interval.high}
    slope = trend(points, chance)
    if slope is not None:
        per_hour, within = slope
        evidence += f"; {1e3 * per_hour:+.1f} ms an hour"
        evidence += f" [{1e3 * within.low:+.1f}, {1e3 * within.high:+.1f}]"
        figures |= {
            "slope_s_per_hour": per_hour,
            "slope_low_s_per_hour": within.low,
            "slope_high_s_per_hour": within.high,
        }
    if interval.low <= SLOWER:
        return Trial(evidence=evidence, figures=figures)
    kept = _thirds(() if host is None else host.waits)
    if min(map(len, kept)) >= _FEWEST and mean(kept[1]) - mean(kept[0]) > _KEPT_WAITING:
        first, last = (f"{mean(third):.0%}" for third in kept)
        evidence += f"; waited for a processor {first} of its time, then {last}"
        return Trial(reason="host_busier", evidence=evidence, figures=figures, undecided=True)
    return Trial(reason="latency_drifts", evidence=evidence, figures=figures)


def host_memory_drift(host: HostSide, chance: Chance) -> Trial:
    """Whether the engine's processes grow so fast that the machine is full within `HORIZON_HOURS`.

    The first third is not looked at: an engine fills its buffers as the first requests come. The
    lower end of the slope's interval decides.
    """
    times = [at for at, _ in host.points]
    start_s = min(times) + (max(times) - min(times)) / 3 if times else 0.0
    slope = trend([point for point in host.points if point[0] >= start_s], chance)
    if slope is None:
        evidence = f"{host.name}: looked at {len(host.points)} times"
        return Trial(reason="too_short", evidence=evidence, undecided=True)
    per_hour, within = slope
    mib = 2**20
    late = [value for at, value in host.points if at >= start_s]
    evidence = (
        f"{host.name} holds {median(late) / mib:.1f} MiB of its own, {per_hour / mib:+.2f} MiB an "
        f"hour [{within.low / mib:+.2f}, {within.high / mib:+.2f}] after the first third"
    )
    left = host.available_bytes
    full_hours = left / within.low if left is not None and within.low > 0 else None
    if full_hours is not None:
        evidence += f"; at the least the machine is full in {full_hours:,.0f} hours"
    grows = full_hours is not None and full_hours < HORIZON_HOURS
    return Trial(
        reason="memory_grows" if grows else None,
        evidence=evidence,
        figures={
            "held_bytes": median(late),
            "slope_bytes_per_hour": per_hour,
            "slope_low_bytes_per_hour": within.low,
            "slope_high_bytes_per_hour": within.high,
        },
    )


def trend(points: Sequence[Point], chance: Chance) -> tuple[float, Interval] | None:
    """The slope of a series in its unit per hour, with its interval; None with too few points.

    Neighbours in time are alike, so the run is cut into `_BLOCKS` of equal time, and the median of
    each is one observation. Formula: least squares through the blocks' medians; interval: blocks
    drawn with replacement. Source: Efron and Tibshirani, An introduction to the bootstrap, 1993,
    chapter 9 (bootstrapping pairs).
    """
    if not points:
        return None
    start, end = min(at for at, _ in points), max(at for at, _ in points)
    width = (end - start) / _BLOCKS
    values: dict[int, list[float]] = defaultdict(list)
    for at, value in points:
        values[min(_BLOCKS - 1, int((at - start) / width)) if width else 0].append(value)
    if len(values) < _FEWEST:
        return None
    blocks = [
        ((start + (number + 0.5) * width) / _HOUR_S, median(held))
        for number, held in sorted(values.items())
    ]
    return _slope(blocks), bootstrap(blocks, _slope, chance)


def _slope(blocks: Sequence[Point]) -> float:
    centre, level = mean([at for at, _ in blocks]), mean([value for _, value in blocks])
    spread = math.fsum((at - centre) ** 2 for at, _ in blocks)
    if not spread:
        return 0.0  # one block drawn again and again: it says nothing of a slope
    return math.fsum((at - centre) * (value - level) for at, value in blocks) / spread


def memory_drift(readings: Sequence[GpuReading]) -> Trial:
    """Whether a GPU holds more in the last third than in the first, beyond `FULLER`."""
    series: dict[int, list[Point]] = defaultdict(list)
    totals: dict[int, int] = {}
    for reading in readings:
        if reading.memory_used_bytes is not None and reading.memory_total_bytes:
            series[reading.gpu].append((reading.at_s, float(reading.memory_used_bytes)))
            totals[reading.gpu] = reading.memory_total_bytes
    grown: dict[int, float] = {}
    for gpu, points in series.items():
        early, late = _thirds(points)
        if min(len(early), len(late)) >= _FEWEST:
            grown[gpu] = (median(late) - median(early)) / totals[gpu]
    if not grown:
        return Trial(reason="too_short", evidence="no GPU was read often enough", undecided=True)
    worst = max(grown, key=lambda gpu: grown[gpu])
    return Trial(
        reason="memory_grows" if grown[worst] > FULLER else None,
        evidence=f"gpu {worst} grew most: {grown[worst]:+.2%} of its memory",
        figures={"growth_ratio": grown[worst]},
    )


def _thirds(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """The values of the first third of the time and of the last."""
    if not points:
        return [], []
    start, end = min(at for at, _ in points), max(at for at, _ in points)
    third = (end - start) / 3
    early = [value for at, value in points if at <= start + third]
    late = [value for at, value in points if at >= end - third]
    return early, late


def _thinned(values: Sequence[float]) -> list[float]:
    step = -(-len(values) // _MOST)
    return list(values[::step])


def _judged(name: str, trial: Trial, on_failure: Status) -> CheckResult:
    check = Check(id=name, probe="", trials={}, on_failure=on_failure)
    return result(check, [trial], expected=frozenset())
