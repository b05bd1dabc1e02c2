"""How far measured times lie from the model: classes, what is known of them, and fits.

A class is a card with an engine, and whether tensor parallelism crosses machines. Its fixed cost
per layer is the one at which half of its rows are faster than the model and half slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.speed_schema import SpeedClassBook, SpeedClassFacts, SpeedSpreadFacts
from heavylift.records.speed import Evidence, SpeedBasis

KNOWN_ROWS: Final = 3
"""Rows from which a class counts as known. Below, its spread is that of other thin classes."""

KNOWN_WIDTH: Final = 2.5
"""Widest high over low at which the rows of a class say the same; beyond, it counts as thin."""

SPREAD_WEIGHT: Final = 10
"""How many rows of its own weigh as much as all classes together in the spread of a class."""

HIGH_QUANTILE: Final = 0.9

_FIXED_US_MOST: Final = 5000.0
_HALVINGS: Final = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """A measured time per token, and the model's as a function of the fixed cost (us per layer)."""

    measured_s: float
    model_s: Callable[[float], float]

    def log_ratio(self, fixed_us_per_layer: float) -> float:
        """Logarithm of measured over model."""
        return math.log(self.measured_s / self.model_s(fixed_us_per_layer))


def fit_fixed(observations: Sequence[Observation]) -> float:
    """The fixed cost per layer, in us, at which the median of measured over model is 1.

    0 where the model is slower than the measurement even without one.
    """
    low, high = 0.0, _FIXED_US_MOST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if median(each.log_ratio(middle) for each in observations) > 0:
            low = middle
        else:
            high = middle
    return high


def quantile(values: Sequence[float], part: float) -> float:
    """The quantile of values, linear between neighbours."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * part
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(log_ratios: Sequence[float], independent: int | None = None) -> tuple[float, float]:
    """Low and high of measured over model that leave out a tenth of the rows on either side.

    With `independent`, the number of groups of rows that stand for themselves, a little less is
    left out, so that as much of the next group lies inside (split conformal).
    Formula: quantile 0.9 × (1 + 1 / independent), and its mirror
    """
    part = HIGH_QUANTILE if independent is None else min(1.0, HIGH_QUANTILE * (1 + 1 / independent))
    return (
        math.exp(quantile(log_ratios, 1 - part)),
        math.exp(quantile(log_ratios, part)),
    )


def shrunk(own: tuple[float, float], rows: int, others: tuple[float, float]) -> tuple[float, float]:
    """The spread of a class, drawn towards that of all: few rows say little about their own tails.

    Formula: exp((rows × ln own + weight × ln others) / (rows + weight)), for each end
    """
    low, high = (
        math.exp(
            (rows * math.log(mine) + SPREAD_WEIGHT * math.log(theirs)) / (rows + SPREAD_WEIGHT)
        )
        for mine, theirs in zip(own, others, strict=True)
    )
    return low, high


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """The fixed cost a forecast is made with, and the basis of its width."""

    fixed_s_per_layer: float
    basis: SpeedBasis


def spread_of(book: SpeedClassBook, setting: str) -> SpeedSpreadFacts:
    """The spread of a setting. Raises PLAN072 when the facts lack it."""
    for entry in book.spreads:
        if entry.setting == setting:
            return entry
    raise HeavyliftError("PLAN072", {"setting": setting})


def calibrate(book: SpeedClassBook, gpu: str, engine: str, *, crosses_nodes: bool) -> Calibration:
    """What is known of a class: its own fixed cost and spread, or those of an unseen one.

    Raises PLAN072 when the facts lack the spread of the unseen.
    """
    found = next(
        (
            entry
            for entry in book.classes
            if (entry.gpu, entry.engine, entry.crosses_nodes) == (gpu, engine, crosses_nodes)
        ),
        None,
    )
    reason = _doubt(found)
    if found is not None:
        return Calibration(
            fixed_s_per_layer=found.fixed_us_per_layer * 1e-6,
            basis=SpeedBasis(
                evidence=Evidence.THIN if reason else Evidence.KNOWN,
                gpu=gpu,
                engine=engine,
                crosses_nodes=crosses_nodes,
                low_ratio=found.low_ratio,
                high_ratio=found.high_ratio,
                rows=found.rows,
                sweeps=found.sweeps,
                versions=found.versions,
                first="" if found.first is None else found.first.isoformat(),
                last="" if found.last is None else found.last.isoformat(),
                reason=reason,
                sources=found.drawn_from,
            ),
        )
    unseen = spread_of(book, "unseen")
    return Calibration(
        fixed_s_per_layer=(unseen.fixed_us_per_layer or 0.0) * 1e-6,
        basis=SpeedBasis(
            evidence=Evidence.UNSEEN,
            gpu=gpu,
            engine=engine,
            crosses_nodes=crosses_nodes,
            low_ratio=unseen.low_ratio,
            high_ratio=unseen.high_ratio,
            rows=0,
            sweeps=0,
            reason=reason,
            sources=(unseen.source,),
        ),
    )


def _doubt(found: SpeedClassFacts | None) -> str:
    """Why a class does not count as known; empty when it does."""
    if found is None:
        return "no_rows"
    if found.rows < KNOWN_ROWS:
        return "few_rows"
    if found.high_ratio > KNOWN_WIDTH * found.low_ratio:
        return "rows_disagree"
    return ""


def anchored(
    book: SpeedClassBook, class_basis: SpeedBasis, observations: Sequence[Observation]
) -> Calibration:
    """The fixed cost taken from points of the user's own service.

    Raises PLAN072 when the facts lack the spread of anchored forecasts. Where a point is faster
    than the bytes allow, the fixed cost is 0 and the spread is moved by the rest.
    """
    fixed = fit_fixed(observations)
    rest = math.exp(median(each.log_ratio(fixed) for each in observations))
    facts = spread_of(book, "anchored")
    return Calibration(
        fixed_s_per_layer=fixed * 1e-6,
        basis=SpeedBasis(
            evidence=Evidence.ANCHORED,
            gpu=class_basis.gpu,
            engine=class_basis.engine,
            crosses_nodes=class_basis.crosses_nodes,
            low_ratio=facts.low_ratio * rest,
            high_ratio=facts.high_ratio * rest,
            rows=len(observations),
            sweeps=1,
            sources=(facts.source,),
        ),
    )
