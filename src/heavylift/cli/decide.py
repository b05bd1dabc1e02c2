"""`heavylift decide`: a provider's API or GPUs of one's own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec
from click.core import ParameterSource

from heavylift.cli.fresh_prices import fresh_price
from heavylift.cli.numbers import FiniteRange
from heavylift.cli.output import json_option, sink
from heavylift.cli.simulated import lengths_of, read_simulation, simulate_point
from heavylift.cli.text import text
from heavylift.cli.workload import Asked, Seconds, Volume, holds_nothing, workload_options
from heavylift.errors import Exit, HeavyliftError, reason
from heavylift.plan.cost import Comparison, Wanted
from heavylift.plan.money import STATED, OwnPrices, dated_later
from heavylift.plan.simulated import simulated_point
from heavylift.records.decision import TokenPrice

DEFAULT_TPOT_LIMIT_S = 0.05


@click.command(help=text("help.decide"))
@click.argument("model")
@click.option("--on", "rack_text", required=True, metavar="RACK", help=text("option.decide_on"))
@click.option("--tokens-per-day", type=Volume(), help=text("option.tokens_per_day"))
@click.option(
    "--tpot",
    "tpot_limit_s",
    type=Seconds(),
    default=DEFAULT_TPOT_LIMIT_S,
    help=text("option.tpot_limit"),
)
@click.option("--ttft", "ttft_limit_s", type=Seconds(), help=text("option.ttft_limit"))
@click.option(
    "--simulated",
    "simulated_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=text("option.simulated"),
)
@click.option("--slo", "slo_text", metavar="GOALS", help=text("option.decide_slo"))
@click.option("--in-house", is_flag=True, help=text("option.in_house"))
@click.option("--api", help=text("option.api"))
@click.option("--rent", type=FiniteRange(0, min_open=True), help=text("option.rent"))
@click.option("--buy", type=FiniteRange(0, min_open=True), help=text("option.buy"))
@click.option(
    "--prices",
    "prices_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=text("option.prices"),
)
@click.option("--fresh-prices", is_flag=True, help=text("option.fresh_prices"))
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help=text("option.set"))
@click.option("--date", "day", type=click.DateTime(["%Y-%m-%d"]), help=text("option.price_date"))
@workload_options
@json_option
def command(model: str, rack_text: str, as_json: bool, **options: Any) -> int:
    """Compare, show."""
    _check_point(options)
    found = None
    if options["simulated_path"] is not None:
        found = read_simulation(options["simulated_path"])
        options = {**options, **lengths_of(found, stated=_is_stated("cached_share"))}
    asked = Asked.of(model, rack_text, options)
    out = sink(as_json)
    plan = asked.plan()
    if holds_nothing(plan):
        out.record("plan", plan)
        return Exit.NEGATIVE
    if options["slo_text"] is not None:
        out.step("simulate.running", name=text("decide.traffic_stated"))
        found = simulate_point(asked, plan, options["slo_text"])
    day = options["day"]
    wanted = Wanted(
        workload=asked.workload,
        tpot_limit_s=options["tpot_limit_s"],
        ttft_limit_s=options["ttft_limit_s"],
        clients_most=options["concurrency"],
        output_tokens_per_day=options["tokens_per_day"],
        in_house=options["in_house"],
        api=options["api"],
        simulated=None if found is None else simulated_point(found, plan),
        day=datetime.now(UTC).date() if day is None else date(day.year, day.month, day.day),
    )
    prices = asked.planning.catalog.prices()
    comparison = Comparison(asked.forecaster(plan), prices, wanted, own_prices(options))
    if options["fresh_prices"]:
        fresh = fresh_price(comparison.price, wanted.day)
        comparison = replace(comparison, own=replace(comparison.own, api=fresh))
    decision = comparison.decision()
    out.record("decide", decision)
    price = decision.price
    if dated_later(price, wanted.day):
        day_asked = wanted.day.isoformat()
        out.note("decide.dated_later", provider=price.provider, as_of=price.as_of, day=day_asked)
    lengths = f"--isl {wanted.workload.input_tokens} --osl {wanted.workload.output_tokens}"
    out.next_command(f"heavylift speed {model} --on {plan.rack.label} {lengths}")
    return Exit.OK


def _is_stated(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is not None and source is not ParameterSource.DEFAULT


def _check_point(options: Mapping[str, Any]) -> None:
    """A simulated point has objectives of its own: others beside them would say nothing."""
    ways = [name for name in ("simulated_path", "slo_text") if options[name] is not None]
    limits = any(map(_is_stated, ("tpot_limit_s", "ttft_limit_s", "concurrency")))
    if len(ways) > 1 or (ways and limits):
        raise click.UsageError(text("usage.simulated"))


Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class _Api(msgspec.Struct, forbid_unknown_fields=True):
    input_usd: Amount
    output_usd: Amount
    cached_input_usd: Amount | None = None


class _Rent(msgspec.Struct, forbid_unknown_fields=True):
    usd_per_gpu_hour: Amount


class _Buy(msgspec.Struct, forbid_unknown_fields=True):
    usd_per_machine: Amount
    kw_per_machine: Amount | None = None


class _PriceFile(msgspec.Struct, forbid_unknown_fields=True):
    """The user's own prices: `[api]` per million tokens, `[rent]`, `[buy]`, `[assumptions]`."""

    api: _Api | None = None
    rent: _Rent | None = None
    buy: _Buy | None = None
    assumptions: dict[str, float] = {}


def own_prices(options: Mapping[str, Any]) -> OwnPrices:
    """The user's prices: from the file, then from the options, which win.

    Raises PLAN085 for a file that cannot be read.
    """
    path = options["prices_path"]
    file = _PriceFile() if path is None else _read(path)
    rent, buy = options["rent"], options["buy"]
    if rent is None and file.rent is not None:
        rent = file.rent.usd_per_gpu_hour
    if buy is None and file.buy is not None:
        buy = file.buy.usd_per_machine
    settings = {**file.assumptions, **dict(map(_setting, options["settings"]))}
    power = file.buy.kw_per_machine if file.buy is not None else None
    return OwnPrices(
        api=None if file.api is None else _stated_price(file.api),
        usd_per_gpu_hour=rent,
        usd_per_machine=buy,
        kw_per_machine=settings.pop("kw_per_machine", power),
        assumptions=settings,
    )


def _read(path: Path) -> _PriceFile:
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), _PriceFile)
    except (OSError, ValueError) as error:
        raise HeavyliftError("PLAN085", {"path": str(path), "reason": reason(error)}) from error


def _stated_price(api: _Api) -> TokenPrice:
    cached = api.input_usd if api.cached_input_usd is None else api.cached_input_usd
    return TokenPrice(
        provider=STATED,
        name=STATED,
        tier="",
        input_usd=api.input_usd,
        cached_input_usd=cached,
        output_usd=api.output_usd,
        kind=STATED,
        source=STATED,
        as_of="",
    )


def _setting(stated: str) -> tuple[str, float]:
    name, _, value = stated.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise click.UsageError(text("usage.setting", value=stated)) from None
