"""API or own GPUs: costs at the SLO point, the use from which own is cheaper, and what flips it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Final

from heavylift.errors import HeavyliftError
from heavylift.facts.price_schema import PriceFacts
from heavylift.plan.calibration import spread_of
from heavylift.plan.money import (
    MILLION,
    BoughtMachine,
    OwnPrices,
    assumptions,
    bought_machine,
    bought_parts,
    break_even_ratio,
    find_price,
    prices_of,
    rent_parts,
    staff_usd_per_hour,
    usd_per_output_token,
)
from heavylift.plan.service import Service
from heavylift.plan.speed import Forecaster
from heavylift.records.decision import (
    Assumption,
    CostPart,
    Decision,
    DecisionVerdict,
    Flip,
    OwnOption,
    SimulatedPoint,
    Tenure,
    TokenPrice,
)
from heavylift.records.plan import Note
from heavylift.records.speed import Band, SpeedBasis, SpeedWorkload

SECONDS_PER_DAY: Final = 86_400

_HALVINGS: Final = 40
_WIDEST: Final = 50.0
_BESIDE_MONEY: Final = (
    "data_governance",
    "model_pinning",
    "latency_control",
    "supply",
    "on_call",
    "way_back",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is asked beside the rack: limits in seconds, volume, where data may go, which price.

    `clients_most` caps the SLO point; None = as many as the limits allow. `api` is `PROVIDER` or
    `PROVIDER/NAME`. `day` is the day whose prices hold. `simulated` stands for the point that the
    limits would give: its own objectives were met by every request's share, queue and all.
    """

    workload: SpeedWorkload
    tpot_limit_s: float
    day: date
    ttft_limit_s: float | None = None
    clients_most: int | None = None
    output_tokens_per_day: float | None = None
    in_house: bool = False
    api: str | None = None
    simulated: SimulatedPoint | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Point:
    """The SLO point at one speed: clients, output tokens/s, settled time to first token."""

    clients: int
    output_tokens_per_s: float
    ttft_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scenario:
    """Everything the comparison hangs on, as plain numbers that can be moved one at a time."""

    volume_per_day: float
    cached_ratio: float
    api_scale: float
    usd_scale: float
    speed_scale: float
    assumed: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """A question with all that it rests on."""

    forecaster: Forecaster
    facts: PriceFacts
    wanted: Wanted
    own: OwnPrices

    @cached_property
    def _assumptions(self) -> dict[str, Assumption]:
        return assumptions(self.facts, self.own)

    @cached_property
    def _assumed(self) -> dict[str, float]:
        return {name: entry.value for name, entry in self._assumptions.items()}

    @cached_property
    def price(self) -> TokenPrice:
        """The price compared with: the user's own, else the one asked for, else the maker's.

        Raises PLAN081 when there is none.
        """
        if self.own.api is not None:
            return self.own.api
        return find_price(
            self.facts,
            self.forecaster.plan.model,
            self.wanted.api,
            self.wanted.day,
            self._assumed["usd_to_cny"],
        )

    @cached_property
    def _others(self) -> tuple[TokenPrice, ...]:
        """Other prices of the model, cheapest for this workload first."""
        found = prices_of(
            self.facts, self.forecaster.plan.model, self.wanted.day, self._assumed["usd_to_cny"]
        )
        others = [price for price in found if price != self.price]
        return tuple(sorted(others, key=self._usd_per_output))

    @cached_property
    def _basis(self) -> SpeedBasis:
        return self.forecaster.basis_of(self.wanted.workload)

    @property
    def _gpus(self) -> int:
        return self.forecaster.plan.rack.gpu_count

    # --- speed at the SLO point ------------------------------------------------------------------

    def _point(self, factor: float, workload: SpeedWorkload) -> _Point | None:
        """The busiest service within the limits when everything takes `factor` times the model's
        time; None when one client is too many.
        """
        most = self.forecaster.seats(workload) * (self.forecaster.plan.layout.data_parallel_size)
        if self.wanted.clients_most is not None:
            most = min(most, self.wanted.clients_most)

        def at(clients: int) -> Service:
            return self.forecaster.service(replace(workload, concurrency=clients))

        if not self._within(at(1), factor):
            return None
        low, high = 1, max(1, most)
        while low < high:
            middle = (low + high + 1) // 2
            if self._within(at(middle), factor):
                low = middle
            else:
                high = middle - 1
        service = at(low)
        return _Point(
            clients=low,
            output_tokens_per_s=service.output_tokens_per_s / factor,
            ttft_s=service.ttft_s * factor,
        )

    def _within(self, service: Service, factor: float) -> bool:
        if service.settled_tpot_s * factor > self.wanted.tpot_limit_s:
            return False
        limit = self.wanted.ttft_limit_s
        spread = spread_of(self.forecaster.facts.book, "ttft")
        return limit is None or service.ttft_s * factor * spread.low_ratio <= limit

    @cached_property
    def _points(self) -> tuple[_Point, _Point]:
        """The SLO point at the fast and the slow end. Where the slow end is beyond the limit even
        with one client, one client past the limit stands for it. Raises PLAN084 when the fast end
        is, too.
        """
        basis, work = self._basis, self.wanted.workload
        fast = self._point(basis.low_ratio, work)
        if fast is None:
            raise HeavyliftError(
                "PLAN084",
                {
                    "limit_ms": round(self.wanted.tpot_limit_s * 1000, 1),
                    "rack": self.forecaster.plan.rack.label,
                },
            )
        slow = self._point(basis.high_ratio, work)
        return fast, self._slowest(basis.high_ratio) if slow is None else slow

    def _slowest(self, factor: float) -> _Point:
        """One client at a time, past the limit: what is left of the service at the slow end."""
        service = self.forecaster.service(replace(self.wanted.workload, concurrency=1))
        return _Point(
            clients=1,
            output_tokens_per_s=service.output_tokens_per_s / factor,
            ttft_s=service.ttft_s * factor,
        )

    @property
    def _rate(self) -> Band:
        if self.wanted.simulated is not None:
            return self.wanted.simulated.output_tokens_per_s
        fast, slow = self._points
        return Band(low=slow.output_tokens_per_s, high=fast.output_tokens_per_s)

    def _middle_rate(self, cached_ratio: float) -> float:
        """Output tokens per second at the middle of the band, with another cached share.

        A simulated rate moves with the share as the forecast's does.
        """
        if self.wanted.simulated is None:
            return self._forecast_middle(cached_ratio)
        now = self._forecast_middle(self.wanted.workload.cached_ratio)
        return self._middle(self._rate) * self._forecast_middle(cached_ratio) / now

    def _forecast_middle(self, cached_ratio: float) -> float:
        basis = self._basis
        factor = math.sqrt(basis.low_ratio * basis.high_ratio)
        work = replace(self.wanted.workload, cached_ratio=cached_ratio)
        point = self._point(factor, work)
        return self._rate.low if point is None else point.output_tokens_per_s

    # --- costs -----------------------------------------------------------------------------------

    @property
    def _input_per_output(self) -> float:
        work = self.wanted.workload
        return work.input_tokens / work.output_tokens

    def _usd_per_output(self, price: TokenPrice, cached_ratio: float | None = None) -> float:
        cached = self.wanted.workload.cached_ratio if cached_ratio is None else cached_ratio
        return usd_per_output_token(price, self._input_per_output, cached)

    @cached_property
    def _machine(self) -> BoughtMachine | None:
        per_machine = self.forecaster.subject.node.gpus_per_node.value
        return bought_machine(self.facts, self.own, self.forecaster.plan.rack.gpu, per_machine)

    def _ends(
        self, tenure: Tenure, assumed: Mapping[str, float]
    ) -> tuple[tuple[CostPart, ...], ...]:
        """Cost parts of a unit at the cheapest and the dearest source; empty when none is known."""
        if tenure is Tenure.RENTED:
            extra = assumed["cloud_extra_ratio"]
            gpu = self.forecaster.plan.rack.gpu
            rents = rent_parts(self.facts, self.own, gpu, self._gpus, extra)
            return tuple((rent,) for rent in rents)
        machine = self._machine
        if machine is None:
            return ()
        ends = dict.fromkeys((machine.usd_low, machine.usd_high))
        return tuple(bought_parts(machine, usd, self._gpus, assumed) for usd in ends)

    def _unit_usd(self, tenure: Tenure, assumed: Mapping[str, float]) -> Band:
        totals = [sum(part.usd_per_hour for part in parts) for parts in self._ends(tenure, assumed)]
        return Band(low=min(totals), high=max(totals))

    @cached_property
    def _tenures(self) -> tuple[Tenure, ...]:
        """The ways that can be priced. Raises PLAN080 when there is none: a price is asked for."""
        found = tuple(tenure for tenure in Tenure if self._ends(tenure, self._assumed))
        if not found:
            raise HeavyliftError("PLAN080", {"gpu": self.forecaster.plan.rack.gpu_title})
        return found

    def _option(self, tenure: Tenure) -> OwnOption:
        assumed, rate = self._assumed, self._rate
        usd, staff = self._unit_usd(tenure, assumed), staff_usd_per_hour(assumed)
        each = self._usd_per_output(self.price)
        ratio = Band(
            low=break_even_ratio(usd.low + staff, rate.high, each),
            high=break_even_ratio(usd.high + staff, rate.low, each),
        )
        per_day = (24 / each * (usd.low + staff), 24 / each * (usd.high + staff))
        volume = self._volume(usd, staff)
        return OwnOption(
            tenure=tenure,
            parts=tuple(part for parts in self._ends(tenure, assumed) for part in parts),
            usd_per_hour=usd,
            staff_usd_per_hour=staff,
            usd_per_million_output=Band(
                low=(usd.low + staff) / rate.high / 3600 * MILLION,
                high=(usd.high + staff) / rate.low / 3600 * MILLION,
            ),
            break_even_ratio=ratio,
            most_used_ratio=min(1.0, 1 / assumed["peak_factor"]),
            break_even_output_tokens_per_day=Band(low=per_day[0], high=per_day[1]),
            units=None if volume is None else volume[0],
            usd_per_day=None if volume is None else volume[1],
            utilisation_ratio=None if volume is None else volume[2],
        )

    def _volume(self, usd: Band, staff: float) -> tuple[tuple[int, int], Band, Band] | None:
        """Units, USD per day and utilisation for the stated volume."""
        asked = self.wanted.output_tokens_per_day
        if asked is None:
            return None
        mean = asked / SECONDS_PER_DAY
        busiest, rate = mean * self._assumed["peak_factor"], self._rate
        few = max(1, math.ceil(busiest / rate.high))
        many = max(1, math.ceil(busiest / rate.low))
        return (
            (few, many),
            Band(low=24 * (few * usd.low + staff), high=24 * (many * usd.high + staff)),
            Band(low=mean / (many * rate.high), high=mean / (few * rate.low)),
        )

    # --- the answer ------------------------------------------------------------------------------

    def decision(self) -> Decision:
        """What each way costs, the verdict, and what turns it."""
        plan, wanted, price = self.forecaster.plan, self.wanted, self.price
        options = tuple(self._option(tenure) for tenure in self._tenures)
        each = self._usd_per_output(price)
        asked = wanted.output_tokens_per_day
        api_per_day = None if asked is None else asked * each
        flips = tuple(self._flips(options)) if asked is not None else ()
        return Decision(
            model=plan.model,
            title=plan.title,
            checkpoint_bytes=plan.checkpoint_bytes,
            engine=plan.engine,
            engine_title=plan.engine_title,
            engine_version=plan.engine_version,
            rack=plan.rack,
            layout=plan.layout,
            workload=wanted.workload,
            tpot_limit_s=wanted.tpot_limit_s if wanted.simulated is None else None,
            ttft_limit_s=wanted.ttft_limit_s,
            output_tokens_per_day=asked,
            in_house=wanted.in_house,
            point_concurrency=self._point_clients(),
            point_output_tokens_per_s=self._rate,
            point_ttft_s=self._point_ttft(),
            price=price,
            other_prices=self._others,
            api_usd_per_million_output=each * MILLION,
            api_usd_per_day=api_per_day,
            options=options,
            not_priced=self._not_priced(),
            assumptions=tuple(self._assumptions.values()),
            verdict=self._verdict(options, api_per_day),
            decisive=next((flip for flip in flips if flip.in_range), None),
            flips=flips,
            beside_money=tuple(Note(code=code) for code in _BESIDE_MONEY),
            basis=self._basis,
            simulated=wanted.simulated,
        )

    def _point_clients(self) -> Band | None:
        if self.wanted.simulated is not None:
            return None
        fast, slow = self._points
        return Band(low=slow.clients, high=fast.clients)

    def _point_ttft(self) -> Band | None:
        if self.wanted.simulated is not None:
            return None
        times = [point.ttft_s for point in self._points]
        return Band(low=min(times), high=max(times))

    def _not_priced(self) -> tuple[Note, ...]:
        gpu = self.forecaster.plan.rack.gpu_title
        return tuple(
            Note(code=f"{tenure.value}_unknown", params={"gpu": gpu})
            for tenure in Tenure
            if tenure not in self._tenures
        )

    def _verdict(
        self, options: tuple[OwnOption, ...], api_per_day: float | None
    ) -> DecisionVerdict:
        if self.wanted.in_house:
            return DecisionVerdict.OWN_BY_RULE
        if api_per_day is None:
            return DecisionVerdict.DEPENDS
        bands = [option.usd_per_day for option in options if option.usd_per_day is not None]
        if any(band.high < api_per_day for band in bands):
            return DecisionVerdict.OWN
        if all(band.low > api_per_day for band in bands):
            return DecisionVerdict.API
        return DecisionVerdict.DEPENDS

    # --- what flips it ---------------------------------------------------------------------------

    def _flips(self, options: tuple[OwnOption, ...]) -> Iterator[Flip]:
        """Inputs whose other value makes the costs equal, nearest first.

        Each is moved alone, from the middle of all bands, for the cheapest way of having GPUs.
        """
        tenure = min(options, key=lambda option: self._middle(option.usd_per_hour)).tenure
        found = sorted(self._candidates(tenure), key=lambda pair: pair[0])
        yield from (flip for _, flip in found)

    @staticmethod
    def _middle(band: Band) -> float:
        return math.sqrt(band.low * band.high)

    def _candidates(self, tenure: Tenure) -> Iterator[tuple[float, Flip]]:
        now = _Scenario(
            volume_per_day=self.wanted.output_tokens_per_day or 0.0,
            cached_ratio=self.wanted.workload.cached_ratio,
            api_scale=1.0,
            usd_scale=1.0,
            speed_scale=1.0,
            assumed=self._assumed,
        )

        def ratio(scenario: _Scenario) -> float:
            return self._own_over_api(scenario, tenure)

        rate, usd = self._rate, self._unit_usd(tenure, self._assumed)
        middle, each = self._middle(usd), self._usd_per_output(self.price)
        others = [self._usd_per_output(price) / each for price in self._others] or [1.0]
        scaled = (
            ("volume", now.volume_per_day, 0.5, 2.0, "volume_per_day"),
            ("api_price", each * MILLION, min(1.0, *others), max(1.0, *others), "api_scale"),
            ("own_usd_per_hour", middle, usd.low / middle, usd.high / middle, "usd_scale"),
            (
                "own_speed",
                self._middle(rate),
                rate.low / self._middle(rate),
                rate.high / self._middle(rate),
                "speed_scale",
            ),
        )
        for name, value, least, most, attribute in scaled:
            start = getattr(now, attribute)

            def moved(factor: float, start: float = start, name: str = attribute) -> float:
                changed: dict[str, Any] = {name: start * factor}
                return ratio(replace(now, **changed))

            at = _crossing(moved, 1 / _WIDEST, _WIDEST)
            if at is not None:
                flip = Flip(
                    input=name, now=value, flips_at=value * at, in_range=least <= at <= most
                )
                yield abs(math.log(at)), flip
        at = _crossing(lambda share: ratio(replace(now, cached_ratio=share)), 0.0, 1.0)
        if at is not None:
            flip = Flip(input="cached_share", now=now.cached_ratio, flips_at=at, in_range=True)
            yield abs(at - now.cached_ratio), flip
        for entry in self._assumptions.values():
            ends = (min(entry.low, entry.value), max(entry.high, entry.value))

            def set_to(value: float, name: str = entry.id) -> float:
                return ratio(replace(now, assumed={**now.assumed, name: value}))

            at = _crossing(set_to, *ends)
            if at is not None and entry.value > 0 and at > 0:
                flip = Flip(input=entry.id, now=entry.value, flips_at=at, in_range=True)
                yield abs(math.log(at / entry.value)), flip

    def _own_over_api(self, scenario: _Scenario, tenure: Tenure) -> float:
        """Own cost over the provider's, with parts of a unit allowed beyond the first."""
        rate = self._rate_at(scenario.cached_ratio) * scenario.speed_scale
        mean = scenario.volume_per_day / SECONDS_PER_DAY
        units = max(1.0, mean * scenario.assumed["peak_factor"] / rate)
        usd = self._middle(self._unit_usd(tenure, scenario.assumed)) * scenario.usd_scale
        own = units * usd + staff_usd_per_hour(scenario.assumed)
        each = self._usd_per_output(self.price, scenario.cached_ratio) * scenario.api_scale
        return own / (mean * 3600 * each)

    @cached_property
    def _rates_by_share(self) -> dict[float, float]:
        """Middle rates at tenths of the cached share: the speed between them is a straight line."""
        return {tenth / 10: self._middle_rate(tenth / 10) for tenth in range(11)}

    def _rate_at(self, cached_ratio: float) -> float:
        below = math.floor(cached_ratio * 10) / 10
        above = min(1.0, round(below + 0.1, 1))
        rates = self._rates_by_share
        low, high = rates[round(below, 1)], rates[above]
        return low + (high - low) * (cached_ratio - below) * 10


def _crossing(ratio: Callable[[float], float], low: float, high: float) -> float | None:
    """Where a ratio that only rises or only falls passes 1 between two values; None when it
    does not.
    """
    rises = ratio(high) > ratio(low)
    if (ratio(low) - 1) * (ratio(high) - 1) > 0:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if (ratio(middle) > 1) == rises:
            high = middle
        else:
            low = middle
    return (low + high) / 2
