"""A measured stage beside what its rack could do, and the points that forecasts are anchored on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from heavylift.bench.records import (
    ClientHealth,
    Distribution,
    Figures,
    Load,
    LoadKind,
    RequestCounts,
    Stage,
)
from heavylift.bench.roofline import anchors, forecast
from heavylift.cli.workload import read_anchors
from heavylift.plan.planner import Knowledge
from heavylift.plan.speed import Forecaster, forecaster
from heavylift.planning import Planning
from heavylift.records.plan import Plan
from heavylift.records.speed import AnchorPoint
from heavylift.state.kept_anchors import keep

CLOSED = Load(kind=LoadKind.CLOSED, requests=32, concurrency=8)


def distribution(seconds: float) -> Distribution:
    """All values alike."""
    return Distribution(
        count=8, mean=seconds, p50=seconds, p90=seconds, p95=seconds, p99=seconds, min=seconds,
        max=seconds,
    )  # fmt: skip


def figures(tpot_s: float | None, **given: float | None) -> Figures:
    """The figures of a stage with this time per token; 1,024 tokens in, 256 out."""
    lengths = {"prompt_tokens_mean": 1024.0, "output_tokens_mean": 256.0, **given}
    names = ("ttft_s", "ttfa_s", "itl_s", "e2e_s", "stamp_error_s", "chunks_per_token")
    others = (
        "total_tokens_per_s", "goodput_per_s", "slo_met", "reasoning_share", "cached_share",
        "output_length_deviation",
    )  # fmt: skip
    return Figures(
        requests=RequestCounts(ok=32, failed=0),
        window_s=1.0,
        tpot_s=None if tpot_s is None else distribution(tpot_s),
        itl_is_chunk_gap=False,
        counted_by_server=True,
        output_tokens_per_s=1.0,
        achieved_per_s=1.0,
        error_rate=0.0,
        **dict.fromkeys((*names, *others)),
        **lengths,  # type: ignore[arg-type] # fields by name
    )


def stage(tpot_s: float, *, load: Load = CLOSED, valid: bool = True) -> Stage:
    """A stage with these figures."""
    known = figures(tpot_s)
    quiet = ClientHealth(
        loop_lag_p50_s=0, loop_lag_p99_s=0, cpu_ratio=0, schedule_delay_p99_s=0, connect_p99_s=0,
        reached_in_flight_limit=False,
    )  # fmt: skip
    return Stage(
        load=load,
        offered_per_s=None,
        client=quiet,
        server=(),
        valid=valid,
        invalid_reasons=(),
        **{name: getattr(known, name) for name in Figures.__slots__},
    )


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    """Kimi K3 on eight MI355X."""
    return make_plan("kimi-k3", "8xMI355X", engine="atom", context_tokens=131_072, vision=False)


@pytest.fixture
def rack(plan: Plan, planning: Planning, knowledge_of: Callable[[str], Knowledge]) -> Forecaster:
    """What that rack can do."""
    return forecaster(plan, knowledge_of("kimi-k3"), planning.catalog.speed())


def test_the_bound_is_the_memorys_and_the_place_is_told(rack: Forecaster) -> None:
    """Half of the time at the bound is impossible and told as faster than the forecast."""
    slow = forecast(CLOSED, figures(1.0), rack)
    assert slow is not None
    assert slow.place == "slower"
    assert slow.bound_ratio == pytest.approx(slow.bound_tpot_s)
    inside = forecast(CLOSED, figures((slow.band_low_s * slow.band_high_s) ** 0.5), rack)
    faster = forecast(CLOSED, figures(slow.bound_tpot_s), rack)
    assert inside is not None
    assert faster is not None
    assert (inside.place, faster.place) == ("inside", "faster")
    assert faster.bound_ratio == pytest.approx(1.0)
    assert 0 < slow.bound_tpot_s < slow.band_low_s


def test_a_step_of_many_reads_nearly_all_experts(rack: Forecaster) -> None:
    """13 % of K3's at eight tokens and 99 % at 256; fewer are decoded at once than ask."""
    ratios = {}
    for clients in (8, 384):
        found = forecast(replace(CLOSED, concurrency=clients), figures(0.05), rack)
        assert found is not None
        assert found.experts_ratio is not None
        ratios[clients] = found.experts_ratio
    assert 0.05 < ratios[8] <= 0.135
    assert ratios[384] > 0.5


@pytest.mark.parametrize(
    ("load", "known"),
    [
        (Load(kind=LoadKind.POISSON, requests=8, rate_per_s=2.0), figures(0.02)),
        (CLOSED, figures(None)),
        (CLOSED, figures(0.02, prompt_tokens_mean=None)),
        (CLOSED, figures(0.02, prompt_tokens_mean=2.0e9)),
    ],
)
def test_what_cannot_be_forecast_is_left_out(rack: Forecaster, load: Load, known: Figures) -> None:
    """An open loop, no time per token, lengths nobody counted, a load the plan does not hold."""
    assert forecast(load, known, rack) is None


def test_measured_points_are_kept_and_read_as_anchors(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Valid stages of a fixed number of clients; the newest of a load counts."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path))
    wider = replace(CLOSED, concurrency=16)
    first = anchors([stage(0.02), stage(0.03, load=wider), stage(0.9, valid=False)])
    assert [point.concurrency for point in first] == [8, 16]
    path = keep(plan, first)
    assert path is not None
    assert keep(plan, anchors([stage(0.025)])) == path
    kept = {point.concurrency: point for point in read_anchors(path)}
    assert kept[8] == AnchorPoint(concurrency=8, input_tokens=1024, output_tokens=256, tpot_s=0.025)
    assert kept[16].tpot_s == 0.03
    assert keep(plan, ()) is None
