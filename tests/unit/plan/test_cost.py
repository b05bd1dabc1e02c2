"""The decision: verdicts, break-even, and what flips it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from heavylift.errors import HeavyliftError
from heavylift.plan.cost import Comparison, Wanted
from heavylift.plan.money import OwnPrices
from heavylift.plan.planner import Knowledge
from heavylift.plan.speed import forecaster
from heavylift.planning import Planning
from heavylift.records.decision import Decision, DecisionVerdict, Tenure
from heavylift.records.plan import Plan
from heavylift.records.speed import Band, SpeedWorkload

TODAY = date(2026, 11, 30)
Compare = Callable[..., Comparison]


@pytest.fixture
def compare(
    planning: Planning, make_plan: Callable[..., Plan], knowledge_of: Callable[[str], Knowledge]
) -> Compare:
    """K3 on 8 B300 for 8,192 in and 1,024 out, unless said otherwise."""

    def make(
        rack: str = "8xB300",
        engine: str = "sglang",
        own: OwnPrices | None = None,
        cached: float = 0.0,
        tpot_limit_s: float = 0.05,
        **wanted: Any,
    ) -> Comparison:
        plan = make_plan("kimi-k3", rack, engine=engine, context_tokens=9216, tensor=8)
        work = SpeedWorkload(
            concurrency=1, input_tokens=8192, output_tokens=1024, cached_ratio=cached
        )
        return Comparison(
            forecaster(plan, knowledge_of("kimi-k3"), planning.catalog.speed()),
            planning.catalog.prices(),
            Wanted(workload=work, tpot_limit_s=tpot_limit_s, day=TODAY, **wanted),
            own or OwnPrices(),
        )

    return make


def clients_of(decision: Decision) -> Band:
    """Clients at the point of the forecast."""
    assert decision.point_concurrency is not None
    return decision.point_concurrency


def test_without_a_volume_the_verdict_hangs_on_it(compare: Compare) -> None:
    """Only the break-even is said."""
    found = compare().decision()
    assert found.verdict is DecisionVerdict.DEPENDS
    assert found.api_usd_per_day is None
    assert all(option.usd_per_day is None for option in found.options)
    assert found.flips == ()


@pytest.mark.parametrize(
    ("per_day", "verdict"),
    [(1e5, DecisionVerdict.API), (3e8, DecisionVerdict.OWN)],
)
def test_little_traffic_is_for_the_api_and_much_for_own_gpus(
    compare: Compare, per_day: float, verdict: DecisionVerdict
) -> None:
    """A machine costs the same when it is idle."""
    assert compare(output_tokens_per_day=per_day).decision().verdict is verdict


def test_bands_that_overlap_are_not_decided(compare: Compare) -> None:
    """Between the two there is a volume that hangs on the speed."""
    verdicts = {
        compare(output_tokens_per_day=volume).decision().verdict
        for volume in (1.2e7, 1.5e7, 2e7, 3e7, 5e7)
    }
    assert DecisionVerdict.DEPENDS in verdicts


def test_data_that_must_stay_decides_by_itself(compare: Compare) -> None:
    """The provider is priced all the same."""
    found = compare(output_tokens_per_day=1e5, in_house=True).decision()
    assert found.verdict is DecisionVerdict.OWN_BY_RULE
    assert found.api_usd_per_day is not None


def test_a_card_without_a_public_price_is_asked_for(compare: Compare) -> None:
    """MI355X: PLAN080; with the user's rent it is priced, and the rest stays named as unknown."""
    with pytest.raises(HeavyliftError) as caught:
        compare("8xMI355X", "vllm").decision()
    assert caught.value.code == "PLAN080"
    stated = OwnPrices(usd_per_gpu_hour=3.0)
    found = compare("8xMI355X", "vllm", own=stated, tpot_limit_s=0.2).decision()
    assert [option.tenure for option in found.options] == [Tenure.RENTED]
    assert [note.code for note in found.not_priced] == ["bought_unknown"]


def test_cost_is_read_at_the_busiest_point_within_the_limits(compare: Compare) -> None:
    """A tighter limit holds fewer clients, and a token costs more."""
    loose, tight = compare().decision(), compare(tpot_limit_s=0.02).decision()
    assert clients_of(tight).high < clients_of(loose).high
    pairs = zip(tight.options, loose.options, strict=True)
    assert all(a.usd_per_million_output.low > b.usd_per_million_output.low for a, b in pairs)


