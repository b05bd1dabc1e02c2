"""The gate: each way in which a client can fail to measure has a name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heavylift.bench.records import ClientHealth, Sample
from heavylift.bench.stats import figures
from heavylift.bench.validity import Bounds, reasons
from heavylift.wire.failures import Failure

CALM = ClientHealth(
    loop_lag_p50_s=0.0,
    loop_lag_p99_s=0.002,
    cpu_ratio=0.3,
    schedule_delay_p99_s=0.001,
    connect_p99_s=0.01,
    reached_in_flight_limit=False,
)


def sample(index: int, **given: Any) -> Sample:
    """A good request."""
    base = Sample(
        index=index,
        prompt_digest=f"p{index}",
        scheduled_s=0.0,
        started_s=0.0,
        ended_s=1.0,
        ttft_s=0.2,
        completion_tokens=10,
        chunks=10,
    )
    return replace(base, **given)


def judged(samples: list[Sample], client: ClientHealth = CALM, *, shared: bool = False) -> Any:
    """The reasons."""
    return reasons(samples, figures(samples), client, prefix_is_shared=shared, bounds=Bounds())


GOOD = [sample(number) for number in range(4)]


def test_a_calm_client_and_good_answers_are_valid() -> None:
    """No reason at all."""
    assert judged(GOOD) == ()


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (replace(CALM, loop_lag_p99_s=0.03), "loop_lag"),
        (replace(CALM, cpu_ratio=0.95), "client_cpu"),
        (replace(CALM, schedule_delay_p99_s=0.03), "schedule_delay"),
        (replace(CALM, connect_p99_s=2.0), "connect_wait"),
        (replace(CALM, reached_in_flight_limit=True), "in_flight_limit"),
    ],
)
def test_a_client_that_could_not_keep_up_is_named(client: ClientHealth, reason: str) -> None:
    """A tenth of the TTFT of 200 ms is what lateness may come to."""
    assert judged(GOOD, client) == (reason,)


def test_lateness_is_measured_against_the_latency_it_would_distort() -> None:
    """30 ms late spoils a TTFT of 0.2 s, and not one of 2 s."""
    slow = [replace(each, ttft_s=2.0) for each in GOOD]
    assert judged(slow, replace(CALM, loop_lag_p99_s=0.03)) == ()


def test_answers_that_cannot_stand_for_the_load_are_named() -> None:
    """Failures, requests given up, prompts sent twice, counts that cannot be."""
    failed = [*GOOD, sample(9, failure=Failure.SERVER_ERROR)]
    assert judged(failed) == ("error_rate",)
    assert judged([sample(0, failure=Failure.SERVER_ERROR)]) == ("no_success", "error_rate")
    assert judged([*GOOD, sample(9, failure=Failure.TIMEOUT_TOTAL)]) == (
        "error_rate",
        "client_timeouts",
    )
    assert judged([*GOOD, sample(0)]) == ("repeated_prompts",)
    assert judged([*GOOD, sample(0)], shared=True) == ()
    assert judged([*GOOD, sample(9, completion_tokens=5)]) == ("usage_mismatch",)
