"""ServeGen's clients: rates by window and histograms of sizes, to requests. Pure.

A client is two files: `chunk-N-trace.csv`, a window a line (start in seconds, requests per second,
their gaps' coefficient of variation, the law of the gaps and its two parameters), and
`chunk-N-dataset.json`, the part of requests by number of tokens for each window.

Source: alibaba/ServeGen, servegen/clientpool.py and construct.py, 2026.
"""

from __future__ import annotations

import csv
import heapq
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from heavylift.stats import Chance
from heavylift.traffic.draws import gamma, weibull
from heavylift.traffic.trace import Arrival, unreadable

TRACE_SUFFIX: Final = "-trace.csv"
DATASET_SUFFIX: Final = "-dataset.json"

_LAST_WINDOW_S: Final = 600.0
_SHARE: Final = re.compile(r"(\d+): *([0-9.eE+-]+)")
_LAWS: Final = frozenset({"Gamma", "Weibull"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """A stretch of a client's time: from when to when, requests per second, the gaps' law."""

    start_s: float
    end_s: float
    rate_per_s: float
    law: str
    shape: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Sizes in tokens, ascending, and the part of requests up to each."""

    tokens: tuple[int, ...]
    up_to: tuple[float, ...]

    def drawn(self, chance: Chance) -> int:
        """A size."""
        place = bisect_left(self.up_to, chance() * self.up_to[-1])
        return self.tokens[min(place, len(self.tokens) - 1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """One client. `sizes` are histograms of prompt and answer from a second on, ascending."""

    windows: tuple[Window, ...]
    sizes: tuple[tuple[float, Histogram, Histogram], ...]

    def sizes_at(self, start_s: float) -> tuple[Histogram, Histogram]:
        """The histograms of a window: its own, else the last before it, else the first."""
        at = bisect_right([entry[0] for entry in self.sizes], start_s)
        _, given, made = self.sizes[max(0, at - 1)]
        return given, made


def parse_client(
    trace: Iterable[str], dataset: bytes | str, trace_path: str, dataset_path: str
) -> Client:
    """A client from its two files. Raises USE061 with the file and line that cannot be read."""
    return Client(
        windows=tuple(_windows(trace, trace_path)), sizes=tuple(_sizes(dataset, dataset_path))
    )


def _windows(lines: Iterable[str], path: str) -> Iterator[Window]:
    rows: list[tuple[float, float, str, float]] = []
    for number, cells in enumerate(csv.reader(lines), 1):
        if not cells:
            continue
        try:
            start, rate, _, law, shape, _ = cells
            row = (float(start), float(rate), law, float(shape))
        except ValueError as error:
            raise unreadable(path, number, str(error)) from error
        sound = all(map(math.isfinite, (row[0], row[1], row[3]))) and row[1] >= 0
        behind = bool(rows) and row[0] <= rows[-1][0]
        if not sound or behind or (row[1] > 0 and (law not in _LAWS or row[3] <= 0)):
            raise unreadable(path, number, ",".join(cells))
        rows.append(row)
    lengths = [later[0] - earlier[0] for earlier, later in pairwise(rows)]
    last = lengths[-1] if lengths else _LAST_WINDOW_S
    for row, length in zip(rows, (*lengths, last), strict=False):
        if row[1] > 0:
            yield Window(
                start_s=row[0],
                end_s=row[0] + length,
                rate_per_s=row[1],
                law=row[2],
                shape=row[3],
            )


def _sizes(document: bytes | str, path: str) -> Iterator[tuple[float, Histogram, Histogram]]:
    try:
        by_window = msgspec.json.decode(document, type=dict[str, dict[str, str]])
        entries = sorted((float(start), fields) for start, fields in by_window.items())
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise unreadable(path, 1, str(error)) from error
    found = False
    for start_s, fields in entries:
        given, made = _histogram(fields, "input_tokens"), _histogram(fields, "output_tokens")
        if given is not None and made is not None:
            found = True
            yield start_s, given, made
    if not found:
        raise unreadable(path, 1, "input_tokens, output_tokens?")


def _histogram(fields: Mapping[str, str], name: str) -> Histogram | None:
    """A histogram as printed, `{224: 0.00031, 225: …}`; None for an empty one."""
    pairs = sorted((int(t), float(part)) for t, part in _SHARE.findall(fields.get(name, "")))
    up_to = tuple(accumulate(part for _, part in pairs))
    if not up_to or not 0 < up_to[-1] < math.inf:
        return None
    return Histogram(tuple(tokens for tokens, _ in pairs), up_to)


def arrivals(clients: Sequence[Client], chance: Chance) -> Iterator[Arrival]:
    """The requests of all clients in order of time, drawn anew from their windows.

    A window holds its rate times its length of them, a part of one by chance; the gaps have its law
    and fill it. Sizes of prompt and answer are drawn apart: the files do not say how they go
    together.
    """
    series = (_of_client(client, chance) for client in clients)
    return heapq.merge(*series, key=lambda arrival: arrival.at_s or 0.0)


def _of_client(client: Client, chance: Chance) -> Iterator[Arrival]:
    for window in client.windows:
        given, made = client.sizes_at(window.start_s)
        length = window.end_s - window.start_s
        count = int(window.rate_per_s * length + chance())
        gaps = [_gap(window, chance) for _ in range(count + 1)]
        whole = sum(gaps) or 1.0
        at_s = window.start_s
        for gap in gaps[:count]:
            at_s += gap / whole * length
            answer = made.drawn(chance)
            if answer < 1:
                continue
            yield Arrival(at_s=at_s, input_tokens=max(1, given.drawn(chance)), output_tokens=answer)


def _gap(window: Window, chance: Chance) -> float:
    if window.law == "Weibull":
        return weibull(window.shape, chance)
    return gamma(1.0, 1 / math.sqrt(window.shape), chance)
