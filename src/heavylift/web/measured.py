"""The user's own measurements: reports of `bench` as points on the chart and as anchors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from heavylift.bench.records import LoadKind
from heavylift.bench.roofline import anchors
from heavylift.errors import HeavyliftError, reason
from heavylift.records.speed import AnchorPoint
from heavylift.web.charts import MeasuredRate


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What the reports say: rates to draw, and times per token to rest a band on."""

    rates: tuple[MeasuredRate, ...] = ()
    anchors: tuple[AnchorPoint, ...] = ()


class _Load(msgspec.Struct):
    kind: LoadKind
    concurrency: int | None


class _Times(msgspec.Struct):
    p50: float


class _Stage(msgspec.Struct):
    load: _Load
    valid: bool
    output_tokens_per_s: float
    tpot_s: _Times | None
    prompt_tokens_mean: float | None
    output_tokens_mean: float | None
    cached_share: float | None


class _Report(msgspec.Struct):
    stages: list[_Stage]


def read_reports(paths: Sequence[Path]) -> Measured:
    """The valid stages of a fixed number of clients, of all reports.

    Raises WEB003 for a file that is no report, or holds none.
    """
    rates: list[MeasuredRate] = []
    points: list[AnchorPoint] = []
    for path in paths:
        try:
            stages = msgspec.json.decode(path.read_bytes(), type=_Report).stages
        except (OSError, msgspec.MsgspecError) as error:
            raise HeavyliftError("WEB003", {"path": str(path), "reason": reason(error)}) from error
        found = [
            MeasuredRate(
                concurrency=stage.load.concurrency, output_tokens_per_s=stage.output_tokens_per_s
            )
            for stage in stages
            if stage.valid and stage.load.kind is LoadKind.CLOSED and stage.load.concurrency
        ]
        if not found:
            raise HeavyliftError("WEB003", {"path": str(path), "reason": "0 × closed, valid"})
        rates += found
        points += anchors(stages)
    return Measured(rates=tuple(rates), anchors=tuple(points))
