"""Whether an engine works: by the steps it takes, not by the status it answers. Pure.

An API that answers 200 proves nothing of the engine behind it, and an engine that sends no token
may be reading a long prompt. So: while work is queued, something of what the engine itself counts
has to move (steps, requests running and waiting, use of its cache). Nothing moved for `suspect_s`:
suspect. Dead needs a second proof: the process is gone, a probe on a slot of its own timed out, or
its processes and cards were idle all that time with work queued.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from heavylift.records.deployment import Alive, Supervision
from heavylift.telemetry.engine_queue import EngineQueue


class Probe(StrEnum):
    """What became of the last token asked for."""

    NONE = "none"
    RUNNING = "running"
    ANSWERED = "answered"
    REFUSED = "refused"
    """Turned away for want of room: the engine is busy."""
    TIMED_OUT = "timed_out"
    BROKEN = "broken"
    """No connection, an error of the server's, a broken reply."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One look at an engine. `queue` None = its metrics did not answer or are not offered.

    `probe_number` tells one probe from the next. `is_idle`: its processes used no CPU, and its
    cards did nothing, since the look before; None = not known.
    """

    at_s: float
    queue: EngineQueue | None
    probe: Probe = Probe.NONE
    probe_number: int = 0
    is_idle: bool | None = None
    is_running: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The word on an engine, why (a code), for how long nothing moved, and whether to probe it."""

    alive: Alive
    reason: str
    still_s: float = 0.0
    wants_probe: bool = False


class Liveness:
    """Judges looks, one after another. Times are those of the looks: any clock will do."""

    def __init__(self, rules: Supervision, *, now_s: float) -> None:
        self._rules = rules
        self._moved_at = now_s
        self._busy_at = now_s
        self._answered_at = now_s
        self._figures: tuple[float | None, ...] | None = None
        self._failed_probes = 0
        self._broken_probes = 0
        self._seen_probe = (0, Probe.NONE)

    def judge(self, look: Look) -> Judgement:
        """The word on the engine after this look."""
        if not look.is_running:
            return Judgement(alive=Alive.DEAD, reason="process_gone")
        self._take(look)
        still_s = look.at_s - self._moved_at
        queued = None if look.queue is None else look.queue.queued
        if self._failed_probes:
            return self._after_failed_probe(look, still_s)
        if queued:
            return self._with_work(look, still_s)
        due = look.at_s - self._answered_at >= self._rules.heartbeat_s
        reason = "unmeasured" if queued is None else "idle"
        return Judgement(
            alive=Alive.ALIVE, reason=reason, wants_probe=due and look.probe is not Probe.RUNNING
        )

    def _take(self, look: Look) -> None:
        if (look.probe_number, look.probe) != self._seen_probe:
            self._seen_probe = (look.probe_number, look.probe)
            if look.probe in (Probe.ANSWERED, Probe.REFUSED):
                self._answered_at = look.at_s
                self._failed_probes = self._broken_probes = 0
                if look.probe is Probe.ANSWERED:
                    self._moved_at = look.at_s
            elif look.probe in (Probe.TIMED_OUT, Probe.BROKEN):
                self._failed_probes += 1
                self._broken_probes += look.probe is Probe.BROKEN
        figures = None if look.queue is None else _figures(look.queue)
        if figures is not None and figures != self._figures:
            if self._figures is not None:
                self._moved_at = look.at_s
            self._figures = figures
        if look.queue is not None and look.queue.queued == 0 and not self._is_asking(look):
            # Nothing to do is no standstill. A probe of ours is something to do, also where the
            # engine is too dead to count it.
            self._moved_at = look.at_s
        if look.is_idle is not True:
            self._busy_at = look.at_s

    def _is_asking(self, look: Look) -> bool:
        return look.probe is Probe.RUNNING or self._failed_probes > 0

    def _with_work(self, look: Look, still_s: float) -> Judgement:
        if still_s < self._rules.suspect_s:
            return Judgement(alive=Alive.ALIVE, reason="steps", still_s=still_s)
        if look.at_s - self._busy_at >= self._rules.suspect_s:
            return Judgement(alive=Alive.DEAD, reason="idle_with_work", still_s=still_s)
        return Judgement(
            alive=Alive.SUSPECT,
            reason="no_steps",
            still_s=still_s,
            wants_probe=look.probe is not Probe.RUNNING,
        )

    def _after_failed_probe(self, look: Look, still_s: float) -> Judgement:
        """A probe failed. If the engine has moved meanwhile, it only had more to do."""
        knows_steps = look.queue is not None and look.queue.queued is not None
        if knows_steps and still_s < self._rules.suspect_s:
            return Judgement(
                alive=Alive.ALIVE,
                reason="slow_but_steps",
                still_s=still_s,
                wants_probe=self._ask_again(look),
            )
        if knows_steps or self._is_proven_otherwise(look):
            return Judgement(alive=Alive.DEAD, reason="no_steps_no_answer", still_s=still_s)
        return Judgement(
            alive=Alive.SUSPECT,
            reason="no_answer",
            still_s=still_s,
            wants_probe=self._ask_again(look),
        )

    def _ask_again(self, look: Look) -> bool:
        return look.probe is not Probe.RUNNING

    def _is_proven_otherwise(self, look: Look) -> bool:
        """A second proof where no steps are told: idle throughout, or errors one after another. An
        engine that only does not answer may be reading a long prompt: it stays suspect.
        """
        if look.at_s - self._busy_at >= self._rules.suspect_s:
            return True
        return look.queue is None and self._broken_probes >= _PROBES_ALONE


_PROBES_ALONE = 3


def _figures(queue: EngineQueue) -> tuple[float | None, ...]:
    return (queue.steps, queue.running, queue.waiting, queue.kv_use_ratio)
