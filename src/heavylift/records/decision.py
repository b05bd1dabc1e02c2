"""API or own GPUs: what each costs for a workload, and what would change the verdict.

Money is USD. An hour is an hour of the whole service.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from heavylift.records.plan import Layout, Note, Rack
from heavylift.records.speed import Band, SpeedBasis, SpeedWorkload

SCHEMA: Final = 1


class DecisionVerdict(StrEnum):
    """Which is cheaper. `depends`: one end of the band says one, the other the other; or no volume
    was stated, and it hangs on that. `own_by_rule`: the data may not leave the house.
    """

    API = "api"
    OWN = "own"
    DEPENDS = "depends"
    OWN_BY_RULE = "own_by_rule"


class Tenure(StrEnum):
    """How one comes by GPUs."""

    RENTED = "rented"
    BOUGHT = "bought"


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenPrice:
    """Prices of a million tokens on the day of the question, USD, and where they are from."""

    provider: str
    name: str
    tier: str
    input_usd: float
    cached_input_usd: float
    output_usd: float
    kind: str
    source: str
    as_of: str
    since: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """A number that stands between a price tag and a cost. `stated` = by the user."""

    id: str
    unit: str
    value: float
    low: float
    high: float
    kind: str
    source: str
    stated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CostPart:
    """One part of what a machine or a GPU costs per hour, with its source."""

    id: str
    usd_per_hour: float
    formula: str
    kind: str
    source: str
    as_of: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnOption:
    """One way of having the GPUs.

    `usd_per_hour` is one unit (the rack asked about): the cheapest and the dearest source.
    `staff_usd_per_hour` comes once for the service. `usd_per_million_output` is read at full use
    of a unit within the limits; `break_even_ratio` is the part of a unit's full use from which it
    is cheaper than the API, `most_used_ratio` the part that can be used at most when the busiest
    hour must fit. With a volume: `units` needed for the busiest hour, `usd_per_day` of all, and
    `utilisation_ratio` of them.
    """

    tenure: Tenure
    parts: tuple[CostPart, ...]
    usd_per_hour: Band
    staff_usd_per_hour: float
    usd_per_million_output: Band
    break_even_ratio: Band
    most_used_ratio: float
    break_even_output_tokens_per_day: Band
    units: tuple[int, int] | None
    usd_per_day: Band | None
    utilisation_ratio: Band | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Flip:
    """An input that turns the verdict: its value now, and the one at which the costs are equal.

    `in_range` = that value lies within what is known or assumed of the input.
    """

    input: str
    now: float
    flips_at: float
    in_range: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedPoint:
    """What one rack of a simulated fleet serves within its objectives, `slo`.

    Rates are of one of its `racks`; `traffic` is what came.
    """

    slo: str
    traffic: str
    racks: int
    requests_per_s: Band
    output_tokens_per_s: Band


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The whole answer. `output_tokens_per_day` None: no volume was stated.

    `point_*` is the service at the SLO point: the busiest it may be within the limit. Where that
    was simulated, `simulated` says how, and limits, clients and first tokens are None.
    """

    model: str
    title: str
    checkpoint_bytes: int
    engine: str
    engine_title: str
    engine_version: str
    rack: Rack
    layout: Layout
    workload: SpeedWorkload
    tpot_limit_s: float | None
    ttft_limit_s: float | None
    output_tokens_per_day: float | None
    in_house: bool
    point_concurrency: Band | None
    point_output_tokens_per_s: Band
    point_ttft_s: Band | None
    price: TokenPrice
    other_prices: tuple[TokenPrice, ...]
    api_usd_per_million_output: float
    api_usd_per_day: float | None
    options: tuple[OwnOption, ...]
    not_priced: tuple[Note, ...]
    assumptions: tuple[Assumption, ...]
    verdict: DecisionVerdict
    decisive: Flip | None
    flips: tuple[Flip, ...]
    beside_money: tuple[Note, ...]
    basis: SpeedBasis
    simulated: SimulatedPoint | None = None
    schema: int = SCHEMA
