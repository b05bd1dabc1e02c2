"""Forecasts against what was measured, and what must come out untold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from heavylift.errors import HeavyliftError
from heavylift.plan.planner import Knowledge
from heavylift.plan.speed import Forecaster, forecaster, speculation
from heavylift.planning import Planning
from heavylift.records.plan import Plan
from heavylift.records.speed import AnchorPoint, Evidence, Speed, SpeedPart, SpeedWorkload

Forecast = Callable[..., Forecaster]


@pytest.fixture
def forecast(
    planning: Planning, make_plan: Callable[..., Plan], knowledge_of: Callable[[str], Knowledge]
) -> Forecast:
    """`forecast("kimi-k3", "8xB300", 8192, 1024, engine="sglang", …)`."""

    def make(
        model: str,
        rack: str,
        prompt: int,
        answer: int,
        anchors: Sequence[AnchorPoint] = (),
        **given: object,
    ) -> Forecaster:
        lengths = {"context_tokens": prompt + answer, "output_tokens": answer}
        plan = make_plan(model, rack, **lengths, **given)
        return forecaster(plan, knowledge_of(model), planning.catalog.speed(), anchors)

    return make


def at(found: Forecaster, clients: int, prompt: int = 1000, answer: int = 1000) -> Speed:
    """The forecast for so many clients."""
    return found.speed(
        SpeedWorkload(concurrency=clients, input_tokens=prompt, output_tokens=answer)
    )


LAYOUTS = {
    "pp2": {"tensor": 8, "pipeline": 2, "expert": 1},
    "tp16": {"tensor": 16, "expert": 1},
    "tep16": {"tensor": 16, "expert": 16},
}


def test_k3_on_two_h200_machines_is_fastest_in_stages_and_slowest_with_experts_spread(
    forecast: Forecast,
) -> None:
    """Single stream: PP2 17.2 ms, TP16 25.2, TEP16 28.2 (mnmehta/kimi-k3, 2026-07-31)."""
    found = {
        name: at(forecast("kimi-k3", "2x8xH200", 1000, 1000, engine="vllm", **sizes), 1).tpot_s
        for name, sizes in LAYOUTS.items()
    }
    assert found["pp2"].low < found["tp16"].low < found["tep16"].low
    assert found["pp2"].high < found["tp16"].high < found["tep16"].high
    assert 0.0172 in found["pp2"]
    assert 0.0252 in found["tp16"]
    assert 0.0282 in found["tep16"]


@pytest.mark.parametrize(
    ("clients", "measured"),
    # humming and marlin kernels, output tokens/s of the whole service (mnmehta/kimi-k3).
    [(256, (2187.4, 3799.1)), (64, (1228.8, 1915.2))],
)
def test_busy_k3_in_two_stages_lies_in_the_band(
    forecast: Forecast, clients: int, measured: tuple[float, float]
) -> None:
    """Both kernels' measured throughput."""
    found = forecast("kimi-k3", "2x8xH200", 1000, 1000, engine="vllm", **LAYOUTS["pp2"])
    speed = at(found, clients)
    assert all(rate in speed.output_tokens_per_s for rate in measured)
    assert speed.binding is SpeedPart.EXPERT_WEIGHTS


def test_a_batch_beyond_the_room_is_refused(forecast: Forecast) -> None:
    """384 of Kimi K2.5 on 8 B200 at 8K in, 1K out: 883 tok/s per GPU were once forecast for it,
    192 measured with 34 sequences really decoding (aiconfigurator issue 1396).
    """
    found = forecast("kimi-k2.5", "8xB200", 8192, 1024, engine="vllm")
    speed = at(found, 384, 8192, 1024)
    assert speed.refusal is not None
    assert (speed.refusal.code, speed.refusal.params["term"]) == ("beyond_room", "kv_cache")
    assert speed.decode_batch <= (speed.room_sequences.high or 0) < 384
    assert speed.binding is SpeedPart.QUEUE
    assert 192.4 in speed.output_tokens_per_s_per_gpu
    assert speed.output_tokens_per_s_per_gpu.high < 883.7


def test_a_limit_the_user_sets_is_named_as_such(forecast: Forecast) -> None:
    """max_num_seqs refuses before the memory does."""
    found = forecast("kimi-k3", "8xB300", 1000, 1000, engine="sglang", max_num_seqs=4)
    refusal = at(found, 8).refusal
    assert refusal is not None
    assert refusal.code == "beyond_max_num_seqs"


@pytest.mark.parametrize(
    ("sizes", "stated", "admitted"),
    [
        ({"tensor": 8, "data": 2, "pipeline": 1}, None, (5, "vllm-h200-tp8dp2")),
        # Its settings come from another layout's recipe; its own says 32.
        (LAYOUTS["pp2"], None, (32, "vllm-h200-tp8pp2-humming-logged")),
        (LAYOUTS["pp2"], 4, (4, "request")),
    ],
)
def test_what_an_engine_admits_is_what_its_own_recipe_says(
    forecast: Forecast, sizes: dict[str, int], stated: int | None, admitted: tuple[int, str]
) -> None:
    """Or the user; never what was set for another layout of the same cards."""
    found = forecast("kimi-k3", "2x8xH200", 1000, 1000, engine="vllm", max_num_seqs=stated, **sizes)
    assert found.admitted == admitted


