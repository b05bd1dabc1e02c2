"""Charts as places on a canvas; templates draw them. Pure.

Every chart has its figures as a table as well: a picture is not for everybody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from heavylift.records.decision import Decision
from heavylift.web.planner import CONCURRENCIES, SpeedCurve
from heavylift.web.scale import decade_ticks, round_ticks

WIDTH: Final = 640
HEIGHT: Final = 280
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 12, 40
_USED: Final = tuple(share / 100 for share in range(5, 101, 5))

Place = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """A mark of an axis: where it is on the canvas and what stands beside it."""

    at: float
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A band (an outline that closes) or a line. `name` is the style and the key of its text."""

    name: str
    points: str
    is_band: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    """A measured point, with the figures it stands for."""

    x: float
    y: float
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """What a template draws. `upright` are vertical lines, by the name of their style and text."""

    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    shapes: tuple[Shape, ...]
    dots: tuple[Dot, ...] = ()
    upright: tuple[tuple[str, float], ...] = ()
    rows: tuple[tuple[str, ...], ...] = field(default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRate:
    """A measured point of the user's own: clients at once and output tokens per second."""

    concurrency: int
    output_tokens_per_s: float


def speed_chart(curve: SpeedCurve, measured: Sequence[MeasuredRate]) -> Chart:
    """Output tokens per second of the whole service against concurrency, as a band.

    The band ends where sequences have no room at once: more clients wait.
    """
    held = [point for point in curve.points if point.refusal is None] or [curve.points[0]]
    last = max(CONCURRENCIES[-1], *(point.concurrency for point in measured), 1)
    top = max(point.output_tokens_per_s.high for point in held)
    y_ticks = round_ticks(max(top, *(point.output_tokens_per_s for point in measured), 1.0))
    x = _log(1, last)
    y = _linear(y_ticks[-1])
    lows = [(x(p.workload.concurrency), y(p.output_tokens_per_s.low)) for p in held]
    highs = [(x(p.workload.concurrency), y(p.output_tokens_per_s.high)) for p in held]
    asked = curve.asked.workload.concurrency
    upright = [("asked", x(min(asked, last)))]
    if held[-1] is not curve.points[-1]:
        upright.append(("room", x(min(max(1, _room(curve)), last))))
    return Chart(
        x_ticks=tuple(Tick(at=x(mark), label=f"{mark:,}") for mark in CONCURRENCIES),
        y_ticks=tuple(Tick(at=y(tick), label=f"{tick:,.0f}") for tick in y_ticks),
        shapes=(Shape(name="speed", points=_outline(lows, highs), is_band=True),),
        dots=tuple(
            Dot(
                x=x(point.concurrency),
                y=y(point.output_tokens_per_s),
                label=f"{point.concurrency:,}: {point.output_tokens_per_s:,.0f}",
            )
            for point in measured
        ),
        upright=tuple(upright),
        rows=tuple(
            (
                f"{point.workload.concurrency:,}",
                f"{point.output_tokens_per_s.low:,.0f}",
                f"{point.output_tokens_per_s.high:,.0f}",
                f"{point.tpot_s.low * 1000:,.1f}",
                f"{point.tpot_s.high * 1000:,.1f}",
            )
            for point in held
        ),
    )


def _room(curve: SpeedCurve) -> int:
    held = [point.workload.concurrency for point in curve.points if point.refusal is None]
    return max(held, default=1)


def cost_chart(decision: Decision) -> Chart:
    """USD per million output tokens against the part of a unit that is used, on a log scale.

    The cost of own GPUs at a part of full use is that of full use divided by the part.
    """
    api = decision.api_usd_per_million_output
    bands = [(option.tenure.value, option.usd_per_million_output) for option in decision.options]
    low = min(api, *(band.low for _, band in bands))
    high = max(api, *(band.high for _, band in bands)) / _USED[1]
    ticks = decade_ticks(low, high)
    x = _linear_x
    y = _log_y(ticks[0], ticks[-1])
    shapes = [
        Shape(
            name=name,
            points=_outline(
                [(x(used), y(min(band.low / used, ticks[-1]))) for used in _USED],
                [(x(used), y(min(band.high / used, ticks[-1]))) for used in _USED],
            ),
            is_band=True,
        )
        for name, band in bands
    ]
    line = f"{x(0):.1f},{y(api):.1f} {x(1):.1f},{y(api):.1f}"
    shapes.append(Shape(name="api", points=line, is_band=False))
    most = decision.options[0].most_used_ratio
    return Chart(
        x_ticks=tuple(Tick(at=x(mark / 4), label=f"{mark * 25} %") for mark in range(5)),
        y_ticks=tuple(Tick(at=y(tick), label=f"{tick:,g}") for tick in ticks),
        shapes=tuple(shapes),
        upright=(("most_used", x(most)),),
        rows=tuple(
            (
                f"{used:.0%}",
                *(f"{b.low / used:,.2f} – {b.high / used:,.2f}" for _, b in bands),
                f"{api:,.2f}",
            )
            for used in _USED[1::2]
        ),
    )


def _outline(lows: Sequence[Place], highs: Sequence[Place]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in (*lows, *reversed(highs)))


def _log(low: float, high: float) -> Callable[[float], float]:
    span = math.log(high / low)
    return lambda value: LEFT + math.log(value / low) / span * (WIDTH - LEFT - RIGHT)


def _linear(high: float) -> Callable[[float], float]:
    return lambda value: HEIGHT - BOTTOM - value / high * (HEIGHT - TOP - BOTTOM)


def _log_y(low: float, high: float) -> Callable[[float], float]:
    span = math.log(high / low)
    return lambda value: HEIGHT - BOTTOM - math.log(value / low) / span * (HEIGHT - TOP - BOTTOM)


def _linear_x(value: float) -> float:
    return LEFT + value * (WIDTH - LEFT - RIGHT)
