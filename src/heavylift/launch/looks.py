"""Looks at a serving engine: whether it is alive, by its metrics, a probe and its effort."""

from __future__ import annotations

import time
from typing import Final

from heavylift.launch.attempt import Attempt
from heavylift.launch.background import Background
from heavylift.launch.liveness import Judgement, Liveness, Look, Probe
from heavylift.records.deployment import Supervision
from heavylift.telemetry import collect_gpus
from heavylift.telemetry.engine_queue import MetricNames

_IDLE_SHARE: Final = 0.02
"""Of a processor: an engine that takes less does nothing."""


class Watch:
    """The looks at one serving engine: its metrics and a probe, asked for in the background."""

    def __init__(
        self, attempt: Attempt, rules: Supervision, metrics: MetricNames, *, now_s: float
    ) -> None:
        self._attempt = attempt
        self._rules = rules
        self._metrics = metrics
        self._liveness = Liveness(rules, now_s=now_s)
        self._page: Background[str | None] | None = None
        self._last_page: str | None = None
        self._probe: Background[Probe] | None = None
        self._probes = 0
        self._outcome = Probe.NONE
        self._effort = (now_s, attempt.cpu_s())
        self._cards: Background[bool | None] | None = None
        self._cards_idle: bool | None = None

    @property
    def page(self) -> str | None:
        """The engine's metrics at the last look; None = it has none, or did not answer."""
        return self._last_page

    def judgement(self) -> Judgement:
        """The word on the engine now; begins what the next look needs."""
        if self._page is None or self._page.is_done:
            self._last_page = None if self._page is None else self._page.result()
            self._page = Background(self._attempt.metrics_page)
        if self._probe is not None:
            self._outcome = self._probe.result() if self._probe.is_done else Probe.RUNNING
            if self._probe.is_done:
                self._probe = None
        page = self._last_page
        look = Look(
            at_s=time.monotonic(),
            queue=None if page is None else self._attempt.queue(page, self._metrics),
            probe=self._outcome,
            probe_number=self._probes,
            is_idle=self._is_idle(),
        )
        judgement = self._liveness.judge(look)
        if judgement.wants_probe and self._probe is None:
            self._probes += 1
            timeout_s = self._rules.probe_timeout_s
            self._probe = Background(lambda: self._attempt.probe(timeout_s))
        return judgement

    def _is_idle(self) -> bool | None:
        """Whether the engine did nothing since the look before: its processes used no CPU, and its
        cards, where there are any, were idle. None where not all of that is seen from here.
        """
        then_s, used_s = self._effort
        now_s, cpu_s = time.monotonic(), self._attempt.cpu_s()
        self._effort = (now_s, cpu_s)
        if now_s <= then_s or not self._attempt.is_seen_whole:
            return None
        is_idle = cpu_s - used_s < _IDLE_SHARE * (now_s - then_s)
        if not is_idle or not collect_gpus.are_there():
            return is_idle
        if self._cards is None or self._cards.is_done:
            self._cards_idle = None if self._cards is None else self._cards.result()
            self._cards = Background(collect_gpus.are_idle)
        return self._cards_idle
