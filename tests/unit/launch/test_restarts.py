"""Whether to start an engine again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.cli.text import text
from heavylift.facts.catalog import Catalog
from heavylift.launch.restarts import Decision, End, decide
from heavylift.records.deployment import Supervision

RULES = Supervision(restart_limit=3, restart_window_s=600, backoff_s=2, backoff_most_s=60)


def decided(end: End, *, before: tuple[float, ...] = (), failed: int = 1) -> Decision:
    """The decision at second 1000."""
    return decide(
        end,
        rules=RULES,
        helps=Catalog().restarts(),
        restarts_at=before,
        failed_starts=failed,
        now_s=1000,
    )


@pytest.mark.parametrize(
    "cause",
    [
        "weights_do_not_fit",
        "oom_graph_capture",
        "heads_not_divisible_by_tp",
        "checkpoint_truncated",
    ],
)
def test_what_is_the_same_at_the_next_start_is_not_tried_again(cause: str) -> None:
    """Memory, flags, files: explained instead."""
    end = End(was_ready=False, cause_class=cause, was_killed=False)
    assert decided(end) == Decision(after_s=None, reason="same_again")


def test_what_may_pass_and_what_has_served_is_tried_again() -> None:
    """Memory that ran out while serving too: the engine does not recover by itself."""
    assert decided(End(was_ready=False, cause_class="external_kill", was_killed=True)).after_s == 2
    served = decided(End(was_ready=True, cause_class="oom_at_runtime", was_killed=False))
    assert served == Decision(after_s=2, reason="had_served")


def test_a_start_that_nothing_explains_is_tried_once_more() -> None:
    """Twice the same is enough."""
    end = End(was_ready=False, cause_class=None, was_killed=False)
    assert decided(end, failed=1).after_s is not None
    assert decided(end, failed=2) == Decision(after_s=None, reason="unexplained_again")


def test_the_wait_doubles_up_to_its_most_and_old_restarts_are_forgotten() -> None:
    """2, 4, 8 s; what is longer ago than the window does not count."""
    end = End(was_ready=True, cause_class=None, was_killed=False)
    assert decided(end, before=(990.0,)).after_s == 4
    assert decided(end, before=(980.0, 990.0)).after_s == 8
    assert decided(end, before=(1.0, 2.0, 3.0)).after_s == 2
    assert decided(end, before=(970.0, 980.0, 990.0)) == Decision(after_s=None, reason="limit")


@given(st.lists(st.floats(min_value=0.0, max_value=1000.0), max_size=40).map(sorted))
def test_never_more_than_the_limit_within_the_window(before: list[float]) -> None:
    """Whatever happened before."""
    end = End(was_ready=True, cause_class=None, was_killed=True)
    recent = [at for at in before if 1000 - at < RULES.restart_window_s]
    decision = decided(end, before=tuple(before))
    assert (decision.after_s is None) == (len(recent) >= RULES.restart_limit)
    assert decision.after_s is None or decision.after_s <= RULES.backoff_most_s


def test_every_reason_has_a_text_and_every_cause_is_known() -> None:
    """What is decided can be said, and no rule is for a cause that does not exist."""
    for reason in (
        "limit",
        "same_again",
        "unexplained_again",
        "had_served",
        "may_pass",
        "killed",
        "unexplained",
    ):
        assert text(f"restart.{reason}")
    known = {cause.id for book in Catalog().symptoms() for cause in book.causes}
    assert set(Catalog().restarts()) <= known
