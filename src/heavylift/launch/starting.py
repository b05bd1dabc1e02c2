"""Whether a start goes on: by signs of progress, not by the clock alone. Pure.

Progress is a line the log did not have before, a step of a counter in it, bytes read or written.
CPU use is none, but it keeps an engine that compiles without a word from being called dead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from heavylift.records.deployment import Supervision


class Course(StrEnum):
    """How a start goes."""

    GOING = "going"
    LATE = "late"
    """Past the deadline, and still making progress: it is waited for."""
    STALLED = "stalled"
    """No progress for long; not given up before the deadline while the CPU is busy."""
    OVERDUE = "overdue"
    """Given up: past the deadline without progress."""
    STUCK = "stuck"
    """Given up before the deadline: no progress and no CPU use."""

    @property
    def is_given_up(self) -> bool:
        """True when the start is to be ended."""
        return self in (Course.OVERDUE, Course.STUCK)


@dataclass(frozen=True, kw_only=True, slots=True)
class Signs:
    """What a start has shown so far, all growing: `news` of its log, bytes moved, CPU seconds."""

    news: int
    moved_bytes: int
    cpu_s: float


_BUSY_SHARE = 0.02
"""Of one CPU: what an engine that waits in a loop of naps uses is below it."""


class Starting:
    """Judges a start, look by look."""

    def __init__(self, rules: Supervision, *, now_s: float, deadline_s: float) -> None:
        """`deadline_s` counts from now: the time the load was computed to take, with its margin."""
        self._rules = rules
        self._deadline_at = now_s + deadline_s
        self._seen: Signs | None = None
        self._progress_at = now_s
        self._busy_at = now_s
        self._cpu = (now_s, 0.0)

    def judge(self, now_s: float, signs: Signs) -> tuple[Course, float]:
        """The course, and for how many seconds there has been no progress."""
        before = self._seen
        self._seen = signs
        if before is None or (signs.news, signs.moved_bytes) != (before.news, before.moved_bytes):
            self._progress_at = now_s
        self._note_cpu(now_s, signs.cpu_s)
        still_s = now_s - self._progress_at
        is_late = now_s >= self._deadline_at
        # A deadline shorter than a stall does not make every pause one.
        if still_s < self._rules.stall_s:
            return (Course.LATE if is_late else Course.GOING), still_s
        if is_late:
            return Course.OVERDUE, still_s
        if now_s - self._busy_at >= self._rules.stall_s:
            return Course.STUCK, still_s
        return Course.STALLED, still_s

    def _note_cpu(self, now_s: float, cpu_s: float) -> None:
        then_s, used_s = self._cpu
        span_s = now_s - then_s
        if span_s <= 0:
            return
        if cpu_s - used_s > _BUSY_SHARE * span_s:
            self._busy_at = now_s
        self._cpu = (now_s, cpu_s)


def eta_s(done: int | None, total: int | None, elapsed_s: float) -> float | None:
    """Seconds a count still takes at its pace so far; None while it has no pace."""
    if not done or total is None or done > total:
        return None
    return elapsed_s / done * (total - done)
