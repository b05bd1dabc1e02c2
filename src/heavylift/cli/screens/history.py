"""Figures over time: a line each, with its course drawn small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from heavylift.cli.text import printable, text
from heavylift.records.series import Bucket, FigureHistory, History

_STEPS: Final = "▁▂▃▄▅▆▇█"
_CELLS: Final = 24
_NAME: Final = 30


def lines(history: History) -> Iterator[str]:
    """The screen, line by line."""
    if not history.figures:
        yield text("history.nothing")
        return
    yield text("history.head", hours=f"{history.span_s / 3600:,.1f}", period=history.period_s)
    for figure in history.figures:
        yield _line(figure)


def _line(figure: FigureHistory) -> str:
    buckets = figure.buckets
    low = min(bucket.low for bucket in buckets)
    high = max(bucket.high for bucket in buckets)
    name = printable(figure.name)
    shown = name if len(name) <= _NAME else "…" + name[1 - _NAME :]
    return f"{shown:<{_NAME}} {drawn(buckets):<{_CELLS}} {low:>10.4g} – {high:.4g}"


def drawn(buckets: Sequence[Bucket]) -> str:
    """The means in order of time, as bars between their least and their most."""
    step = -(-len(buckets) // _CELLS)
    means = [bucket.mean for bucket in buckets][::step]
    least, most = min(means), max(means)
    span = (most - least) or 1.0
    return "".join(_STEPS[round((mean - least) / span * (len(_STEPS) - 1))] for mean in means)
