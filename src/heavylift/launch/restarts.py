"""Whether to start an engine again, and when. Pure.

Starting again helps against what is not the same at the next start. A flag, a file or a card's
memory is: such a failure is explained instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heavylift.records.deployment import Supervision


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """How an attempt ended. `was_ready`: it had served. `cause_class` None = not recognised.

    `was_killed`: by a signal from outside.
    """

    was_ready: bool
    cause_class: str | None
    was_killed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """`after_s` None = not again; `reason` is a code."""

    after_s: float | None
    reason: str


def decide(
    end: End,
    *,
    rules: Supervision,
    helps: Mapping[str, bool],
    restarts_at: Sequence[float],
    failed_starts: int,
    now_s: float,
) -> Decision:
    """What to do after an end. `restarts_at`: when it was started again before, in order;
    `failed_starts`: how many starts in a row ended before they were ready, this one included.
    """
    recent = [at for at in restarts_at if now_s - at < rules.restart_window_s]
    if len(recent) >= rules.restart_limit:
        return Decision(after_s=None, reason="limit")
    reason = _reason(end, helps, failed_starts)
    if reason in _FINAL:
        return Decision(after_s=None, reason=reason)
    wait_s = min(rules.backoff_s * 2 ** len(recent), rules.backoff_most_s)
    return Decision(after_s=wait_s, reason=reason)


_FINAL = frozenset({"same_again", "unexplained_again"})


def _reason(end: End, helps: Mapping[str, bool], failed_starts: int) -> str:
    if end.was_ready:
        # It has served with these bytes and flags, whatever ended it.
        return "had_served"
    if end.cause_class is not None and helps.get(end.cause_class, False):
        return "may_pass"
    if end.cause_class is not None:
        return "same_again"
    if end.was_killed:
        return "killed"
    return "unexplained" if failed_starts <= 1 else "unexplained_again"
