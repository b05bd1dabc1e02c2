"""`heavylift simulate`: a fleet under traffic, in simulated time, against objectives."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from heavylift.cli.numbers import FiniteRange
from heavylift.cli.output import json_option, sink
from heavylift.cli.text import text
from heavylift.cli.workload import Asked, Volume, holds_nothing, workload_options
from heavylift.errors import Exit, HeavyliftError
from heavylift.plan.money import OwnPrices, rent_parts
from heavylift.planning import Planning
from heavylift.records.plan import Note, Plan
from heavylift.records.simulation import FleetVerdict, Simulation
from heavylift.records.speed import Band, SpeedWorkload
from heavylift.simulate.answer import Question, answer
from heavylift.simulate.build import Fleet, Unit, start_s
from heavylift.simulate.fleet import Failures, Router
from heavylift.simulate.study import Clients, Recorded
from heavylift.simulate.workload import sizes_of
from heavylift.slo import Goal, parse_goals
from heavylift.traffic.shape import TrafficShape

_METRICS: Final = frozenset({"ttft", "tpot", "e2e"})
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMbB]?)\s*(?:/\s*(s|sec|min|h|hour|d|day))?")
_THOUSANDS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_SECONDS: Final = {
    "s": 1, "sec": 1, "min": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400
}  # fmt: skip
_DEFAULT_REQUESTS: Final = 4000
DEFAULT_TRAFFIC: Final = "chat"


class Rate(click.ParamType[float]):
    """Requests in a time: `2`, `2/s`, `90/min`, `3M/day`."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Requests per second."""
        if isinstance(value, float):
            return value
        match = _RATE.fullmatch(str(value).strip())
        if match is None or not float(match[1]):
            self.fail(text("usage.rate", value=value), param, ctx)
        return float(match[1]) * _THOUSANDS[match[2].lower()] / _SECONDS[match[3] or "s"]


@click.command(help=text("help.simulate"))
@click.argument("model")
@click.option("--on", "rack_text", required=True, metavar="RACK", help=text("option.simulate_on"))
@click.option("--trace", metavar="FILE|NAME", help=text("option.trace"))
@click.option("--rate", type=Rate(), help=text("option.rate"))
@click.option("--slo", "slo_text", metavar="GOALS", help=text("option.slo"))
@click.option("--racks", type=click.IntRange(1, 4096), default=1, help=text("option.racks"))
@click.option("--prefill-on", "prefill_text", metavar="RACK", help=text("option.prefill_on"))
@click.option(
    "--prefill-racks", type=click.IntRange(1, 4096), default=1, help=text("option.prefill_racks")
)
@click.option("--link", "link_gb", type=FiniteRange(0, min_open=True), help=text("option.link"))
@click.option(
    "--router",
    type=click.Choice([router.value for router in Router]),
    default=Router.LEAST.value,
    help=text("option.router"),
)
@click.option("--no-prefix-cache", is_flag=True, help=text("option.no_prefix_cache"))
@click.option(
    "--fail-every", "up_h", type=FiniteRange(0, min_open=True), help=text("option.fail_every")
)
@click.option("--load-rate", type=FiniteRange(0, min_open=True), help=text("option.load_rate"))
@click.option("--rent", type=FiniteRange(0, min_open=True), help=text("option.rent"))
@click.option(
    "--requests",
    type=Volume(),
    default=float(_DEFAULT_REQUESTS),
    help=text("option.simulate_requests"),
)
@click.option("--seed", type=click.IntRange(0), default=1, help=text("option.simulate_seed"))
@click.option("--no-search", is_flag=True, help=text("option.no_search"))
@click.option("--processes", type=click.IntRange(1, 1024), help=text("option.processes"))
@click.option("--ray", "ray_address", metavar="ADDRESS", help=text("option.ray"))
@workload_options
@json_option
def command(model: str, rack_text: str, as_json: bool, **options: Any) -> int:
    """Run, show; 1 when the objectives are missed at every speed."""
    from heavylift.simulating import runner

    goals = goals_of(options["slo_text"])
    traffic = _Traffic.of(options, Planning().knowledge(model).model.model.max_context.value)
    sized = {**options, "isl": round(traffic.sizes[0]), "osl": max(1, round(traffic.sizes[1]))}
    asked = Asked.of(model, rack_text, sized)
    out = sink(as_json)
    plan = asked.plan()
    if holds_nothing(plan):
        out.record("plan", plan)
        return Exit.NEGATIVE
    serve = _unit(asked, plan, options)
    prefill = None
    if options["prefill_text"] is not None:
        free = {**sized, **dict.fromkeys(("tp", "pp", "dp", "ep", "dcp"))}
        prompts = Asked.of(model, options["prefill_text"], free)
        prompt_plan = prompts.plan()
        if holds_nothing(prompt_plan):
            out.record("plan", prompt_plan)
            return Exit.NEGATIVE
        prefill = _unit(prompts, prompt_plan, options)
    question = _question(asked, serve, prefill, traffic, goals, options)
    out.step("simulate.running", name=traffic.name)
    with runner(
        options["processes"] or (os.cpu_count() or 1), ray_address=options["ray_address"]
    ) as run:
        found = answer(question, run)
    out.record("simulation", found)
    out.next_command(_next(model, found))
    return Exit.NEGATIVE if found.verdict is FleetVerdict.MISSES else Exit.OK


