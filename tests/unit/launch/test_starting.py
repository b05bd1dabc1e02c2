"""Whether a start goes on: by signs of progress, with a clock of the test's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heavylift.launch.starting import Course, Signs, Starting, eta_s
from heavylift.records.deployment import Supervision

RULES = Supervision(stall_s=600)
HOUR_S = 3600


def courses(
    seconds: int, signs: list[Signs], *, deadline_s: float = HOUR_S, every_s: int = 60
) -> list[Course]:
    """The course at each look; the last signs stay as they are."""
    starting = Starting(RULES, now_s=0, deadline_s=deadline_s)
    looks = range(0, seconds + 1, every_s)
    return [
        starting.judge(now, signs[min(number, len(signs) - 1)])[0]
        for number, now in enumerate(looks)
    ]


def test_a_start_that_reads_is_waited_for_past_its_deadline() -> None:
    """Bytes come in slowly: late, and said so, but not given up."""
    signs = [Signs(news=3, moved_bytes=number, cpu_s=0) for number in range(200)]
    seen = courses(2 * HOUR_S, signs)
    assert seen[-1] is Course.LATE
    assert not any(course.is_given_up for course in seen)


def test_a_start_past_its_deadline_without_progress_is_given_up() -> None:
    """Also one whose CPU is busy: a hung collective spins."""
    signs = [Signs(news=3, moved_bytes=9, cpu_s=60.0 * number) for number in range(200)]
    seen = courses(2 * HOUR_S, signs)
    assert seen[20] is Course.STALLED
    assert seen[-1] is Course.OVERDUE
    assert seen.index(Course.OVERDUE) == HOUR_S // 60


def test_a_start_that_does_nothing_at_all_is_given_up_before_its_deadline() -> None:
    """No line, no byte, no CPU for the whole span."""
    seen = courses(1200, [Signs(news=3, moved_bytes=9, cpu_s=4)])
    assert seen[9] is Course.GOING
    assert Course.STUCK in seen


def test_a_compilation_without_a_word_is_waited_for_until_the_deadline() -> None:
    """Busy, silent: stalled is shown, the start goes on."""
    signs = [Signs(news=3, moved_bytes=9, cpu_s=30.0 * number) for number in range(200)]
    seen = courses(HOUR_S - 60, signs)
    assert seen[-1] is Course.STALLED


def test_the_time_left_follows_the_pace_so_far() -> None:
    """24 of 96 shards in two minutes: six more; without a pace it is not known."""
    assert eta_s(24, 96, 120.0) == 360.0
    assert eta_s(0, 96, 120.0) is None
    assert eta_s(None, None, 120.0) is None
    assert eta_s(97, 96, 120.0) is None


@given(st.lists(st.tuples(st.integers(1, 500), st.booleans()), min_size=1, max_size=60))
def test_who_makes_progress_within_every_span_is_never_given_up(
    steps: list[tuple[int, bool]],
) -> None:
    """Whatever kind of progress it is, and however late."""
    starting = Starting(RULES, now_s=0, deadline_s=10)
    now, news, moved = 0, 0, 0
    for gap, is_line in steps:
        now += gap
        news, moved = news + is_line, moved + (not is_line)
        course, _ = starting.judge(now, Signs(news=news, moved_bytes=moved, cpu_s=0))
        assert not course.is_given_up
