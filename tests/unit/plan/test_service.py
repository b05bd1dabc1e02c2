"""A service settles: seats, prefill between steps, queues. Closed forms where there are any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heavylift.plan.service import Service
from heavylift.plan.step_time import Constants, Hardware, Load, StageLoad, StepTime
from heavylift.records.plan import Layout
from heavylift.records.speed import Speculation, SpeedPart, SpeedWorkload

LOAD = Load(
    layout=Layout(),
    stages=(
        StageLoad(
            layers=10,
            dense_bytes=8e9,
            expert_bytes=0,
            kv_bytes_per_token=0,
            state_bytes_per_sequence=0,
        ),
    ),
    hidden_size=1000,
    active_params=4e9,
    experts=None,
    experts_per_token=0,
    microbatches=1,
)
HARDWARE = Hardware(memory_bytes_per_s=1e12, link_bytes_per_s=None, flops_per_s=1e14)
CONSTANTS = Constants(memory_efficiency=0.8, compute_efficiency=0.4, prefill_floor_s_per_layer=0.0)
TIMES = StepTime(LOAD, HARDWARE, CONSTANTS, 0.0)
# Every step reads 8 GB at 0.8 TB/s, whatever the batch.
STEP_S = 0.010


def service(
    clients: int,
    *,
    seats: int = 1000,
    prompt: int = 0,
    answer: int = 100,
    split: bool = False,
) -> Service:
    """A service of one replica."""
    work = SpeedWorkload(concurrency=clients, input_tokens=prompt, output_tokens=answer)
    return Service(decode=TIMES, workload=work, seats=seats, prefill=TIMES if split else None)


def test_without_prompts_all_clients_decode() -> None:
    """Nothing to wait for: the batch is the clients, each gets a token per step."""
    found = service(8)
    assert found.decode_batch == pytest.approx(8, rel=1e-6)
    assert found.settled_tpot_s == pytest.approx(STEP_S)
    assert found.output_tokens_per_s == pytest.approx(8 / STEP_S, rel=1e-6)
    assert found.ttft_s == pytest.approx(0, abs=1e-6)


def test_no_more_decode_than_have_seats_and_the_rest_wait() -> None:
    """20 clients for 5 seats: 15 wait, three rounds of a second each."""
    found = service(20, seats=5)
    assert found.is_short_of_seats
    assert found.decode_batch == pytest.approx(5, rel=1e-6)
    assert found.ttft_s == pytest.approx(3 * 100 * STEP_S, rel=1e-5)


def test_prefill_between_the_steps_makes_tokens_slower() -> None:
    """While a sequence makes its 100 tokens, each of the others is replaced once."""
    found = service(8, prompt=1000)
    prompt = 2 * 4e9 * 1000 / (1e14 * 0.4)
    assert found.prompt_s == pytest.approx(prompt)
    parts = found.token_parts(5)
    assert parts[SpeedPart.PREFILL] == pytest.approx(4 * prompt / 100)


def test_ranks_of_its_own_take_the_prefill_out_of_the_batch() -> None:
    """A split service's tokens take the step alone."""
    found = service(8, prompt=1000, split=True)
    assert found.token_parts(5)[SpeedPart.PREFILL] == 0
    assert found.settled_tpot_s == pytest.approx(STEP_S)


def test_a_slow_prefill_pool_sets_the_pace() -> None:
    """Many clients: requests per second come near one per prompt, and decode is half idle."""
    found = service(200, prompt=20_000, split=True)
    assert found.settled_requests_per_s == pytest.approx(1 / found.prompt_s, rel=0.02)
    assert found.decode_batch < 100


def test_a_second_prefill_unit_nearly_doubles_the_pace() -> None:
    """Where prefill sets the pace."""
    one = service(200, prompt=20_000, split=True)
    two = replace(one, prefill_replicas=2)
    assert two.settled_requests_per_s == pytest.approx(2 * one.settled_requests_per_s, rel=0.05)


def test_accepted_tokens_divide_the_step() -> None:
    """Three tokens per step of a drafted-for batch: a third of the step's time each."""
    drafted = Speculation(method="x", draft_tokens=4, accepted_tokens=3.0, source="test")
    work = SpeedWorkload(concurrency=1, input_tokens=0, output_tokens=100, speculation=drafted)
    found = Service(decode=TIMES, workload=work, seats=10)
    assert found.settled_tpot_s == pytest.approx(STEP_S / 3)


def test_clients_that_send_at_once_wait_longer_than_those_that_come_evenly() -> None:
    """The last of a burst waits for all prompts before its own."""
    found = service(8, prompt=1000, answer=10_000)
    assert found.burst_ttft_s == pytest.approx(8 * found.prompt_s, rel=1e-6)
    assert found.prompt_s <= found.ttft_s < found.burst_ttft_s


def test_a_replica_that_is_used_has_at_least_one_client() -> None:
    """One client on two replicas: one of them serves it alone."""
    layout = Layout(data_parallel_size=2)
    pair = StepTime(replace(LOAD, layout=layout), HARDWARE, CONSTANTS, 0.0)
    work = SpeedWorkload(concurrency=1, input_tokens=0, output_tokens=10)
    assert Service(decode=pair, workload=work, seats=4).clients == 1
