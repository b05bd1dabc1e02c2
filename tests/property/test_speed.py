"""What must hold for any model, card and workload: the rules of speed and money."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavylift.plan.calibration import Observation, fit_fixed, quantile, shrunk, spread
from heavylift.plan.money import break_even_ratio, usd_per_output_token
from heavylift.plan.prefill_decode import batch_within
from heavylift.plan.service import Service
from heavylift.plan.step_time import (
    Constants,
    Hardware,
    Load,
    StageLoad,
    StepTime,
    fullest_rank_ratio,
    touched_ratio,
)
from heavylift.planning import Planning
from heavylift.records.decision import TokenPrice
from heavylift.records.plan import Layout
from heavylift.records.speed import SpeedWorkload

# A settled service is found by halving; on a busy machine that may take longer than usual.
unhurried = settings(deadline=None)
CONSTANTS = Constants(memory_efficiency=0.8, compute_efficiency=0.3, prefill_floor_s_per_layer=8e-4)
sizes = st.sampled_from([1, 2, 4, 8])


@st.composite
def times(draw: st.DrawFn) -> StepTime:
    """A model of any size in a layout, on a card of any speed."""
    experts = draw(st.sampled_from([None, 8, 128, 896]))
    tensor, data = draw(sizes), draw(st.sampled_from([1, 2]))
    pipeline = draw(st.sampled_from([1, 2]))
    spread_out = experts is not None and draw(st.booleans())
    expert = tensor * data if spread_out and experts and experts % (tensor * data) == 0 else 1
    stage = StageLoad(
        layers=draw(st.integers(1, 50)),
        dense_bytes=draw(st.floats(1e8, 3e10)),
        expert_bytes=draw(st.floats(1e9, 2e11)) if experts else 0.0,
        kv_bytes_per_token=draw(st.floats(0, 1e5)),
        state_bytes_per_sequence=draw(st.floats(0, 1e8)),
    )
    load = Load(
        layout=Layout(
            tensor_parallel_size=tensor,
            pipeline_parallel_size=pipeline,
            data_parallel_size=data,
            expert_parallel_size=expert,
        ),
        stages=(stage,) * pipeline,
        hidden_size=7168,
        active_params=draw(st.floats(1e9, 2e11)),
        experts=experts,
        experts_per_token=4 if experts else 0,
        microbatches=pipeline,
    )
    hardware = Hardware(
        memory_bytes_per_s=draw(st.floats(5e11, 1e13)),
        link_bytes_per_s=draw(st.floats(1e10, 1e12)),
        flops_per_s=draw(st.floats(1e14, 1e16)),
    )
    return StepTime(load, hardware, CONSTANTS, draw(st.floats(0, 5e-4)))


workloads = st.builds(
    SpeedWorkload,
    concurrency=st.integers(1, 300),
    input_tokens=st.integers(0, 30_000),
    output_tokens=st.integers(1, 4000),
    cached_ratio=st.floats(0, 1),
)
services = st.builds(
    Service,
    decode=times(),
    workload=workloads,
    seats=st.integers(1, 500),
)
batches = st.floats(1, 400)


@unhurried
@given(times(), batches, st.integers(0, 100_000), st.floats(1, 10))
def test_more_bandwidth_is_never_slower(
    found: StepTime, batch: float, context: int, factor: float
) -> None:
    """Of the memory, of the link, of the arithmetic: a step takes as long or less."""
    rates = found.hardware
    before = found.step_s(batch, context)
    for name in ("memory_bytes_per_s", "link_bytes_per_s", "flops_per_s"):
        more = replace(rates, **{name: getattr(rates, name) * factor})
        after = replace(found, hardware=more).step_s(batch, context)
        assert after <= before * (1 + 1e-9)


@unhurried
@given(times(), batches, st.floats(1, 5), st.integers(0, 100_000))
def test_a_larger_batch_takes_no_less_time(
    found: StepTime, batch: float, factor: float, context: int
) -> None:
    """Each sequence adds bytes and operations, or nothing."""
    assert found.step_s(batch * factor, context) >= found.step_s(batch, context) * (1 - 1e-9)


@unhurried
@given(times(), batches, st.integers(0, 100_000))
def test_no_step_is_faster_than_its_bytes(found: StepTime, batch: float, context: int) -> None:
    """The floor bounds every forecast from below."""
    assert found.step_s(batch, context) >= found.floor_s(batch, context)
    assert all(seconds >= 0 for seconds in found.step_parts(batch, context).values())


@unhurried
@given(services)
def test_littles_law_holds(service: Service) -> None:
    """Clients = requests per second × the time of a round, and the decode set = requests per second
    × the time spent decoding.
    """
    rate, tokens = service.settled_requests_per_s, service.workload.output_tokens
    decoding = tokens * service.settled_tpot_s
    assert service.decode_batch * service.replicas == pytest.approx(rate * decoding)
    clients = service.clients * service.replicas
    waiting = clients / rate - decoding
    assert service.ttft_s == pytest.approx(max(service.prompt_s, waiting), abs=1e-9)


@unhurried
@given(services)
def test_no_more_decode_than_have_seats_or_are_clients(service: Service) -> None:
    """The decode set is bounded by both."""
    assert 0 < service.decode_batch <= min(service.clients, service.seats) * (1 + 1e-9)


@unhurried
@given(services)
def test_more_seats_never_serve_fewer_tokens(service: Service) -> None:
    """Room is never a loss, and clients that arrive at once never wait less than settled ones."""
    wider = replace(service, seats=service.seats * 2)
    assert wider.decode_batch >= service.decode_batch * (1 - 1e-6)
    assert service.burst_ttft_s >= service.ttft_s


@unhurried
@given(services, st.floats(1e-3, 1.0))
def test_the_largest_batch_within_a_limit_keeps_it(service: Service, limit_s: float) -> None:
    """And is nothing when even one sequence is too slow."""
    batch = batch_within(service, limit_s)
    if batch:
        assert service.tpot_s(batch) <= limit_s * (1 + 1e-9)
        assert batch <= service.seats
    else:
        assert service.tpot_s(1.0) > limit_s


@unhurried
@given(st.integers(1, 1000), st.integers(1, 50), st.floats(1, 1e4))
def test_the_touched_part_is_a_part(experts: int, chosen: int, tokens: float) -> None:
    """Between one token's experts and all of them."""
    chosen = min(chosen, experts)
    ratio = touched_ratio(experts, chosen, tokens)
    assert chosen / experts * (1 - 1e-9) <= ratio <= 1


