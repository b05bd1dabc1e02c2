"""An engine's own queue, from its metrics page. Pure; the metrics' names are facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heavylift.telemetry.prometheus import samples

MetricNames = Mapping[str, Sequence[str]]
"""Field of `EngineQueue` -> the metric's names in the engines that offer it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineQueue:
    """Requests in the engine, and the used share of its KV cache (0 to 1); None = not told.

    Counts are summed over the engine's replicas; the share is that of the fullest. `steps` counts
    what its schedulers did.
    """

    running: float | None = None
    waiting: float | None = None
    kv_use_ratio: float | None = None
    steps: float | None = None

    @property
    def queued(self) -> float | None:
        """Requests being worked on or waiting; None = not told."""
        if self.running is None and self.waiting is None:
            return None
        return (self.running or 0.0) + (self.waiting or 0.0)


def read(page: str, names: MetricNames) -> EngineQueue:
    """The queue on a metrics page; of several names, the first that is there counts."""
    found = samples(page)

    def values(field: str) -> tuple[float, ...]:
        return next((found[name] for name in names.get(field, ()) if name in found), ())

    def total(field: str) -> float | None:
        return sum(values(field)) if values(field) else None

    return EngineQueue(
        running=total("running"),
        waiting=total("waiting"),
        kv_use_ratio=max(values("kv_use_ratio"), default=None),
        steps=total("steps"),
    )
