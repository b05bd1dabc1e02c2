"""`heavylift bench`: how fast a served model answers, and whether the measurement is any good."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from heavylift.cli.kept import keep
from heavylift.cli.numbers import FiniteRange
from heavylift.cli.output import json_option, sink
from heavylift.cli.served import OutputFile, Served, served_options
from heavylift.cli.text import text
from heavylift.errors import Exit, HeavyliftError, reason
from heavylift.records.sink import Sink

if TYPE_CHECKING:  # imported when a benchmark runs: --help stays fast
    from heavylift.bench.records import Load, Report
    from heavylift.bench.run import Wish
    from heavylift.plan.speed import Forecaster
    from heavylift.records.plan import Plan

_FILE: Final = OutputFile()
_READABLE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_TRACE = click.Path(exists=True, path_type=Path)
_RUNNABLE: Final = click.Path(exists=True, dir_okay=False, executable=True, path_type=Path)
_COUNT: Final = click.IntRange(min=1)
_SIMPLE_REQUESTS: Final = 10


class _UrlOrCommand(click.Group):
    """A group whose first argument is a URL unless it is the name of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the name of the default command before a URL."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_UrlOrCommand, help=text("bench.help"), no_args_is_help=True)
def command() -> None:
    """The group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Options:
    """The options as typed; see their help."""

    concurrency: tuple[int, ...]
    rate: tuple[float, ...]
    arrivals: str
    trace: Path | None
    requests: int | None
    output_tokens: int | None
    ignore_eos: bool
    prompt_tokens: int
    shared_tokens: int
    turns: int
    images: int
    profile: str | None
    find: str | None
    slo: str | None
    warm_up: int | None
    seed: int
    prose: Path | None
    extra: str | None
    timeout: float | None
    max_error_rate: float
    samples: Path | None
    plan: str | None
    gpu_tool: Path | None


@command.command("run", help=text("bench.help.run"))
@click.argument("url", metavar="URL|NAME")
@click.option("--concurrency", "-c", type=_COUNT, multiple=True, help=text("bench.concurrency"))
@click.option(
    "--rate",
    type=FiniteRange(min=0, min_open=True),
    multiple=True,
    metavar="PER_S",
    help=text("bench.rate"),
)
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "constant"]),
    default="poisson",
    show_default=True,
    help=text("bench.arrivals"),
)
@click.option("--trace", type=_TRACE, help=text("bench.trace"))
@click.option("--requests", "-n", type=_COUNT, help=text("bench.requests"))
@click.option("--output-tokens", type=_COUNT, help=text("bench.output_tokens"))
@click.option("--ignore-eos", is_flag=True, help=text("bench.ignore_eos"))
@click.option(
    "--prompt-tokens", type=_COUNT, default=512, show_default=True, help=text("bench.prompt_tokens")
)
@click.option(
    "--shared-tokens",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help=text("bench.shared_tokens"),
)
@click.option("--turns", type=_COUNT, default=1, show_default=True, help=text("bench.turns"))
@click.option(
    "--images",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help=text("bench.images"),
)
@click.option("--profile", type=click.Choice(["simple"]), help=text("bench.profile"))
@click.option("--find", type=click.Choice(["max-concurrency"]), help=text("bench.find"))
@click.option("--slo", metavar="GOALS", help=text("bench.slo"))
@click.option("--warm-up", type=click.IntRange(min=0), help=text("bench.warm_up"))
@click.option("--seed", type=int, default=0, show_default=True, help=text("bench.seed"))
@click.option("--text", "prose", type=_READABLE, help=text("bench.text"))
@click.option("--extra", metavar="JSON", help=text("bench.extra"))
@click.option("--timeout", type=FiniteRange(min=0, min_open=True), help=text("bench.timeout"))
@click.option(
    "--max-error-rate",
    type=FiniteRange(0, 1),
    default=0.01,
    show_default=True,
    help=text("bench.max_error_rate"),
)
@click.option("--samples", type=_FILE, metavar="FILE.jsonl", help=text("bench.samples"))
@click.option("--plan", metavar="FILE|last", help=text("bench.plan"))
@click.option("--gpu-tool", type=_RUNNABLE, help=text("served.gpu_tool"))
@click.option("--html", type=_FILE, help=text("bench.html"))
@served_options
@json_option
def run(url: str, html: Path | None, as_json: bool, **given: Any) -> int:
    """Run a benchmark; an invalid one, or one that found nothing, ends with status 1."""
    from heavylift.bench import run as bench

    url, served = Served.taken_from(given).at(url)
    options = _Options(**given)
    plan = _plan(options.plan)
    wish = _wish(url, served, options, plan)
    out = sink(as_json)
    on_step = _on_step(out.step)
    report = asyncio.run(bench.run(wish, on_step))
    out.record("bench", report)
    keep(out, "bench", report, url=url)
    if html is not None:
        from heavylift.bench.files import read_samples
        from heavylift.cli.pages import bench as page

        samples = () if wish.samples_file is None else read_samples(wish.samples_file)
        html.write_text(page.render(report, samples), "utf-8")
        out.note("bench.html_written", path=html)
    if plan is not None:
        _keep_anchor(out, plan, report)
    if report.samples_file is not None:
        out.next_command(f"heavylift bench compare OTHER.jsonl {report.samples_file}")
    found_nothing = report.found is not None and report.found.concurrency is None
    return Exit.OK if report.valid and not found_nothing else Exit.NEGATIVE


@command.command("compare", help=text("bench.help.compare"))
@click.argument("a", type=_READABLE)
@click.argument("b", type=_READABLE)
@click.option("--seed", type=int, default=0, show_default=True, help=text("bench.seed"))
@json_option
def compare(a: Path, b: Path, seed: int, as_json: bool) -> int:
    """Compare two runs; one that is worse anywhere ends with status 1."""
    import random
    from dataclasses import replace

    from heavylift.bench.files import read_samples, read_target
    from heavylift.bench.stats import compare as compared

    chance = random.Random(seed).random  # noqa: S311 - resampling, not secrecy
    runs = {path: read_samples(path) for path in (a, b)}
    for path, samples in runs.items():
        if not samples:
            raise HeavyliftError("USE071", {"path": str(path)})
    comparison = replace(
        compared(runs[a], runs[b], names=(str(a), str(b)), chance=chance),
        target_a=read_target(a),
        target_b=read_target(b),
    )
    sink(as_json).record("bench_compare", comparison)
    changes = (comparison.errors, *comparison.changes)
    return Exit.NEGATIVE if any(change.is_worse for change in changes) else Exit.OK


def _plan(stated: str | None) -> Plan | None:
    """The plan of what is served: a file, or the one that was made last."""
    from heavylift.cli import last

    if stated is None:
        return None
    if stated == "last":
        return last.load()
    try:
        return last.decode_plan(Path(stated).read_bytes(), stated)
    except OSError as problem:
        raise HeavyliftError("PLAN041", {"path": stated, "reason": reason(problem)}) from problem


def _keep_anchor(out: Sink, plan: Plan, report: Report) -> None:
    from heavylift.bench.roofline import anchors
    from heavylift.plan.command import layout_flags
    from heavylift.state.kept_anchors import keep

    path = keep(plan, anchors(report.stages))
    if path is not None:
        out.note(
            "bench.anchor_kept",
            path=path,
            command=f"heavylift speed {plan.model} --on {plan.rack.label} --engine {plan.engine}"
            f" {layout_flags(plan.layout)} --anchor {path}",
        )


def _forecaster(plan: Plan) -> Forecaster:
    from heavylift.plan.speed import forecaster
    from heavylift.planning import Planning

    planning = Planning()
    return forecaster(plan, planning.knowledge(plan.model), planning.catalog.speed())


def _wish(url: str, served: Served, options: _Options, plan: Plan | None) -> Wish:
    from heavylift.bench.files import read_prose, read_trace, shipped_prose
    from heavylift.bench.prompts import Workload
    from heavylift.bench.run import Wish
    from heavylift.bench.slo import Slo
    from heavylift.bench.validity import Bounds
    from heavylift.facts.catalog import Catalog
    from heavylift.telemetry.gpu_watch import tool_for
    from heavylift.wire.client import Limits

    if options.find and options.slo is None:
        raise HeavyliftError("USE064", {})
    if options.rate and (options.concurrency or options.find):
        other = "--concurrency" if options.concurrency else "--find"
        raise HeavyliftError("USE072", {"other": other})
    if options.shared_tokens > options.prompt_tokens:
        shared, whole = options.shared_tokens, options.prompt_tokens
        raise HeavyliftError("USE073", {"shared": shared, "whole": whole})
    trace = () if options.trace is None else read_trace(options.trace)
    simple = options.profile == "simple"
    return Wish(
        endpoint=served.endpoint(url),
        loads=_loads(options, len(trace), timed=any(each.at_s for each in trace)),
        workload=Workload(
            model=served.model,
            prompt_tokens=options.prompt_tokens,
            shared_tokens=options.shared_tokens,
            turns=options.turns,
            images=options.images,
            wanted_tokens=options.output_tokens,
            simple=simple,
            extra=({"ignore_eos": True} if options.ignore_eos else {}) | extra_body(options.extra),
        ),
        prose=shipped_prose() if options.prose is None else read_prose(options.prose),
        seed=options.seed,
        warm_up=options.warm_up,
        slo=None if options.slo is None else Slo.parse(options.slo),
        find=options.find is not None,
        trace=trace,
        limits=Limits(total_s=options.timeout),
        bounds=Bounds(error_rate=options.max_error_rate),
        samples_file=options.samples,
        metric_names=Catalog().metric_names(),
        gpu_command=tool_for(url, options.gpu_tool),
        forecaster=None if plan is None else _forecaster(plan),
        variant=served.variant,
        release=served.release,
        is_quantised=served.is_copy(),
    )


def _loads(options: _Options, rows: int, *, timed: bool) -> tuple[Load, ...]:
    from heavylift.bench.records import Load, LoadKind

    if options.profile == "simple":
        requests = options.requests or _SIMPLE_REQUESTS
        return (Load(kind=LoadKind.CLOSED, requests=requests, concurrency=1),)
    if options.find:
        widest = max(options.concurrency, default=1024)
        return (Load(kind=LoadKind.CLOSED, requests=options.requests or 1, concurrency=widest),)
    if options.rate:
        kind = LoadKind(options.arrivals)
        return tuple(
            Load(kind=kind, requests=options.requests or rows or 100, rate_per_s=rate)
            for rate in options.rate
        )
    if timed and not options.concurrency:
        return (Load(kind=LoadKind.TRACE, requests=min(options.requests or rows, rows)),)
    return tuple(
        Load(
            kind=LoadKind.CLOSED,
            requests=options.requests or rows or 4 * concurrency,
            concurrency=concurrency,
        )
        for concurrency in options.concurrency or (1,)
    )


def extra_body(given: str | None) -> dict[str, Any]:
    """The JSON object of `--extra`, empty without one. Raises USE065 when it is none."""
    import msgspec

    try:
        return {} if given is None else msgspec.json.decode(given, type=dict[str, Any])
    except msgspec.DecodeError as problem:
        raise HeavyliftError("USE065", {"detail": str(problem)}) from problem


def _on_step(step: Any) -> Any:
    def on_step(key: str, params: Mapping[str, Any]) -> None:
        from heavylift.cli.screens.bench import load_word, stage_line

        if key == "begins":
            load = params["load"]
            step("bench.begins", load=load_word(load), requests=load.requests)
        if key == "stage":
            step("bench.step", line=stage_line(params["stage"]))

    return on_step