@unhurried
@given(st.sampled_from([8, 64, 896]), sizes, st.floats(0.001, 1))
def test_the_busiest_rank_reads_at_least_the_mean(experts: int, ranks: int, ratio: float) -> None:
    """And at most all it holds."""
    found = fullest_rank_ratio(experts, ranks, ratio)
    assert ratio * (1 - 1e-9) <= found <= 1 + 1e-9


@unhurried
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=50))
def test_a_spread_is_ordered_and_inside_the_rows(ratios: list[float]) -> None:
    """Low before high, both between the extremes."""
    low, high = spread(ratios)
    assert low <= high * (1 + 1e-12)
    assert min(ratios) - 1e-9 <= quantile(ratios, 0.1) <= max(ratios) + 1e-9


@unhurried
@given(
    st.tuples(st.floats(0.1, 1), st.floats(1, 5)),
    st.tuples(st.floats(0.1, 1), st.floats(1, 5)),
    st.integers(0, 100),
)
def test_a_shrunk_spread_lies_between_the_two(
    own: tuple[float, float], others: tuple[float, float], rows: int
) -> None:
    """Never narrower than the narrower, never wider than the wider, at either end."""
    for found, mine, theirs in zip(shrunk(own, rows, others), own, others, strict=True):
        assert min(mine, theirs) * (1 - 1e-9) <= found <= max(mine, theirs) * (1 + 1e-9)


@unhurried
@given(st.floats(0, 4000), st.floats(1e-4, 1))
def test_a_fit_finds_the_fixed_cost_that_made_the_row(fixed_us: float, base_s: float) -> None:
    """Fit ∘ model is the identity."""
    row = Observation(
        measured_s=base_s + 60 * fixed_us * 1e-6, model_s=lambda us: base_s + 60 * us * 1e-6
    )
    assert fit_fixed([row]) == pytest.approx(fixed_us, abs=0.01)


def test_every_shipped_class_is_narrower_than_the_unseen(planning: Planning) -> None:
    """What counts as known is never wider than what is not."""
    book = planning.catalog.speed().book
    unseen = next(entry for entry in book.spreads if entry.setting == "unseen")
    width = unseen.high_ratio / unseen.low_ratio
    anchored = next(entry for entry in book.spreads if entry.setting == "anchored")
    assert anchored.high_ratio / anchored.low_ratio <= 2.0
    assert width <= 7.0
    for entry in book.classes:
        own = entry.high_ratio / entry.low_ratio
        if entry.rows >= 3 and own <= 2.5:
            assert own < width


@unhurried
@given(
    st.floats(0.01, 100),
    st.floats(0.01, 100),
    st.floats(0, 1),
    st.floats(0, 100),
    st.floats(1, 3),
)
def test_cost_is_monotone(
    usd_in: float, usd_out: float, cached: float, inputs: float, factor: float
) -> None:
    """Dearer tokens cost more, cached ones less; a dearer or slower machine pays later."""
    price = TokenPrice(
        provider="p",
        name="m",
        tier="",
        input_usd=usd_in,
        cached_input_usd=usd_in / 10,
        output_usd=usd_out,
        kind="stated",
        source="stated",
        as_of="",
    )
    each = usd_per_output_token(price, inputs, cached)
    dearer = replace(price, input_usd=usd_in * factor, output_usd=usd_out * factor)
    assert usd_per_output_token(dearer, inputs, cached) >= each
    assert usd_per_output_token(price, inputs, min(1, cached * factor)) <= each * (1 + 1e-12)
    ratio = break_even_ratio(50, 1000, each)
    assert break_even_ratio(50 * factor, 1000, each) >= ratio
    assert break_even_ratio(50, 1000 * factor, each) <= ratio
    assert break_even_ratio(50, 1000, each * factor) <= ratio
