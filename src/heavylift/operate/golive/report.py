"""The report: what was gathered of a deployment, judged by the points of the facts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from heavylift import __version__
from heavylift.facts.golive_schema import GoLiveBook
from heavylift.golive import judge
from heavylift.operate.golive.gather import Gathered
from heavylift.operate.golive.subject import Found
from heavylift.records.golive import GoLive, GoLivePoint, Waiver
from heavylift.records.plan import Rack


def report(
    found: Found,
    gathered: Gathered,
    book: GoLiveBook,
    *,
    waivers: Sequence[Waiver],
    required: Sequence[str],
    now: datetime,
) -> GoLive:
    """The report of a deployment at a time (UTC). `required` are points by name."""
    points = judge.points(book, gathered.subject, gathered.proofs, waivers, now)
    spec = found.spec
    plan = found.plan
    release = found.release
    return GoLive(
        name=found.name or str(found.folder),
        model=_model(found),
        engine=_engine(found),
        engine_version=_version(found),
        made_at=now.isoformat(timespec="seconds"),
        heavylift_version=__version__,
        verdict=judge.verdict(points),
        passed=judge.passes(points, required),
        points=points,
        levels=judge.levels(points),
        reach=judge.reached(book, gathered.subject, gathered.proofs, now),
        licence=gathered.licence,
        data_notes=gathered.data_notes,
        required=tuple(required),
        release=None if release is None else release.number,
        model_revision=None if spec is None else spec.model_revision,
        image=None if spec is None else spec.image,
        layout=None if plan is None else plan.layout.label,
        rack=None if plan is None else plan.rack.label,
        gpus=None if plan is None else _cards(plan.rack),
        weights_bytes=None if plan is None else plan.per_gpu.weights_bytes.low,
        budget_bytes=None if plan is None else plan.per_gpu.budget_bytes,
        url=found.live_url,
        next_command=_next(points, required),
    )


def _next(points: Sequence[GoLivePoint], required: Sequence[str]) -> str | None:
    """The command of the first point that holds something up."""
    for point in points:
        asked = not required or point.id in required
        if asked and not point.standing.is_settled and point.command is not None:
            return point.command
    return None


def _cards(rack: Rack) -> int:
    """The cards of a rack; 0 for a host without any, whose rack is called as the host."""
    return 0 if rack.label == rack.gpu else rack.gpu_count


def _model(found: Found) -> str:
    if found.spec is not None:
        return found.spec.served_name or found.spec.model
    if found.plan is not None:
        return found.plan.model
    return "" if found.status is None else found.status.model


def _engine(found: Found) -> str:
    told = found.spec or found.plan or found.release
    return "" if told is None else told.engine


def _version(found: Found) -> str:
    told = found.spec or found.plan or found.release
    return "" if told is None else told.engine_version
