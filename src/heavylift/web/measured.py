"""The user's own measurements: reports of `bench` as points on the chart and as anchors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from heavylift.errors import HeavyliftError, reason
from heavylift.records.speed import AnchorPoint
from heavylift.web.charts import MeasuredRate


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What the reports say: rates to draw, and times per token to rest a band on."""

    rates: tuple[MeasuredRate, ...] = ()
    anchors: tuple[AnchorPoint, ...] = ()


class _Load(msgspec.Struct):
    kind: str
    concurrency: int | None


class _Times(msgspec.Struct):
    p50: float


class _Stage(msgspec.Struct):
    load: _Load
    valid: bool
    output_tokens_per_s: float
    tpot_s: _Times | None = None
    prompt_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    cached_share: float | None = None


class _Report(msgspec.Struct):
    stages: list[_Stage]


def read_reports(paths: Sequence[Path]) -> Measured:
    """The valid stages of a fixed number of clients, of all reports.

    Raises WEB003 for a file that is no report, or holds none.
    """
    stages: list[tuple[int, _Stage]] = []
    for path in paths:
        try:
            report = msgspec.json.decode(path.read_bytes(), type=_Report)
        except (OSError, msgspec.MsgspecError) as error:
            raise HeavyliftError("WEB003", {"path": str(path), "reason": reason(error)}) from error
        found = [
            (stage.load.concurrency, stage)
            for stage in report.stages
            if stage.valid and stage.load.kind == "closed" and stage.load.concurrency
        ]
        if not found:
            raise HeavyliftError("WEB003", {"path": str(path), "reason": "0 × closed, valid"})
        stages += found
    return Measured(
        rates=tuple(
            MeasuredRate(concurrency=clients, output_tokens_per_s=stage.output_tokens_per_s)
            for clients, stage in stages
        ),
        anchors=tuple(filter(None, (_anchor(clients, stage) for clients, stage in stages))),
    )


def _anchor(clients: int, stage: _Stage) -> AnchorPoint | None:
    """The stage as an anchor; None where the server did not count its lengths."""
    if (
        stage.tpot_s is None
        or stage.tpot_s.p50 <= 0
        or stage.prompt_tokens_mean is None
        or stage.output_tokens_mean is None
    ):
        return None
    return AnchorPoint(
        concurrency=clients,
        input_tokens=round(stage.prompt_tokens_mean),
        output_tokens=max(1, round(stage.output_tokens_mean)),
        cached_ratio=stage.cached_share or 0.0,
        tpot_s=stage.tpot_s.p50,
    )