def test_a_limit_on_the_first_token_binds_too(compare: Compare) -> None:
    """An hour binds nothing; half a second holds fewer clients."""
    free = compare(ttft_limit_s=3600.0).decision()
    bound = compare(ttft_limit_s=0.5).decision()
    assert clients_of(bound).high < clients_of(free).high


def test_clients_stated_cap_the_point(compare: Compare) -> None:
    """Three clients are three clients."""
    assert clients_of(compare(clients_most=3).decision()).high == 3


def test_a_limit_out_of_reach_is_an_error(compare: Compare) -> None:
    """PLAN084: not even one client."""
    with pytest.raises(HeavyliftError) as caught:
        compare(tpot_limit_s=0.001).decision()
    assert caught.value.code == "PLAN084"


def test_a_limit_that_only_the_fast_end_meets_makes_the_band_wide(compare: Compare) -> None:
    """At the slow end one client at a time is what is left."""
    found = compare(tpot_limit_s=0.008).decision()
    assert clients_of(found).low == 1
    assert found.point_output_tokens_per_s.low < found.point_output_tokens_per_s.high


def test_the_break_even_is_full_use_times_price(compare: Compare) -> None:
    """Its low end: the cheapest rent at the fastest speed, staff included."""
    found = compare().decision()
    rented = next(o for o in found.options if o.tenure is Tenure.RENTED)
    per_hour = rented.usd_per_hour.low + rented.staff_usd_per_hour
    tokens = found.point_output_tokens_per_s.high * 3600
    revenue = tokens * found.api_usd_per_million_output / 1e6
    assert rented.break_even_ratio.low == pytest.approx(per_hour / revenue)
    assert rented.most_used_ratio == pytest.approx(1 / 2.5)


def test_the_flip_makes_the_costs_equal(compare: Compare) -> None:
    """Planned again at the volume where it flips, own and provider cost about the same."""
    question = compare(output_tokens_per_day=2e7)
    found = question.decision()
    assert found.decisive is not None
    assert found.decisive.in_range
    volume = next(flip for flip in found.flips if flip.input == "volume")
    wanted = replace(question.wanted, output_tokens_per_day=volume.flips_at)
    at = replace(question, wanted=wanted).decision()
    cheapest = min(
        (o.usd_per_day for o in at.options if o.usd_per_day is not None),
        key=lambda band: band.low,
    )
    assert at.api_usd_per_day is not None
    assert cheapest.low * 0.9 <= at.api_usd_per_day <= cheapest.high * 1.1


def test_no_flip_far_from_break_even_is_called_in_range(compare: Compare) -> None:
    """A hundred thousand tokens a day: nothing known makes own GPUs cheaper."""
    found = compare(output_tokens_per_day=1e5).decision()
    assert found.decisive is None


def test_the_users_own_price_is_compared_with(compare: Compare, planning: Planning) -> None:
    """From a file, marked as stated; the model's public prices are shown beside it."""
    public = compare().decision()
    stated = replace(public.price, provider="stated", output_usd=1.0)
    found = compare(own=OwnPrices(api=stated)).decision()
    assert found.price.provider == "stated"
    assert found.api_usd_per_million_output < public.api_usd_per_million_output
    assert len(found.other_prices) == len(planning_prices(planning))


def planning_prices(planning: Planning) -> list[object]:
    """All public offers of K3."""
    return [entry for entry in planning.catalog.prices().api if entry.model == "kimi-k3"]


def test_what_money_does_not_say_is_listed(compare: Compare) -> None:
    """Named, not priced."""
    codes = {note.code for note in compare().decision().beside_money}
    assert {"data_governance", "model_pinning", "on_call"} <= codes


def test_a_limit_between_the_ends_still_finds_what_flips(compare: Compare) -> None:
    """At the middle of the band the limit is out of reach; the slow end's rate stands in."""
    found = compare(tpot_limit_s=0.008, output_tokens_per_day=2e7).decision()
    assert found.verdict is DecisionVerdict.API
    assert "own_usd_per_hour" in {flip.input for flip in found.flips}
