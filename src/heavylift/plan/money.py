"""Prices and costs per hour: the dated price, the rent, the bought machine, the assumptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.price_schema import ApiPriceFacts, PriceFacts, PriceStep
from heavylift.records.decision import Assumption, CostPart, TokenPrice

HOURS_PER_YEAR: Final = 8766
ON_DEMAND: Final = "on-demand"
STATED: Final = "stated"
MILLION: Final = 1e6
_USD: Final = "USD"
_DIVISORS: Final = frozenset({"amortisation_years", "usd_to_cny", "peak_factor"})
"""Assumptions that something is divided by, so that they cannot be 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnPrices:
    """What the user states. None = not stated; USD, kW; `assumptions` by id."""

    api: TokenPrice | None = None
    usd_per_gpu_hour: float | None = None
    usd_per_machine: float | None = None
    kw_per_machine: float | None = None
    assumptions: Mapping[str, float] = field(default_factory=dict)


def assumptions(facts: PriceFacts, own: OwnPrices) -> dict[str, Assumption]:
    """All assumptions by id, the user's values in place of ours.

    Raises PLAN082 for a stated one that does not exist, PLAN088 for a value it cannot have.
    """
    known = {entry.id: entry for entry in facts.assumptions}
    for name, value in own.assumptions.items():
        if name not in known:
            raise HeavyliftError("PLAN082", {"name": name, "known": ", ".join(sorted(known))})
        if not 0 <= value < math.inf or (value == 0 and name in _DIVISORS):
            low, high = known[name].low, known[name].high
            told = {"name": name, "value": f"{value:g}", "low": f"{low:g}", "high": f"{high:g}"}
            raise HeavyliftError("PLAN088", told)
    return {
        entry.id: Assumption(
            id=entry.id,
            unit=entry.unit,
            value=own.assumptions.get(entry.id, entry.value),
            low=entry.low,
            high=entry.high,
            kind=STATED if entry.id in own.assumptions else entry.kind.value,
            source=STATED if entry.id in own.assumptions else entry.source,
            stated=entry.id in own.assumptions,
        )
        for entry in facts.assumptions
    }


def price_on(facts: ApiPriceFacts, day: date, usd_to_cny: float) -> TokenPrice:
    """A provider's price on a day, in USD: the last step that had begun.

    Raises PLAN083 for a currency there is no rate for.
    """
    if facts.currency not in (_USD, "CNY"):
        raise HeavyliftError("PLAN083", {"currency": facts.currency})
    rate = 1.0 if facts.currency == _USD else 1 / usd_to_cny
    begun = [step for step in facts.steps if step.start is None or step.start <= day]
    step = (
        begun[-1]
        if begun
        else PriceStep(input=facts.input, output=facts.output, cached_input=facts.cached_input)
    )
    cached = step.input if step.cached_input is None else step.cached_input
    return TokenPrice(
        provider=facts.provider,
        name=facts.name,
        tier=facts.tier,
        input_usd=step.input * rate,
        cached_input_usd=cached * rate,
        output_usd=step.output * rate,
        kind=facts.kind.value,
        source=facts.source,
        as_of=facts.as_of.isoformat(),
        since="" if step.start is None else step.start.isoformat(),
    )


def dated_later(price: TokenPrice, day: date) -> bool:
    """True when no price is known to have begun by `day`, and this one is dated after it."""
    return not price.since and price.as_of > day.isoformat()


def prices_of(
    facts: PriceFacts, model: str, day: date, usd_to_cny: float
) -> tuple[TokenPrice, ...]:
    """All prices known for a model on a day, the maker's list price first as the facts have it."""
    return tuple(price_on(entry, day, usd_to_cny) for entry in facts.api if entry.model == model)


def find_price(
    facts: PriceFacts, model: str, wanted: str | None, day: date, usd_to_cny: float
) -> TokenPrice:
    """The price to compare with: `PROVIDER`, `PROVIDER/NAME`, or the first known of the model.

    A name may be another model's: what replaces it need not be the same. Raises PLAN081 when there
    is no such price, PLAN087 when there is none of the model at all.
    """
    provider, _, name = (wanted or "").partition("/")
    for entry in facts.api:
        fits = entry.name == name if name else entry.model == model
        if fits and provider in ("", entry.provider):
            return price_on(entry, day, usd_to_cny)
    offered = sorted({entry.provider for entry in facts.api if entry.model == model})
    if not offered:
        raise HeavyliftError("PLAN087", {"model": model})
    raise HeavyliftError(
        "PLAN081", {"model": model, "wanted": wanted or "", "offered": ", ".join(offered)}
    )


def usd_per_output_token(price: TokenPrice, input_per_output: float, cached_ratio: float) -> float:
    """USD of an output token with the prompt that leads to it.

    Formula: output + input per output × ((1 − cached) × input + cached × cached input), per 10^6
    """
    prompt = (1 - cached_ratio) * price.input_usd + cached_ratio * price.cached_input_usd
    return (price.output_usd + input_per_output * prompt) / MILLION


