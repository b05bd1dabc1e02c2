"""Plots as SVG text: lines, cumulative distributions, timelines. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 640
HEIGHT: Final = 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 44
COLOURS: Final = ("#2166ac", "#b2182b", "#4d9221", "#762a83", "#bf812d", "#35978f")
"""Told apart also by people who see few colours; every line has its name beside it too."""

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Points in order of x, with the name the legend shows. `joined` False = dots only."""

    name: str
    points: Sequence[Point]
    joined: bool = True


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about `wanted` of them."""
    span = high - low or abs(high) or 1.0
    rough = span / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]


def plot(series: Sequence[Series], *, x_label: str, y_label: str, title: str) -> str:
    """A plot from zero. Series without points are left out; without any, an empty string."""
    drawn = [each for each in series if each.points]
    if not drawn:
        return ""
    xs = [x for each in drawn for x, _ in each.points]
    ys = [y for each in drawn for _, y in each.points]
    x_ticks, y_ticks = ticks(min(0.0, *xs), max(xs)), ticks(min(0.0, *ys), max(ys))

    def place(point: Point) -> str:
        return f"{_x(point[0], x_ticks):.1f},{_y(point[1], y_ticks):.1f}"

    parts = _frame(x_ticks, y_ticks, x_label, y_label)
    names = []
    for number, each in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        names.append(_legend(each.name, number, colour))
        if each.joined:
            path = " ".join(place(point) for point in each.points)
            parts.append(
                f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>'
            )
        if not each.joined or len(each.points) <= _DOTTED:
            parts += [_dot(place(point), colour) for point in each.points]
    return _svg([*parts, *names], title)


def cumulative(name: str, values: Sequence[float], points: int = 200) -> Series:
    """The share of values at or below each value, in percent; thinned to about `points`."""
    ordered = sorted(values)
    last = len(ordered) - 1
    step = max(1, len(ordered) // points)
    kept = sorted({*range(0, len(ordered), step), last}) if ordered else []
    return Series(name=name, points=[(ordered[at], 100.0 * (at + 1) / len(ordered)) for at in kept])


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One request on a timeline: waiting, then generating, then over."""

    start: float
    first: float | None
    end: float
    failed: bool = False


def timeline(spans: Sequence[Span], *, x_label: str, y_label: str, title: str) -> str:
    """A row per request, from its start to its end; the wait for the first token is paler."""
    if not spans:
        return ""
    x_ticks = ticks(0.0, max(span.end for span in spans))
    y_ticks = ticks(0.0, float(len(spans)))
    row = (HEIGHT - _TOP - _BOTTOM) / y_ticks[-1]
    parts = _frame(x_ticks, y_ticks, x_label, y_label)
    for number, span in enumerate(spans):
        y = HEIGHT - _BOTTOM - (number + 1) * row
        first = span.end if span.first is None else span.first
        colour = COLOURS[1] if span.failed else COLOURS[0]
        for start, end, opacity in ((span.start, first, 0.3), (first, span.end, 0.9)):
            left, right = _x(start, x_ticks), _x(end, x_ticks)
            parts.append(
                f'<rect x="{left:.1f}" y="{y:.2f}" width="{max(0.0, right - left):.1f}" '
                f'height="{row:.2f}" fill="{colour}" opacity="{opacity}"/>'
            )
    return _svg(parts, title)


_LETTER: Final = 8
"""Width that a letter of a legend has at most."""
_DOTTED: Final = 40
"""Up to that many points are marked on their line: more would hide it."""


def _svg(parts: Sequence[str], title: str) -> str:
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title>\n{body}\n</svg>"
    )


def _frame(
    x_ticks: Sequence[float], y_ticks: Sequence[float], x_label: str, y_label: str
) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for tick in y_ticks:
        y = _y(tick, y_ticks)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{tick:g}", "end"))
    parts += [_text(_x(tick, x_ticks), bottom + 16, f"{tick:g}", "middle") for tick in x_ticks]
    parts.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#555"/>')
    parts.append(_text((_LEFT + right) / 2, HEIGHT - 8, x_label, "middle"))
    middle = (_TOP + bottom) / 2
    parts.append(
        f'<text x="14" y="{middle:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {middle:.0f})">{escape(y_label)}</text>'
    )
    return parts


def _x(value: float, x_ticks: Sequence[float]) -> float:
    share = (value - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _y(value: float, y_ticks: Sequence[float]) -> float:
    share = (value - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, content: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def _dot(place: str, colour: str) -> str:
    x, y = place.split(",")
    return f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'


def _legend(name: str, number: int, colour: str) -> str:
    y = _TOP + 14 * (number + 1)
    # A ground of its own: a line that runs behind a name would make it unreadable.
    ground = 24 + _LETTER * len(name)
    return (
        f'<rect x="{_LEFT + 4}" y="{y - 10}" width="{ground}" height="14" fill="#fff" '
        'opacity="0.85"/>'
        f'<rect x="{_LEFT + 8}" y="{y - 8}" width="10" height="10" fill="{colour}"/>'
        f"{_text(_LEFT + 24, y + 1, name, 'start')}"
    )