def goals_of(stated: str | None) -> tuple[Goal, ...]:
    """The objectives. Raises USE092 for a metric that steps do not show."""
    if stated is None:
        return ()
    goals = parse_goals(stated)
    for goal in goals:
        if goal.metric not in _METRICS:
            raise HeavyliftError(
                "USE092", {"metric": goal.metric, "metrics": ", ".join(sorted(_METRICS))}
            )
    return goals


class _Traffic:
    """What `--trace` names: a shape of the facts, or a file."""

    def __init__(
        self,
        name: str,
        source: TrafficShape | Recorded | Clients,
        sizes: tuple[float, float],
        rate_per_s: float | None,
    ) -> None:
        self.name, self.source, self.sizes, self.rate_per_s = name, source, sizes, rate_per_s

    @classmethod
    def of(cls, options: dict[str, Any], context_tokens: int) -> _Traffic:
        """Raises a usage error for what is neither."""
        from heavylift.facts.catalog import Catalog

        stated, rate = options["trace"], options["rate"]
        clients = options["concurrency"]
        if clients is not None:
            if rate is not None or stated is not None:
                raise click.UsageError(text("usage.simulate_clients"))
            sizes = (options["isl"], options["osl"])
            name = text("simulate.clients", clients=f"{clients:,}")
            return cls(
                name,
                Clients(clients=clients, input_tokens=sizes[0], output_tokens=sizes[1]),
                sizes,
                None,
            )
        stated = stated or DEFAULT_TRAFFIC
        shapes = {entry.id: entry for entry in Catalog().speed().shapes}
        if stated in shapes:
            shape = shapes[stated].shape
            longest = min(shape.context_tokens_most, context_tokens)
            shape = replace(shape, context_tokens_most=longest)
            return cls(stated, shape, sizes_of(shape), rate)
        path = Path(stated)
        if not path.exists():
            raise click.UsageError(text("usage.trace", value=stated, known=", ".join(shapes)))
        from heavylift.simulating import trace_figures

        figures = trace_figures(path)
        recorded = figures.rate_per_s or None
        if rate is None and recorded is None:
            raise click.UsageError(text("usage.trace_rate", value=stated))
        means = (figures.input_tokens, figures.output_tokens)
        return cls(path.name, Recorded(path=str(path), figures=figures), means, rate or recorded)


def _unit(asked: Asked, plan: Plan, options: dict[str, Any]) -> Unit:
    return Unit(
        asked.forecaster(plan),
        asked.workload,
        caches_prefixes=not options["no_prefix_cache"],
        spared_ratio=options["cached_share"],
    )


def _question(  # noqa: PLR0917 - what the command has read
    asked: Asked,
    serve: Unit,
    prefill: Unit | None,
    traffic: _Traffic,
    goals: tuple[Goal, ...],
    options: dict[str, Any],
) -> Question:
    speed = asked.planning.catalog.speed()
    load = options["load_rate"] or speed.model.load_bandwidth.value
    starts = start_s(serve.plan, load)
    up_h = options["up_h"]
    notes = []
    if prefill is not None and options["link_gb"] is None:
        raise click.UsageError(text("usage.link"))
    if up_h is not None and options["load_rate"] is None:
        notes.append(Note(code="load_rate_assumed", params={"gb_per_s": load}))
    fleet = Fleet(
        serve=serve,
        racks=options["racks"],
        prefill=prefill,
        prefill_racks=options["prefill_racks"],
        link_gb_per_s=options["link_gb"],
        router=Router(options["router"]),
        failures=None if up_h is None else Failures(mean_up_s=up_h * 3600, start_s=starts),
    )
    price, source = _rent(asked, serve.plan, options)
    if price is None:
        notes.append(Note(code="no_rent", params={"gpu": serve.plan.rack.gpu_title}))
    sizes = asked.workload
    return Question(
        fleet=fleet,
        traffic=traffic.source,
        name=traffic.name,
        sizes=SpeedWorkload(
            concurrency=1,
            input_tokens=sizes.input_tokens,
            output_tokens=sizes.output_tokens,
            speculation=sizes.speculation,
        ),
        goals=goals,
        slo=options["slo_text"] or "",
        seed=options["seed"],
        requests=int(options["requests"]),
        rate_per_s=traffic.rate_per_s,
        usd_per_gpu_hour=price,
        price_source=source,
        searches=not options["no_search"],
        start_s=starts,
        notes=tuple(notes),
    )


def _rent(asked: Asked, plan: Plan, options: dict[str, Any]) -> tuple[Band | None, str]:
    """USD per GPU and hour on demand: stated, or the public ends; None when none is known."""
    prices = asked.planning.catalog.prices()
    own = OwnPrices(usd_per_gpu_hour=options["rent"])
    parts = rent_parts(prices, own, plan.rack.gpu, 1, 0.0)
    if not parts:
        return None, ""
    amounts = [part.usd_per_hour for part in parts]
    return Band(low=min(amounts), high=max(amounts)), ", ".join(
        dict.fromkeys(f"{part.source} {part.as_of}".strip() for part in parts)
    )


def _next(model: str, found: Simulation) -> str:
    rack = found.fleet.rack.label
    lengths = (
        f"--isl {round(found.traffic.input_tokens)} --osl {round(found.traffic.output_tokens)}"
    )
    return f"heavylift decide {model} --on {rack} {lengths}"
