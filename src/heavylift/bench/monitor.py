"""What the client itself is doing while it measures, and the engine's own metrics meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from heavylift.bench.records import ClientHealth, Sample, ServerPoint
from heavylift.errors import HeavyliftError
from heavylift.stats import quantile
from heavylift.telemetry import engine_queue
from heavylift.telemetry.engine_queue import MetricNames
from heavylift.wire.client import Client

_TICK_S: Final = 0.005
_SCRAPE_S: Final = 1.0


class Monitor:
    """Watches the event loop, the processor and the engine's `/metrics` during one stage."""

    def __init__(self, client: Client, metric_names: MetricNames) -> None:
        """`metric_names`: see `MetricNames`; nothing to watch for = no scraping."""
        self._client = client
        self._names = metric_names
        self._lags: list[float] = []
        self._points: list[ServerPoint] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._began_at = 0.0
        self._cpu_s = 0.0
        self._wall_s = 0.0

    async def __aenter__(self) -> Self:
        self._began_at = time.perf_counter()
        self._cpu_s = time.process_time()
        self._tasks = [asyncio.create_task(self._watch_loop())]
        if self._names:
            self._tasks.append(asyncio.create_task(self._watch_server()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cpu_s = time.process_time() - self._cpu_s
        self._wall_s = time.perf_counter() - self._began_at
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def health(self, samples: Sequence[Sample], *, reached_limit: bool) -> ClientHealth:
        """How the client fared; after the stage."""
        delays = [sample.started_s - sample.scheduled_s for sample in samples]
        return ClientHealth(
            loop_lag_p50_s=_quantile(self._lags, 0.5),
            loop_lag_p99_s=_quantile(self._lags, 0.99),
            cpu_ratio=self._cpu_s / self._wall_s if self._wall_s else 0.0,
            schedule_delay_p99_s=_quantile(delays, 0.99),
            connect_p99_s=_quantile([s.connect_s for s in samples if s.connect_s], 0.99),
            reached_in_flight_limit=reached_limit,
        )

    def points(self) -> tuple[ServerPoint, ...]:
        """The engine's own figures, in order of time."""
        return tuple(self._points)

    async def _watch_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_at = loop.time() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self._lags.append(max(0.0, loop.time() - due_at))

    async def _watch_server(self) -> None:
        while True:
            with suppress(HeavyliftError):
                page = await self._client.page("/metrics")
                if page is None:
                    return
                self._points.append(self._point(page))
            await asyncio.sleep(_SCRAPE_S)

    def _point(self, page: str) -> ServerPoint:
        queue = engine_queue.read(page, self._names)
        return ServerPoint(
            at_s=time.perf_counter() - self._began_at,
            running=queue.running,
            waiting=queue.waiting,
            kv_use_ratio=queue.kv_use_ratio,
        )


def _quantile(values: Sequence[float], share: float) -> float:
    return quantile(sorted(values), share) if values else 0.0
