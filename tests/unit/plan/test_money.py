"""Prices by day, costs per hour, and the break-even figures from published inputs."""

from __future__ import annotations

from datetime import date

import pytest

from heavylift.errors import HeavyliftError
from heavylift.facts.price_schema import ApiPriceFacts, PriceFacts
from heavylift.facts.schema import FactKind
from heavylift.plan.money import (
    OwnPrices,
    assumptions,
    bought_machine,
    bought_parts,
    break_even_ratio,
    find_price,
    price_on,
    prices_of,
    rent_parts,
    staff_usd_per_hour,
    usd_per_output_token,
)
from heavylift.planning import Planning

TODAY = date(2026, 11, 30)
NOTHING = OwnPrices()

# Kimi K3 on 8 B300, SGLang 0.5.18, DSpark, 64 clients, 8,192 in and 1,024 out (sglang pull request
# 37878), rented at 8 × 7.40 USD.
B300_TOKENS_PER_S = 1766
B300_USD_PER_HOUR = 8 * 7.40
B300_INPUT_PER_OUTPUT = 8
# 16 H200, PP2 with humming, 256 clients, 1,000 in and 1,000 out (mnmehta/kimi-k3), at 3.99 USD.
H200_TOKENS_PER_S = 3799
H200_USD_PER_HOUR = 16 * 3.99


@pytest.fixture(scope="module")
def prices(planning: Planning) -> PriceFacts:
    """The shipped prices."""
    return planning.catalog.prices()


@pytest.mark.parametrize(
    ("wanted", "cached", "percent"),
    [
        ("moonshotai/kimi-k3", 0.0, 24),
        ("moonshotai/kimi-k3", 0.5, 33),
        ("moonshotai/kimi-k3", 0.9, 48),
        ("moonshotai/kimi-k3.1-pro", 0.0, 36),
        ("moonshotai/kimi-k3.1-pro", 0.5, 50),
        ("moonshotai/kimi-k3.1-pro", 0.9, 71),
        ("openrouter/moonshotai/kimi-k3:batch", 0.0, 70),
        ("openrouter/moonshotai/kimi-k3:batch", 0.5, 88),
        ("openrouter/moonshotai/kimi-k3:batch", 0.9, 111),
    ],
)
def test_rented_b300_break_even_by_price_list(
    prices: PriceFacts, wanted: str, cached: float, percent: int
) -> None:
    """The part of full load from which 8 rented B300 are cheaper (design, money)."""
    price = find_price(prices, "kimi-k3", wanted, TODAY, 6.7)
    each = usd_per_output_token(price, B300_INPUT_PER_OUTPUT, cached)
    ratio = break_even_ratio(B300_USD_PER_HOUR, B300_TOKENS_PER_S, each)
    assert round(100 * ratio) == percent


@pytest.mark.parametrize(
    ("wanted", "cached", "percent"),
    [
        ("moonshotai/kimi-k3", 0.0, 26),
        ("moonshotai/kimi-k3", 0.9, 30),
        ("openrouter/moonshotai/kimi-k3:batch", 0.0, 67),
        ("openrouter/moonshotai/kimi-k3:batch", 0.9, 74),
    ],
)
def test_rented_h200_break_even_by_price_list(
    prices: PriceFacts, wanted: str, cached: float, percent: int
) -> None:
    """16 H200 at their busiest measured point."""
    price = find_price(prices, "kimi-k3", wanted, TODAY, 6.7)
    each = usd_per_output_token(price, 1.0, cached)
    ratio = break_even_ratio(H200_USD_PER_HOUR, H200_TOKENS_PER_S, each)
    assert 100 * ratio == pytest.approx(percent, abs=0.8)


@pytest.mark.parametrize(("cached", "percent"), [(0.0, 11), (0.9, 22)])
def test_a_bought_b300_machine_breaks_even_earlier(
    prices: PriceFacts, cached: float, percent: int
) -> None:
    """About 27 USD an hour: a machine of 525,000 USD, power, and half a person."""
    assumed = {name: entry.value for name, entry in assumptions(prices, NOTHING).items()}
    machine = bought_machine(prices, NOTHING, "b300", 8)
    assert machine is not None
    middle = (machine.usd_low + machine.usd_high) / 2
    parts = bought_parts(machine, middle, 8, assumed)
    per_hour = sum(part.usd_per_hour for part in parts) + staff_usd_per_hour(assumed)
    assert per_hour == pytest.approx(27, abs=0.5)
    price = find_price(prices, "kimi-k3", "moonshotai", TODAY, 6.7)
    each = usd_per_output_token(price, B300_INPUT_PER_OUTPUT, cached)
    assert round(100 * break_even_ratio(per_hour, B300_TOKENS_PER_S, each)) == percent


@pytest.mark.parametrize(
    ("day", "usd"),
    [
        (date(2026, 10, 18), (3.0, 0.3, 15.0)),
        (date(2026, 10, 19), (0.239, 0.21, 11.936)),
        (date(2026, 11, 2), (0.239, 0.21, 11.936)),
        (date(2026, 11, 3), (3.0, 0.3, 15.0)),
    ],
)
def test_a_price_is_that_of_the_day(
    prices: PriceFacts, day: date, usd: tuple[float, float, float]
) -> None:
    """A route that was cheap for two weeks (genai-prices 0.2.3)."""
    price = find_price(prices, "kimi-k3", "openrouter/moonshotai/kimi-k3", day, 6.7)
    assert (price.input_usd, price.cached_input_usd, price.output_usd) == usd


