"""Drift over a long run: whether latency grows, memory fills, or requests begin to fail. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from heavylift.stats import Chance, bootstrap, median
from heavylift.telemetry.gpu_readings import GpuReading
from heavylift.verify.judge import result
from heavylift.verify.records import Check, CheckResult, Status, Trial

Point = tuple[float, float]
"""Seconds after the start, and what was measured then."""

_FEWEST: Final = 8
"""Points in a third of the run that say anything of it."""
_TICK_S: Final = 0.001
"""Latencies below a millisecond are the host's, not the engine's: growth counts from there."""
_MOST: Final = 400
"""Points of a third that are resampled: more say nothing new."""
SLOWER: Final = 0.10
"""Growth of the median latency from the first third to the last that counts as drift: what
neighbours on a busy host make of it by themselves is less."""
FULLER: Final = 0.01
"""Growth of a GPU's memory, as a share of all it has, that counts as drift: allocators round."""


def drift_results(
    latencies: Mapping[str, Sequence[Point]],
    gpus: Sequence[GpuReading],
    outcomes: tuple[int, int],
    chance: Chance,
) -> tuple[CheckResult, ...]:
    """The checks of a soak. `latencies` by name; `outcomes`: requests, and how many of them did not
    arrive whole.
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
        _judged(f"soak.{name}", latency_drift(points, chance), Status.WARN)
        for name, points in latencies.items()
    ]
    if gpus:
        results.append(_judged("soak.memory", memory_drift(gpus), Status.FAIL))
    return tuple(results)


_ALLOWED: Final = 0.001
"""One request in a thousand."""


def latency_drift(points: Sequence[Point], chance: Chance) -> Trial:
    """Whether the median of the last third lies above that of the first, beyond `SLOWER`.

    The lower end of the bootstrap interval decides: a wavering server is not a slowing one.
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
    return Trial(
        reason="latency_drifts" if interval.low > SLOWER else None,
        evidence=(
            f"median {median(early) * 1e3:.1f} ms in the first third, {median(late) * 1e3:.1f} ms "
            f"in the last: {change:+.1%} [{interval.low:+.1%}, {interval.high:+.1%}]"
        ),
        figures={"growth_ratio": change},
    )


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
