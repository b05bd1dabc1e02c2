"""What was measured beside what the rack could do: the memory's bound, and the forecast. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from heavylift.bench.records import Figures, Forecast, Load, LoadKind
from heavylift.errors import HeavyliftError
from heavylift.records.speed import AnchorPoint, SpeedWorkload

if TYPE_CHECKING:  # the planner is loaded only where a plan is given
    from heavylift.plan.speed import Forecaster


class _Times(Protocol):
    """Times per token of a stage."""

    @property
    def p50(self) -> float: ...


class _Load(Protocol):
    """The load of a stage, of this version's reports or of another's."""

    @property
    def kind(self) -> str: ...
    @property
    def concurrency(self) -> int | None: ...


class _Figures(Protocol):
    """What a point needs of a stage's figures."""

    @property
    def tpot_s(self) -> _Times | None: ...
    @property
    def prompt_tokens_mean(self) -> float | None: ...
    @property
    def output_tokens_mean(self) -> float | None: ...
    @property
    def cached_share(self) -> float | None: ...


class _Measured(_Figures, Protocol):
    """A stage of a report."""

    @property
    def load(self) -> _Load: ...
    @property
    def valid(self) -> bool: ...


def forecast(load: Load, figures: Figures, forecaster: Forecaster) -> Forecast | None:
    """The forecast of a stage's load beside its measured time per token.

    None for an open loop, whose number of clients is not fixed; for lengths that the server did
    not count; and for a load that the plan does not hold.

    Formula: bound = bytes of a step / memory bandwidth; bytes of a step = dense and replicated
    weights + experts · E·(1 − (1 − k/E)^B)/E + KV read + state read and written.
    """
    point = _point(load, figures)
    if point is None:
        return None
    work = SpeedWorkload(
        concurrency=point.concurrency,
        input_tokens=point.input_tokens,
        output_tokens=point.output_tokens,
        cached_ratio=point.cached_ratio,
    )
    try:
        speed = forecaster.speed(work)
    except HeavyliftError:
        return None
    measured_s = point.tpot_s
    place = "inside" if measured_s in speed.tpot_s else "slower"
    touched, experts = speed.distinct_experts, speed.experts
    return Forecast(
        measured_tpot_s=measured_s,
        bound_tpot_s=speed.tpot_floor_s,
        bound_ratio=speed.tpot_floor_s / measured_s,
        band_low_s=speed.tpot_s.low,
        band_high_s=speed.tpot_s.high,
        place="faster" if measured_s < speed.tpot_s.low else place,
        evidence=speed.basis.evidence,
        experts_ratio=None if touched is None or not experts else touched / experts,
    )


def anchors(stages: Iterable[_Measured]) -> tuple[AnchorPoint, ...]:
    """The points that a forecast can be anchored on: valid stages of a fixed number of clients
    whose lengths the server counted.
    """
    points = (_point(stage.load, stage) for stage in stages if stage.valid)
    return tuple(point for point in points if point is not None)


def _point(load: _Load, figures: _Figures) -> AnchorPoint | None:
    tpot, prompt, output = figures.tpot_s, figures.prompt_tokens_mean, figures.output_tokens_mean
    fixed = load.kind == LoadKind.CLOSED and load.concurrency is not None
    if not fixed or tpot is None or prompt is None or output is None or tpot.p50 <= 0:
        return None
    return AnchorPoint(
        concurrency=load.concurrency or 1,
        input_tokens=round(prompt),
        output_tokens=max(1, round(output)),
        cached_ratio=figures.cached_share or 0.0,
        tpot_s=tpot.p50,
    )
