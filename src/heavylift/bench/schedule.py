"""When requests are sent: at a rate, or as a trace says. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from heavylift.bench.records import Load, LoadKind
from heavylift.stats import Chance
from heavylift.traffic.trace import Arrival, without_size


def times(load: Load, chance: Chance) -> Iterator[float]:
    """When each request of an open loop is due, in seconds after the start. Endless.

    Formula (Poisson): gaps of −ln(1 − u) / rate.
    """
    rate = load.rate_per_s or 0.0
    if rate <= 0:
        raise ValueError(load)
    at_s = 0.0
    while True:
        yield at_s
        at_s += -math.log1p(-chance()) / rate if load.kind is LoadKind.POISSON else 1.0 / rate


def schedule(arrivals: Iterable[Arrival], path: str) -> tuple[Arrival, ...]:
    """The arrivals of a trace in order of time, in seconds after the first.

    Conversations without times all arrive at 0: use them with a rate or a closed loop. Raises
    USE076 with a line that states no size.
    """
    found = []
    for arrival in arrivals:
        if arrival.input_tokens is None and not arrival.turns:
            raise without_size(path, arrival.line)
        found.append((arrival.at_s or 0.0, arrival))
    found.sort(key=lambda pair: pair[0])
    return tuple(replace(arrival, at_s=at_s - found[0][0]) for at_s, arrival in found)
