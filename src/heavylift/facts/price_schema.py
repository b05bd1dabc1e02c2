"""Shapes of the facts about money: providers' prices, rents, machines, assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from heavylift.facts.schema import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceStep:
    """Prices of a million tokens from a day on; no `start` = from the beginning."""

    input: float
    output: float
    cached_input: float | None = None
    start: date | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiPriceFacts(Rule):
    """What a provider asks for a million tokens of a model.

    `model` is our id, `name` the provider's. `tier` tells offers of one model apart (`batch`,
    `fast`, `us`). No `cached_input` = cached tokens cost as much as others. `steps` are earlier
    prices and the current one, oldest first; without them the price is the only one known.
    """

    provider: str
    model: str
    name: str
    currency: str
    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    tier: str = ""
    steps: tuple[PriceStep, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiPriceBook:
    """All prices of providers."""

    prices: tuple[ApiPriceFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RentalFacts(Rule):
    """Rent of one GPU for an hour. No amount = looked for and not found in public."""

    gpu: str
    provider: str
    term: str
    usd_per_gpu_hour: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RentalBook:
    """All rents."""

    rentals: tuple[RentalFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MachinePriceFacts(Rule):
    """What a machine of `gpus` cards costs to buy, USD."""

    gpu: str
    item: str
    gpus: int
    usd_low: float
    usd_high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MachinePowerFacts(Rule):
    """What a machine of `gpus` cards draws at most, kW."""

    gpu: str
    item: str
    gpus: int
    kw_max: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineBook:
    """Machines: prices and power."""

    machines: tuple[MachinePriceFacts, ...]
    power: tuple[MachinePowerFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AssumptionFacts(Rule):
    """A number that stands between a price tag and a cost, with the range it may lie in."""

    id: str
    unit: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AssumptionBook:
    """All assumptions about cost."""

    assumptions: tuple[AssumptionFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceFacts:
    """All facts about money."""

    api: tuple[ApiPriceFacts, ...]
    rentals: tuple[RentalFacts, ...]
    machines: tuple[MachinePriceFacts, ...]
    power: tuple[MachinePowerFacts, ...]
    assumptions: tuple[AssumptionFacts, ...]
