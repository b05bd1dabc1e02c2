"""Measured points of a user's own service, kept so that forecasts can be anchored on them."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.records.plan import Plan
from heavylift.records.speed import AnchorPoint
from heavylift.state.paths import state_dir


class AnchorFile(msgspec.Struct, forbid_unknown_fields=True):
    """Measured points of one service."""

    points: list[AnchorPoint]


def keep(plan: Plan, points: tuple[AnchorPoint, ...]) -> Path | None:
    """Keep points of the service that was planned; a later one of the same load replaces the
    earlier. None where nothing can be kept: a read-only home is no reason for a benchmark to fail.
    """
    if not points:
        return None
    with contextlib.suppress(OSError, HeavyliftError, msgspec.MsgspecError):
        path = anchors_dir() / f"{_name(plan)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        kept: list[AnchorPoint] = []
        if path.is_file():
            kept = msgspec.json.decode(path.read_bytes(), type=AnchorFile).points
        newest = {_load(point): point for point in (*kept, *points)}
        scratch = path.with_suffix(".new")
        scratch.write_bytes(msgspec.json.encode(AnchorFile(points=list(newest.values()))))
        scratch.replace(path)
        return path
    return None


def kept(plan: Plan) -> tuple[AnchorPoint, ...]:
    """The points kept here of the service that was planned; none where nothing can be read."""
    with contextlib.suppress(OSError, HeavyliftError, msgspec.MsgspecError):
        raw = (anchors_dir() / f"{_name(plan)}.json").read_bytes()
        return tuple(msgspec.json.decode(raw, type=AnchorFile).points)
    return ()


def anchors_dir() -> Path:
    """Where points are kept, a file for each service."""
    return state_dir() / "anchors"


def _name(plan: Plan) -> str:
    """A name for the service: what must be equal for a point to speak of it."""
    service = (plan.variant, plan.engine_version, plan.layout, plan.kv_cache_dtype, plan.rack)
    digest = hashlib.blake2b(msgspec.json.encode(service), digest_size=4).hexdigest()
    return f"{plan.model}-{plan.engine}-{plan.rack.gpu_count}x{plan.rack.gpu}-{digest}"


def _load(point: AnchorPoint) -> tuple[float, ...]:
    return (point.concurrency, point.input_tokens, point.output_tokens, point.cached_ratio)
