"""A long run: latency that grows, memory that fills, requests that fail."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from heavylift.devserver.library import load
from heavylift.telemetry.gpu_readings import GpuReading
from heavylift.verify.drift import drift_results, latency_drift, memory_drift
from heavylift.verify.records import Profile, Status, Verification

HOUR_S = 3600.0
CARD = 80 * 2**30


def chance() -> Callable[[], float]:
    """A seeded one."""
    return random.Random(5).random


def wavering(growth: float) -> list[tuple[float, float]]:
    """An hour of latencies of about 200 ms that grow by a share, and waver by a fifth."""
    draw = random.Random(7).random
    return [
        (at * HOUR_S / 300, 0.2 * (1 + growth * at / 300) * (0.9 + 0.2 * draw()))
        for at in range(300)
    ]


def held(start: int, growth: int) -> list[GpuReading]:
    """An hour of readings of one card."""
    return [
        GpuReading(
            at_s=at * HOUR_S / 60,
            gpu=0,
            memory_used_bytes=start + growth * at // 60,
            memory_total_bytes=CARD,
        )
        for at in range(60)
    ]


@pytest.mark.parametrize(("growth", "reason"), [(0.0, None), (0.05, None), (0.5, "latency_drifts")])
def test_a_latency_that_grows_is_told_from_one_that_wavers(
    growth: float, reason: str | None
) -> None:
    """Half as much again over the hour drifts; a twentieth is within what hosts do."""
    trial = latency_drift(wavering(growth), chance())
    assert trial.reason == reason
    assert trial.figures["growth_ratio"] == pytest.approx(2 / 3 * growth, abs=0.06)


def test_a_run_too_short_to_tell_is_unknown() -> None:
    """Few points prove nothing either way."""
    trial = latency_drift(wavering(0.5)[:12], chance())
    assert (trial.reason, trial.undecided) == ("too_short", True)
    assert memory_drift(held(CARD // 2, 0)[:9]).undecided


@pytest.mark.parametrize(("growth", "reason"), [(2**28, None), (2**31, "memory_grows")])
def test_memory_that_fills_is_found(growth: int, reason: str | None) -> None:
    """Two GiB of eighty in an hour; a quarter of a GiB is an allocator's rounding."""
    assert memory_drift(held(CARD // 2, growth)).reason == reason


def test_requests_that_fail_are_counted_over_the_whole_run() -> None:
    """One in a thousand is allowed, two are not; without a request nothing is known."""
    statuses = [drift_results({}, (), (2000, failed), chance())[0].status for failed in (2, 3)]
    assert statuses == [Status.PASS, Status.FAIL]
    assert drift_results({}, (), (0, 0), chance())[0].status is Status.UNKNOWN


TRIALS_A_ROUND = 20


def test_a_soak_goes_through_its_checks_until_its_time_is_over(
    verify: Callable[..., Verification],
) -> None:
    """Trials add up over the rounds, the run has checks of its own."""
    only = ("basics.chat", "basics.stream")
    for soak_s in (1.5, 12.0, 96.0):  # on a busy machine one round takes longer than the first
        verification = verify(load("obliging"), profile=Profile.SOAK, only=only, soak_s=soak_s)
        found = {check.id: check for check in verification.checks}
        if found["basics.chat"].trials > TRIALS_A_ROUND:
            break
    assert set(found) == {
        "basics.chat", "basics.stream", "soak.errors", "soak.first_token", "soak.pace",
    }  # fmt: skip
    assert found["basics.chat"].trials % TRIALS_A_ROUND == 0
    assert found["basics.chat"].trials > TRIALS_A_ROUND
    assert found["basics.stream"].status is Status.PASS
    assert found["soak.errors"].status is Status.PASS
    assert found["soak.errors"].figures["error_ratio"] == 0
