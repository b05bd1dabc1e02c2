"""One look put together: GPUs of all machines, engine, host, plan, and what is to be said. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heavylift.observe import running
from heavylift.plan.observed import reserves
from heavylift.records.plan import Note, Plan
from heavylift.records.receipt import MeasuredTerm
from heavylift.records.watch import (
    CurvePoint,
    EngineNow,
    GpuNow,
    HostNow,
    Sight,
    WatchReport,
)
from heavylift.telemetry.gpu_readings import GpuReading, Seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """What is watched, as far as it does not change. `gpus`: host -> the numbers of its GPUs that
    are the engine's; a host that is not there has no others than the engine's.
    """

    name: str | None = None
    title: str | None = None
    plan: Plan | None = None
    measured: tuple[MeasuredTerm, ...] = ()
    gpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    curve: tuple[CurvePoint, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """How a deployment stands: where it answers, its phase, whether it lives, restarts."""

    url: str | None = None
    phase: str | None = None
    alive: str | None = None
    restarts: int | None = None


def gpus_now(watched: Watched, seen: Mapping[str, Seen]) -> tuple[GpuNow, ...]:
    """The GPUs of all hosts that are the engine's, those furthest from the plan first."""
    found = (
        running.with_plan(_now(host, each.source, gpu), watched.plan)
        for host, each in seen.items()
        for gpu in each.gpus
        if host not in watched.gpus or gpu.gpu in watched.gpus[host]
    )
    return running.by_drift(found)


def _now(host: str, source: str | None, gpu: GpuReading) -> GpuNow:
    return GpuNow(
        gpu=gpu.gpu,
        host=host,
        name=gpu.name,
        source=source,
        memory_used_bytes=gpu.memory_used_bytes,
        memory_total_bytes=gpu.memory_total_bytes,
        use_ratio=gpu.use_ratio,
        temperature_c=gpu.temperature_c,
        power_w=gpu.power_w,
        power_limit_w=gpu.power_limit_w,
        gtt_used_bytes=gpu.gtt_used_bytes,
        gtt_total_bytes=gpu.gtt_total_bytes,
    )


def report(
    *,
    at: tuple[str, float],
    watched: Watched,
    standing: Standing,
    seen: Mapping[str, Seen],
    looks: Sequence[Sequence[GpuNow]],
    engine: EngineNow,
    host: HostNow,
) -> WatchReport:
    """The report of a look at `at` (as text, in seconds). `looks`: GPUs at each look, this last."""
    gpus = tuple(looks[-1]) if looks else ()
    observed = running.terms(watched.plan, watched.measured, gpus)
    return WatchReport(
        at=at[0],
        at_s=at[1],
        name=watched.name,
        url=standing.url,
        title=watched.title,
        sight=_sight(seen),
        gpus=gpus,
        engine=engine,
        host=host,
        sources=tuple(
            dict.fromkeys(each.source for each in seen.values() if each.source is not None)
        ),
        phase=standing.phase,
        alive=standing.alive,
        restarts=standing.restarts,
        reserves=None if watched.plan is None else reserves(watched.plan),
        findings=running.findings(watched.plan, looks, observed, engine, host),
        notes=(*watched.notes, *running.notes(watched.plan, gpus, engine)),
        terms=observed,
        curve=watched.curve,
    )


def _sight(seen: Mapping[str, Seen]) -> Sight:
    sights = [each.sight for each in seen.values()]
    if not sights:
        return Sight.ELSEWHERE
    return Sight.SEEN if Sight.SEEN in sights else sights[0]