def test_prices_in_yuan_are_turned_into_dollars(prices: PriceFacts) -> None:
    """20, 2 and 100 CNY at 6.7."""
    price = find_price(prices, "kimi-k3", "moonshot.cn", TODAY, 6.7)
    assert price.output_usd == pytest.approx(100 / 6.7)


def test_without_a_cache_price_cached_tokens_cost_the_same(prices: PriceFacts) -> None:
    """Together's gpt-oss-120b states none."""
    price = find_price(prices, "gpt-oss-120b", "together", TODAY, 6.7)
    assert price.cached_input_usd == price.input_usd


def test_another_currency_needs_a_rate() -> None:
    """PLAN083: no rate is invented."""
    facts = ApiPriceFacts(
        kind=FactKind.REPORTED,
        source="x",
        as_of=TODAY,
        provider="p",
        model="m",
        name="m",
        currency="EUR",
        input=1.0,
        output=1.0,
    )
    with pytest.raises(HeavyliftError) as caught:
        price_on(facts, TODAY, 6.7)
    assert caught.value.code == "PLAN083"


def test_a_price_nobody_asks_is_not_found(prices: PriceFacts) -> None:
    """PLAN081 lists who offers the model."""
    with pytest.raises(HeavyliftError) as caught:
        find_price(prices, "kimi-k3", "nobody", TODAY, 6.7)
    assert caught.value.code == "PLAN081"
    assert "moonshotai" in str(caught.value.params["offered"])


def test_all_prices_of_a_model_are_listed(prices: PriceFacts) -> None:
    """The maker's list price first."""
    found = prices_of(prices, "kimi-k3", TODAY, 6.7)
    assert found[0].provider == "moonshotai"
    assert len(found) > 10


@pytest.mark.parametrize("gpu", ["mi355x", "gb300"])
def test_a_rent_that_is_not_public_is_unknown(prices: PriceFacts, gpu: str) -> None:
    """Looked for, not found, never invented."""
    assert rent_parts(prices, NOTHING, gpu, 8, 0.0) == ()
    assert any(entry.gpu == gpu for entry in prices.rentals)


def test_every_card_with_public_rents_has_a_range(prices: PriceFacts) -> None:
    """Also where one provider asks the same for two offers."""
    cards = {entry.gpu for entry in prices.rentals if entry.usd_per_gpu_hour is not None}
    for gpu in cards:
        parts = rent_parts(prices, OwnPrices(), gpu, 8, 0.0)
        assert [part.usd_per_hour for part in parts] == sorted(part.usd_per_hour for part in parts)


def test_the_users_rent_wins(prices: PriceFacts) -> None:
    """Stated prices replace public ones; the cloud's extra comes on top."""
    (part,) = rent_parts(prices, OwnPrices(usd_per_gpu_hour=3.0), "b300", 8, 0.5)
    assert (part.usd_per_hour, part.kind) == (36.0, "stated")


def test_public_rents_are_the_cheapest_and_the_dearest(prices: PriceFacts) -> None:
    """B300 on demand: 6.00 to 7.89 USD, without spot and reserved ones."""
    ends = [part.usd_per_hour / 8 for part in rent_parts(prices, NOTHING, "b300", 8, 0.0)]
    assert ends == [6.00, 7.89]


def test_a_machine_needs_a_price_and_a_draw(prices: PriceFacts) -> None:
    """MI355X: the draw is known, the price is not; H200: the other way round."""
    assert bought_machine(prices, NOTHING, "mi355x", 8) is None
    assert bought_machine(prices, NOTHING, "h200", 8) is None
    found = bought_machine(prices, OwnPrices(usd_per_machine=4e5), "mi355x", 8)
    assert found is not None
    assert (found.usd_low, found.kw_max) == (4e5, 14.5)
    stated = OwnPrices(kw_per_machine=9.0)
    with_power = bought_machine(prices, stated, "h200", 8)
    assert with_power is not None
    assert with_power.power_origin[0] == "stated"


def test_where_sources_differ_the_dearer_machine_is_taken(prices: PriceFacts) -> None:
    """300 to 350 thousand in one, 450 to 600 in the other."""
    found = bought_machine(prices, NOTHING, "b300", 8)
    assert found is not None
    assert (found.usd_low, found.usd_high) == (450_000, 600_000)


def test_assumptions_can_be_changed_and_only_those_that_exist(prices: PriceFacts) -> None:
    """The user's value, marked as theirs; PLAN082 for a misspelt one."""
    found = assumptions(prices, OwnPrices(assumptions={"pue": 1.1}))
    assert (found["pue"].value, found["pue"].kind, found["pue"].stated) == (1.1, "stated", True)
    assert not found["staff_fte"].stated
    with pytest.raises(HeavyliftError) as caught:
        assumptions(prices, OwnPrices(assumptions={"peu": 1.1}))
    assert caught.value.code == "PLAN082"


def test_a_model_nobody_sells_needs_the_users_price(prices: PriceFacts) -> None:
    """PLAN087, unless another model's price is named."""
    with pytest.raises(HeavyliftError) as caught:
        find_price(prices, "llama-3.1-8b", None, TODAY, 6.7)
    assert caught.value.code == "PLAN087"
    assert find_price(prices, "llama-3.1-8b", "groq/openai/gpt-oss-120b", TODAY, 6.7).output_usd
