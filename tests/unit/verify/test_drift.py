"""A long run: latency that grows, memory that fills, requests that fail."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from heavylift.devserver.library import load
from heavylift.telemetry.gpu_readings import GpuReading
from heavylift.verify.drift import (
    HORIZON_HOURS,
    HostSide,
    drift_results,
    host_memory_drift,
    latency_drift,
    memory_drift,
    trend,
)
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


# --- slopes --------------------------------------------------------------------------------------

MIB = 2**20
LEFT = 20 * 2**30


def host(mib_per_hour: float, start_mib: float = 0.0) -> HostSide:
    """An hour of an engine's memory that grows, wavers by a MiB, and fills buffers at the start."""
    draw = random.Random(9).random
    return HostSide(
        name="engine (7)",
        points=[
            (
                at * HOUR_S / 400,
                MIB * (300 + min(at, 40) * start_mib / 40 + mib_per_hour * at / 400 + 2 * draw()),
            )
            for at in range(400)
        ],
        available_bytes=LEFT,
    )


def test_a_slope_is_found_inside_its_interval() -> None:
    """A line of 36 an hour with noise of a tenth of that; none has an interval around 0."""
    draw = random.Random(3).random
    for slope in (0.0, 36.0):
        points = [(at * 10.0, slope * at / 360 + 4 * (draw() - 0.5)) for at in range(360)]
        found = trend(points, chance())
        assert found is not None
        value, interval = found
        assert interval.low < slope < interval.high
        assert value == pytest.approx(slope, abs=2)


def test_the_interval_of_a_slope_covers_the_truth_about_as_often_as_it_says() -> None:
    """In 60 runs without a slope it excludes 0 in few; neighbours in time are alike here."""
    draw = random.Random(11)
    missed = 0
    for _ in range(60):
        level, points = 0.0, []
        for at in range(400):
            level = 0.8 * level + draw.gauss(0, 1)
            points.append((at * 9.0, level))
        found = trend(points, draw.random)
        assert found is not None
        missed += not found[1].low <= 0 <= found[1].high
    assert missed <= 10


def test_too_few_looks_have_no_slope() -> None:
    """Nor has none, nor many at one moment."""
    assert trend([], chance()) is None
    assert trend([(0.0, 1.0)] * 50, chance()) is None
    assert host_memory_drift(HostSide(name="e", points=[], available_bytes=1), chance()).undecided


def test_a_leak_that_fills_the_machine_within_a_week_is_named() -> None:
    """20 GiB left: 200 MiB an hour is gone in four days, 50 in seventeen; buffers that fill in the
    first minutes are no leak.
    """
    fast, slow, buffers = (
        host_memory_drift(each, chance()) for each in (host(200), host(50), host(0, 500))
    )
    assert fast.reason == "memory_grows"
    assert fast.figures["slope_bytes_per_hour"] == pytest.approx(200 * MIB, rel=0.05)
    low = fast.figures["slope_low_bytes_per_hour"]
    assert LEFT / low < HORIZON_HOURS
    assert "in 10" in fast.evidence  # hours until the machine is full
    assert (slow.reason, buffers.reason) == (None, None)
    unknown = HostSide(name="e", points=host(200).points, available_bytes=None)
    assert host_memory_drift(unknown, chance()).reason is None


def test_a_latencys_slope_stands_beside_its_growth() -> None:
    """In seconds an hour: 200 ms that grow by half are 100 ms an hour."""
    figures = latency_drift(wavering(0.5), chance()).figures
    assert figures["slope_s_per_hour"] == pytest.approx(0.1, abs=0.02)
    low, high = figures["slope_low_s_per_hour"], figures["slope_high_s_per_hour"]
    assert 0 < low < figures["slope_s_per_hour"] < high


@pytest.mark.parametrize(
    ("early", "late", "reason"),
    [(0.02, 0.30, "host_busier"), (0.30, 0.31, "latency_drifts"), (0.30, 0.02, "latency_drifts")],
)
def test_a_host_that_grew_busier_is_told_from_an_engine_that_slowed(
    early: float, late: float, reason: str
) -> None:
    """Its processes stood ready and waited for a processor: the neighbours' doing, or nobody's."""
    waits = [(at * HOUR_S / 60, early if at < 30 else late) for at in range(60)]
    side = HostSide(name="e", points=[], available_bytes=None, waits=waits)
    trial = latency_drift(wavering(0.5), chance(), side)
    assert (trial.reason, trial.undecided) == (reason, reason == "host_busier")
    assert latency_drift(wavering(0.0), chance(), side).reason is None


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
    only = ("basics.chat", "basics.whole")
    for soak_s in (1.5, 12.0, 96.0):  # on a busy machine one round takes longer than the first
        verification = verify(load("obliging"), profile=Profile.SOAK, only=only, soak_s=soak_s)
        found = {check.id: check for check in verification.checks}
        if found["basics.chat"].trials > TRIALS_A_ROUND:
            break
    assert set(found) == {
        "basics.chat", "basics.whole", "soak.errors", "soak.first_token", "soak.pace",
        "soak.host_memory",
    }  # fmt: skip
    assert found["basics.chat"].trials > TRIALS_A_ROUND
    assert found["basics.whole"].status is Status.PASS
    assert found["soak.errors"].status is Status.PASS
    assert found["soak.errors"].figures["error_ratio"] == 0
