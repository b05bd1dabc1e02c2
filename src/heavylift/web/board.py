"""Kept figures as small charts, in the order of the usual board of an inference engine. Pure."""

from __future__ import annotations

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
    times their value.
    """

    key: str
    figures: tuple[str, ...]
    scale: float = 1.0
    of_gpus: str | None = None


BOARD: Final = (
    Panel(key="throughput", figures=("engine.prompt_tokens_per_s", "engine.output_tokens_per_s")),
    Panel(key="tpot", figures=("engine.tpot_p50_s", "engine.tpot_p99_s"), scale=1000.0),
    Panel(key="scheduler", figures=("engine.running", "engine.waiting")),
    Panel(key="ttft", figures=("engine.ttft_p50_s", "engine.ttft_p99_s"), scale=1000.0),
    Panel(key="cache", figures=("engine.kv_use_ratio", "engine.prefix_hit_ratio"), scale=100.0),
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
class Drawn:
    """A panel with something on it; `top` is the end of its axis."""

    key: str
    lines: tuple[Line, ...]
    top: float


def panels(history: History, now_s: float) -> tuple[Drawn, ...]:
    """The charts of a history in the board's order; those without a figure are left out."""
    kept = {figure.name: figure for figure in history.figures}
    found = (_drawn(panel, kept, history, now_s) for panel in BOARD)
    return tuple(filter(None, found))


def _drawn(
    panel: Panel, kept: Mapping[str, FigureHistory], history: History, now_s: float
) -> Drawn | None:
    figures = list(_figures(panel, kept))
    values = [bucket.high * panel.scale for _, figure in figures for bucket in figure.buckets]
    if not values:
        return None
    top = round_ticks(max(*values, 1e-9), 2)[-1]
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