def break_even_ratio(
    usd_per_hour: float, output_tokens_per_s: float, usd_per_output: float
) -> float:
    """The part of its full use from which a service of one's own is cheaper than the provider.

    Formula: USD per hour / (output tokens per hour × USD per output token)
    """
    return usd_per_hour / (output_tokens_per_s * 3600 * usd_per_output)


def rent_parts(
    facts: PriceFacts, own: OwnPrices, gpu: str, gpus: int, extra_ratio: float
) -> tuple[CostPart, ...]:
    """The cheapest and the dearest rent on demand, or the stated one; empty when none is known."""
    if own.usd_per_gpu_hour is not None:
        return (_rent(own.usd_per_gpu_hour, gpus, extra_ratio, (STATED, STATED, "")),)
    known = [
        (entry.usd_per_gpu_hour, entry)
        for entry in facts.rentals
        if entry.gpu == gpu and entry.term == ON_DEMAND and entry.usd_per_gpu_hour is not None
    ]
    if not known:
        return ()
    # One provider may ask the same for two offers: only price and provider put them in order.
    found = sorted(known, key=lambda offer: (offer[0], offer[1].provider))
    return tuple(
        _rent(amount, gpus, extra_ratio, (entry.kind.value, entry.source, entry.as_of.isoformat()))
        for amount, entry in (found[0], found[-1])
    )


def _rent(
    usd_per_gpu_hour: float, gpus: int, extra_ratio: float, origin: tuple[str, str, str]
) -> CostPart:
    extra = f" × {1 + extra_ratio:g}" if extra_ratio else ""
    return CostPart(
        id="rent",
        usd_per_hour=usd_per_gpu_hour * gpus * (1 + extra_ratio),
        formula=f"{gpus} × {usd_per_gpu_hour:g} USD{extra}",
        kind=origin[0],
        source=origin[1],
        as_of=origin[2],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class BoughtMachine:
    """A machine of `gpus` cards: its price and its greatest draw, with their origins."""

    gpus: int
    usd_low: float
    usd_high: float
    kw_max: float
    price_origin: tuple[str, str, str]
    power_origin: tuple[str, str, str]


def bought_machine(
    facts: PriceFacts, own: OwnPrices, gpu: str, per_machine: int
) -> BoughtMachine | None:
    """The dearest machine known with the card, or the stated one; None when price or power lacks.

    The dearest is the careful side where sources differ.
    """
    known = [entry for entry in facts.machines if entry.gpu == gpu]
    drawn = [entry for entry in facts.power if entry.gpu == gpu]
    stated = (STATED, STATED, "")
    if own.kw_per_machine is not None:
        kw, power_origin = own.kw_per_machine, stated
    elif drawn:
        kw = drawn[0].kw_max
        power_origin = (drawn[0].kind.value, drawn[0].source, drawn[0].as_of.isoformat())
    else:
        return None
    if own.usd_per_machine is not None:
        return BoughtMachine(
            gpus=per_machine,
            usd_low=own.usd_per_machine,
            usd_high=own.usd_per_machine,
            kw_max=kw,
            price_origin=stated,
            power_origin=power_origin,
        )
    if not known:
        return None
    dearest = max(known, key=lambda entry: entry.usd_high)
    return BoughtMachine(
        gpus=dearest.gpus,
        usd_low=dearest.usd_low,
        usd_high=dearest.usd_high,
        kw_max=kw,
        price_origin=(dearest.kind.value, dearest.source, dearest.as_of.isoformat()),
        power_origin=power_origin,
    )


def bought_parts(
    machine: BoughtMachine, usd: float, gpus: int, assumed: Mapping[str, float]
) -> tuple[CostPart, ...]:
    """Wear and power per hour of `gpus` cards in bought machines.

    Formula: wear = price × (1 + network) × (1 − residual) / (years × 8766 h);
    power = kW × draw × PUE × USD per kWh
    """
    machines = gpus / machine.gpus
    years = assumed["amortisation_years"]
    price = usd * (1 + assumed["network_ratio"]) * machines
    wear = price * (1 - assumed["residual_ratio"]) / (years * HOURS_PER_YEAR)
    kw = machine.kw_max * machines
    power = kw * assumed["draw_ratio"] * assumed["pue"] * assumed["usd_per_kwh"]
    return (
        CostPart(
            id="wear",
            usd_per_hour=wear,
            formula=f"{price:,.0f} USD × (1 − {assumed['residual_ratio']:.0%})"
            f" / ({years:g} × {HOURS_PER_YEAR:,} h)",
            kind=machine.price_origin[0],
            source=machine.price_origin[1],
            as_of=machine.price_origin[2],
        ),
        CostPart(
            id="power",
            usd_per_hour=power,
            formula=f"{kw:g} kW × {assumed['draw_ratio']:g} × PUE {assumed['pue']:g}"
            f" × {assumed['usd_per_kwh']:g} USD",
            kind=machine.power_origin[0],
            source=machine.power_origin[1],
            as_of=machine.power_origin[2],
        ),
    )


def staff_usd_per_hour(assumed: Mapping[str, float]) -> float:
    """USD per hour of the people who keep one service running."""
    return assumed["staff_fte"] * assumed["staff_usd_per_year"] / HOURS_PER_YEAR
