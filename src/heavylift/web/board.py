"""Kept figures as small charts, in the order of the usual board of an inference engine. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.records.series import Bucket, FigureHistory, History
from heavylift.web.scale import round_ticks

WIDTH: Final = 320
HEIGHT: Final = 96
LEFT, RIGHT, TOP, BOTTOM = 44, 6, 6, 14
_GAP: Final = 6
"""Buckets without a look after which a line is broken: nothing was seen, so nothing is drawn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """What belongs on one chart: figures by name or by how they begin and end, drawn as `scale`
    times their value; of lengths a heat map.
    """

    key: str
    figures: tuple[str, ...]
    scale: float = 1.0
    of_gpus: str | None = None
    of_lengths: str | None = None


BOARD: Final = (
    Panel(key="e2e", figures=("engine.e2e_p50_s", "engine.e2e_p99_s")),
    Panel(key="throughput", figures=("engine.prompt_tokens_per_s", "engine.output_tokens_per_s")),
    Panel(key="tpot", figures=("engine.tpot_p50_s", "engine.tpot_p99_s"), scale=1000.0),
    Panel(key="scheduler", figures=("engine.running", "engine.waiting")),
    Panel(key="ttft", figures=("engine.ttft_p50_s", "engine.ttft_p99_s"), scale=1000.0),
    Panel(key="cache", figures=("engine.kv_use_ratio", "engine.prefix_hit_ratio"), scale=100.0),
    Panel(key="prompt_length", figures=(), of_lengths="engine.prompt_length."),
    Panel(key="output_length", figures=(), of_lengths="engine.output_length."),
    Panel(key="preemptions", figures=("engine.preemptions",)),
    Panel(key="gpu_memory", figures=(), of_gpus="memory_used_bytes", scale=2.0**-30),
    Panel(key="gpu_use", figures=(), of_gpus="use_ratio", scale=100.0),
    Panel(key="gpu_power", figures=(), of_gpus="power_w"),
    Panel(key="gpu_temperature", figures=(), of_gpus="temperature_c"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One figure on a chart. `name` is its text's key, or a GPU's number. `paths` are its unbroken
    stretches, `last` its last value.
    """

    name: str
    style: int
    paths: tuple[str, ...]
    last: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A place of a heat map: requests of about one length that ended about then. `share` is of the
    most that any place has, 0 to 1.
    """

    x: float
    y: float
    width: float
    height: float
    share: float
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """A panel with something on it; `top` is the end of its axis. `cells` are those of a heat map,
    whose axis has a place for each of `rows`, the longest last.
    """

    key: str
    lines: tuple[Line, ...]
    top: float
    cells: tuple[Cell, ...] = ()
    rows: tuple[str, ...] = ()


def panels(history: History, now_s: float) -> tuple[Drawn, ...]:
    """The charts of a history in the board's order; those without a figure are left out."""
    kept = {figure.name: figure for figure in history.figures}
    found = (_drawn(panel, kept, history, now_s) for panel in BOARD)
    return tuple(filter(None, found))


def _drawn(
    panel: Panel, kept: Mapping[str, FigureHistory], history: History, now_s: float
) -> Drawn | None:
    if panel.of_lengths is not None:
        return _heat(panel.key, panel.of_lengths, kept, history, now_s)
    figures = list(_figures(panel, kept))
    values = [bucket.high * panel.scale for _, figure in figures for bucket in figure.buckets]
    if not values:
        return None
    # An axis of nothing but zeros ends at one.
    top = round_ticks(max(*values, 1e-9) if any(values) else 1.0, 2)[-1]
    since = now_s - history.span_s
    lines = tuple(
        Line(
            name=name,
            style=number % 2,
            paths=tuple(
                _path(stretch, since, history.span_s, top / panel.scale)
                for stretch in _stretches(figure.buckets, history.period_s * _GAP)
            ),
            last=figure.buckets[-1].last * panel.scale,
        )
        for number, (name, figure) in enumerate(figures)
        if figure.buckets
    )
    return Drawn(key=panel.key, lines=lines, top=top)


_COLUMNS: Final = 30
_MORE: Final = "more"


def _heat(
    key: str, prefix: str, kept: Mapping[str, FigureHistory], history: History, now_s: float
) -> Drawn | None:
    """Requests by length and time: each column the mean of the looks that fell into it."""
    since, width_s = now_s - history.span_s, history.span_s / _COLUMNS
    rows = sorted(
        (name.removeprefix(prefix) for name in kept if name.startswith(prefix)),
        key=lambda most: math.inf if most == _MORE else float(most),
    )
    sums = defaultdict[tuple[int, int], float](float)
    for row, most in enumerate(rows):
        for bucket in kept[prefix + most].buckets:
            column = int((bucket.at_s - since) // width_s)
            if 0 <= column < _COLUMNS:
                sums[column, row] += bucket.mean
    largest = max(sums.values(), default=0.0)
    if not largest:
        return None
    width, height = (WIDTH - LEFT - RIGHT) / _COLUMNS, (HEIGHT - TOP - BOTTOM) / len(rows)
    cells = tuple(
        Cell(
            x=LEFT + column * width,
            y=HEIGHT - BOTTOM - (row + 1) * height,
            width=width,
            height=height,
            share=value / largest,
            label=rows[row],
        )
        for (column, row), value in sorted(sums.items())
        if value
    )
    return Drawn(key=key, lines=(), top=0.0, cells=cells, rows=tuple(rows))


def _figures(
    panel: Panel, kept: Mapping[str, FigureHistory]
) -> Iterator[tuple[str, FigureHistory]]:
    for name in panel.figures:
        if name in kept:
            yield name.removeprefix("engine."), kept[name]
    if panel.of_gpus is not None:
        for name, figure in kept.items():
            parts = name.split(".")
            if parts[0] == "gpu" and parts[-1] == panel.of_gpus:
                yield f"GPU {parts[-2]}", figure


def _stretches(buckets: Iterable[Bucket], gap_s: float) -> Iterator[list[Bucket]]:
    """The runs of buckets that follow one another closely enough to be joined."""
    run: list[Bucket] = []
    for bucket in buckets:
        if run and bucket.at_s - run[-1].at_s > gap_s:
            yield run
            run = []
        run.append(bucket)
    if run:
        yield run


def _path(run: list[Bucket], since_s: float, span_s: float, top: float) -> str:
    points = [
        (
            LEFT + min(1.0, max(0.0, (bucket.at_s - since_s) / span_s)) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - bucket.mean / top * (HEIGHT - TOP - BOTTOM),
        )
        for bucket in run
    ]
    first, *rest = (f"{x:.1f} {y:.1f}" for x, y in points)
    # A single look is a short stroke: a path of one point is not drawn.
    return f"M{first}" + ("".join(f"L{place}" for place in rest) or "h1.5")