def test_an_anchor_narrows_an_unseen_class(forecast: Forecast) -> None:
    """MI355X with vLLM: the rows disagree; one point of the service makes the band a third."""
    point = AnchorPoint(concurrency=8, input_tokens=1000, output_tokens=1000, tpot_s=0.0265)
    rack = ("kimi-k3", "8xMI355X", 1000, 1000)
    free = at(forecast(*rack, engine="vllm", tensor=8), 64)
    tied = at(forecast(*rack, (point,), engine="vllm", tensor=8), 64)
    assert (free.basis.evidence, free.basis.reason) == (Evidence.THIN, "rows_disagree")
    assert tied.basis.evidence is Evidence.ANCHORED
    assert tied.tpot_s.width <= 2.0 < free.tpot_s.width
    # Infera, 64 clients: 49 ms.
    assert 0.049 in tied.tpot_s


def test_an_anchor_is_met_where_it_was_taken(forecast: Forecast) -> None:
    """The band at the anchor's own workload holds the anchor."""
    point = AnchorPoint(concurrency=8, input_tokens=1000, output_tokens=1000, tpot_s=0.0265)
    found = forecast("kimi-k3", "8xMI355X", 1000, 1000, (point,), engine="vllm", tensor=8)
    assert 0.0265 in at(found, 8).tpot_s


def test_bands_hold_the_evidence_and_the_parts_add_up(forecast: Forecast) -> None:
    """Rows, sweeps, versions and days of the class; the shares of the parts are the whole."""
    speed = at(forecast("kimi-k3", "8xB300", 1000, 1000, engine="sglang"), 16)
    assert speed.basis.evidence is Evidence.KNOWN
    assert speed.basis.rows >= 3
    assert speed.basis.first <= speed.basis.last
    assert sum(term.share_ratio for term in speed.terms) == pytest.approx(1)
    assert speed.tpot_floor_s < speed.tpot_s.low
    assert speed.distinct_experts == pytest.approx(221, abs=3)
    assert [note.code for note in speed.notes] == ["version_not_measured"]


def test_speculation_is_faster_alone_and_widens_the_band(
    forecast: Forecast, planning: Planning
) -> None:
    """K3 on 8 B300, one stream: 8.5 ms without, 2.84 ms with DSpark (design, speed)."""
    drafted = speculation(planning.catalog.speed(), "kimi-k3", "dspark", 7)
    assert drafted.accepted_tokens == 3.78
    found = forecast("kimi-k3", "8xB300", 1024, 1024, engine="sglang", tensor=8)
    work = SpeedWorkload(concurrency=1, input_tokens=1024, output_tokens=1024)
    plain = found.speed(work)
    fast = found.speed(replace(work, speculation=drafted))
    assert 0.0085 in plain.tpot_s
    assert 0.00284 in fast.tpot_s
    assert fast.tpot_s.high < plain.tpot_s.high
    assert fast.tpot_s.width > plain.tpot_s.width


def test_speculation_on_an_unseen_class_multiplies_both_spreads(
    forecast: Forecast, planning: Planning
) -> None:
    """Neither is known: both ends move out."""
    drafted = speculation(planning.catalog.speed(), "kimi-k3", "dspark", 7)
    found = forecast("kimi-k3", "8xMI350X", 1024, 1024, engine="vllm", tensor=8)
    work = SpeedWorkload(concurrency=1, input_tokens=1024, output_tokens=1024)
    free = found.basis_of(work)
    assert free.evidence is Evidence.UNSEEN
    both = found.basis_of(replace(work, speculation=drafted))
    assert both.low_ratio < free.low_ratio
    assert both.high_ratio > free.high_ratio


@pytest.mark.parametrize(("method", "drafted"), [("eagle9", 3), ("dspark", 9)])
def test_an_acceptance_nobody_measured_is_not_guessed(
    planning: Planning, method: str, drafted: int
) -> None:
    """PLAN075 lists what was measured."""
    with pytest.raises(HeavyliftError) as caught:
        speculation(planning.catalog.speed(), "kimi-k3", method, drafted)
    assert caught.value.code == "PLAN075"
    assert "dspark:7" in str(caught.value.params["known"])


def test_a_workload_longer_than_planned_is_held_by_its_tokens(forecast: Forecast) -> None:
    """Seats follow the asked length, not the planned one."""
    found = forecast("kimi-k3", "8xB300", 1000, 1000, engine="sglang", kv_cache_dtype="fp8")
    short = found.seats(SpeedWorkload(concurrency=1, input_tokens=1000, output_tokens=1000))
    long = found.seats(SpeedWorkload(concurrency=1, input_tokens=200_000, output_tokens=1000))
    assert 1 <= long < short


def test_nothing_fits_means_no_speed(forecast: Forecast) -> None:
    """PLAN073: not one sequence."""
    found = forecast("kimi-k3", "8xH100", 1000, 1000, engine="vllm", tensor=8)
    with pytest.raises(HeavyliftError) as caught:
        at(found, 1)
    assert caught.value.code == "PLAN073"


@pytest.mark.parametrize(
    "wrong",
    [{"concurrency": 0}, {"input_tokens": -1}, {"output_tokens": 0}, {"cached_ratio": 1.5}],
)
def test_a_workload_out_of_range_is_refused(forecast: Forecast, wrong: dict[str, float]) -> None:
    """PLAN074, whoever asks."""
    work = SpeedWorkload(concurrency=1, input_tokens=1, output_tokens=1)
    found = forecast("kimi-k3", "8xB300", 1000, 1000, engine="sglang")
    with pytest.raises(HeavyliftError) as caught:
        found.speed(replace(work, **wrong))  # type: ignore[arg-type] # one field of several types
    assert caught.value.code == "PLAN074"
