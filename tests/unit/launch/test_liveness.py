"""Whether an engine works: by its steps, with a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.launch.liveness import Judgement, Liveness, Look, Probe
from heavylift.records.deployment import Alive, Supervision
from heavylift.telemetry.engine_queue import EngineQueue

RULES = Supervision()


def queue(steps: float | None, *, running: float = 1, kv: float | None = None) -> EngineQueue:
    """An engine's figures with so many requests running."""
    return EngineQueue(running=running, waiting=0, steps=steps, kv_use_ratio=kv)


def test_ten_minutes_of_prefill_with_steps_are_left_alone() -> None:
    """No token comes, the scheduler's counter moves: alive all the time, and never probed."""
    liveness = Liveness(RULES, now_s=0)
    for second in range(0, 600, 2):
        judgement = liveness.judge(Look(at_s=second, queue=queue(steps=second)))
        assert judgement.alive is Alive.ALIVE
        assert not judgement.wants_probe


def test_a_prefill_that_shows_in_the_cache_alone_is_left_alone_too() -> None:
    """Some engines count no step without a token; the use of their cache grows."""
    liveness = Liveness(RULES, now_s=0)
    for second in range(0, 600, 2):
        look = Look(at_s=second, queue=queue(steps=7, kv=second / 1000))
        assert liveness.judge(look).alive is Alive.ALIVE


def stand_still(liveness: Liveness, until_s: float, **more: object) -> Judgement:
    """Looks at an engine with work whose figures do not move, to a time."""
    judgement = None
    for second in range(0, int(until_s) + 1, 2):
        look = replace(Look(at_s=second, queue=queue(steps=7)), **more)  # type: ignore[arg-type]
        judgement = liveness.judge(look)
    assert judgement is not None
    return judgement


def test_standing_still_with_work_is_suspect_after_thirty_seconds_and_wants_proof() -> None:
    """Not before, and suspicion alone is no death, however long it lasts."""
    assert stand_still(Liveness(RULES, now_s=0), 28).alive is Alive.ALIVE
    suspected = stand_still(Liveness(RULES, now_s=0), 30)
    assert (suspected.alive, suspected.reason) == (Alive.SUSPECT, "no_steps")
    assert suspected.wants_probe
    assert stand_still(Liveness(RULES, now_s=0), 3600).alive is Alive.SUSPECT


def test_a_probe_that_times_out_is_the_second_proof() -> None:
    """No step and no answer on a slot of its own."""
    liveness = Liveness(RULES, now_s=0)
    stand_still(liveness, 32)
    waiting = Look(at_s=34, queue=queue(7), probe=Probe.RUNNING, probe_number=1)
    assert liveness.judge(waiting).alive is Alive.SUSPECT
    late = Look(at_s=94, queue=queue(7), probe=Probe.TIMED_OUT, probe_number=1)
    assert liveness.judge(late) == Judgement(
        alive=Alive.DEAD, reason="no_steps_no_answer", still_s=94
    )


def test_a_probe_that_is_answered_ends_the_suspicion() -> None:
    """The counters were wrong, or it has recovered."""
    liveness = Liveness(RULES, now_s=0)
    stand_still(liveness, 40)
    answered = Look(at_s=42, queue=queue(7), probe=Probe.ANSWERED, probe_number=1)
    assert liveness.judge(answered).alive is Alive.ALIVE


def test_a_probe_that_times_out_while_steps_are_taken_proves_nothing() -> None:
    """A full engine makes a probe wait; restarting it would make all wait longer."""
    liveness = Liveness(RULES, now_s=0)
    for second in range(0, 200, 2):
        probe = Probe.RUNNING if second < 100 else Probe.TIMED_OUT
        look = Look(at_s=second, queue=queue(steps=second), probe=probe, probe_number=1)
        assert liveness.judge(look).alive is Alive.ALIVE


def test_idle_processes_and_cards_are_a_second_proof() -> None:
    """Work is queued, nothing moves, and nothing computes."""
    judgement = stand_still(Liveness(RULES, now_s=0), 60, is_idle=True)
    assert (judgement.alive, judgement.reason) == (Alive.DEAD, "idle_with_work")


def test_a_metrics_page_that_froze_at_nothing_to_do_is_seen_through() -> None:
    """The page of a dead engine may say 0 requests for ever: it does not count the probe."""
    liveness = Liveness(RULES, now_s=0)
    frozen = queue(steps=7, running=0)
    for second in range(0, 60, 2):
        judgement = liveness.judge(Look(at_s=second, queue=frozen))
        assert judgement.alive is Alive.ALIVE
    assert liveness.judge(Look(at_s=60, queue=frozen)).wants_probe
    for second in range(62, 122, 2):
        look = Look(at_s=second, queue=frozen, probe=Probe.RUNNING, probe_number=1)
        assert liveness.judge(look).alive is Alive.ALIVE
    late = Look(at_s=122, queue=frozen, probe=Probe.TIMED_OUT, probe_number=1)
    assert liveness.judge(late).alive is Alive.DEAD


@pytest.mark.parametrize(
    ("probe", "last"), [(Probe.TIMED_OUT, Alive.SUSPECT), (Probe.BROKEN, Alive.DEAD)]
)
def test_an_engine_without_metrics_is_ended_for_errors_and_not_for_silence(
    probe: Probe, last: Alive
) -> None:
    """Where no steps are told, silence may be a long prompt; three errors in a row are none."""
    liveness = Liveness(RULES, now_s=0)
    seen = []
    for number in (1, 2, 3):
        look = Look(at_s=60 * number, queue=None, probe=probe, probe_number=number)
        seen.append(liveness.judge(look).alive)
    assert seen == [Alive.SUSPECT, Alive.SUSPECT, last]


def test_errors_to_every_request_are_death_once_no_step_is_taken() -> None:
    """500 is no answer: an engine that refuses all and steps no more is dead after the span."""
    liveness = Liveness(RULES, now_s=0)
    alive = []
    for number, second in enumerate(range(0, 60, 2)):
        look = Look(at_s=second, queue=queue(7, running=0), probe=Probe.BROKEN, probe_number=number)
        alive.append(liveness.judge(look).alive)
    assert alive[0] is Alive.ALIVE
    assert alive[-1] is Alive.DEAD


def test_a_busy_refusal_is_no_failure() -> None:
    """Turned away for want of room: the engine is there."""
    liveness = Liveness(RULES, now_s=0)
    look = Look(at_s=60, queue=queue(7, running=0), probe=Probe.REFUSED, probe_number=1)
    assert liveness.judge(look).alive is Alive.ALIVE


def test_a_process_that_is_gone_is_dead_at_once() -> None:
    """The other second proof."""
    judgement = Liveness(RULES, now_s=0).judge(Look(at_s=1, queue=None, is_running=False))
    assert (judgement.alive, judgement.reason) == (Alive.DEAD, "process_gone")


@given(
    gaps=st.lists(st.floats(min_value=0.1, max_value=29.0), min_size=1, max_size=60),
    probes=st.lists(st.sampled_from(list(Probe)), min_size=60, max_size=60),
    idle=st.booleans(),
)
def test_an_engine_that_steps_is_never_dead(
    gaps: list[float], probes: list[Probe], idle: bool
) -> None:
    """Whatever becomes of probes, and however idle it looks: who steps lives."""
    liveness = Liveness(RULES, now_s=0)
    now = 0.0
    for number, gap in enumerate(gaps):
        now += gap
        look = Look(
            at_s=now,
            queue=queue(steps=number + 1),
            probe=probes[number],
            probe_number=number,
            is_idle=idle,
        )
        assert liveness.judge(look).alive is Alive.ALIVE


@pytest.mark.parametrize("probe", [Probe.TIMED_OUT, Probe.BROKEN])
def test_an_engine_of_which_nothing_is_known_is_dead_when_it_does_nothing(probe: Probe) -> None:
    """No metrics, a failed probe, and idle throughout."""
    liveness = Liveness(RULES, now_s=0)
    for second in range(0, 40, 2):
        judgement = liveness.judge(
            Look(at_s=second, queue=None, probe=probe, probe_number=1, is_idle=True)
        )
    assert judgement.alive is Alive.DEAD
