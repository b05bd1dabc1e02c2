"""A benchmark from beginning to end: what is asked, warm-up, stages, the search, the report."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heavylift import __version__
from heavylift.bench import schedule, slo, stats, validity
from heavylift.bench.load import Asking, Run
from heavylift.bench.monitor import Monitor
from heavylift.bench.prompts import (
    TYPICAL_CHARS_PER_TOKEN,
    Conversation,
    Workload,
    Writer,
    chars_per_token,
)
from heavylift.bench.records import Figures, Forecast, Found, Load, LoadKind, Report, Sample, Stage
from heavylift.errors import HeavyliftError
from heavylift.records.served_model import ServedModel
from heavylift.telemetry.collect_gpus import Command
from heavylift.telemetry.engine_queue import MetricNames
from heavylift.telemetry.gpu_watch import GpuWatch
from heavylift.traffic.trace import Arrival
from heavylift.wire.client import Client, Endpoint, Identity, Limits, unanswered

if TYPE_CHECKING:  # the planner is loaded only where a plan is given: a benchmark starts at once
    from heavylift.plan.speed import Forecaster

_CALIBRATION_CHARS: Final = 8000
_WARM_UP_TOKENS: Final = 8
_FEWEST_PER_SLOT: Final = 4
"""Requests per slot that a search sends at least: fewer are all start and end."""

OnStep = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A benchmark as asked for. `prose` is what prompts are cut from.

    `loads` are the stages. With `find_under`, the highest concurrency that meets that SLO is
    searched, at most `loads[0].concurrency`, and the stages are the tries. `warm_up` None = as
    many requests as there are at once. `trace` empty = prompts are made. `gpu_command`: what is
    asked about the GPUs meanwhile; None = nothing is. `forecaster`: of the plan that is served.
    """

    endpoint: Endpoint
    loads: tuple[Load, ...]
    workload: Workload
    prose: str
    seed: int = 0
    warm_up: int | None = None
    slo: slo.Slo | None = None
    find: bool = False
    trace: tuple[Arrival, ...] = ()
    limits: Limits = field(default_factory=Limits)
    bounds: validity.Bounds = field(default_factory=validity.Bounds)
    samples_file: Path | None = None
    metric_names: MetricNames = field(default_factory=dict)
    gpu_command: Command | None = None
    forecaster: Forecaster | None = None
    variant: str | None = None
    release: str | None = None
    is_quantised: bool | None = None


class _Bench:
    """One benchmark being run."""

    def __init__(self, client: Client, wish: Wish, on_step: OnStep) -> None:
        self._client = client
        self._wish = wish
        self._on_step = on_step
        self._chance = random.Random(wish.seed).random  # noqa: S311 - arrivals, not secrecy
        self._writer = Writer(
            prose=wish.prose, chars_per_token=TYPICAL_CHARS_PER_TOKEN, seed=wish.seed
        )
        self._asking = Asking(model=wish.workload.model, extra=wish.workload.extra)
        self._written = wish.samples_file.open("wb") if wish.samples_file else None
        self._next_index = 0
        self.stages: list[Stage] = []

    def close(self) -> None:
        """Close the file of samples."""
        if self._written is not None:
            self._written.close()

    async def calibrate(self) -> None:
        """Learn how many characters a token has, so that prompts come out as long as asked."""
        text = self._wish.prose[:_CALIBRATION_CHARS]
        try:
            tokens = await self._client.tokenize(self._wish.workload.model, text)
        except HeavyliftError:
            tokens = None
        if tokens:
            measured = chars_per_token(len(text), len(tokens))
            self._writer = replace(self._writer, chars_per_token=measured)

    async def warm_up(self, requests: int) -> None:
        """Short requests, all at once, that no figure contains: they open the connections too."""
        if not requests:
            return
        run = Run(self._client, self._asking)
        short = (
            replace(
                self._writer.conversation(replace(self._wish.workload, turns=1), -1 - number),
                wanted_tokens=_WARM_UP_TOKENS,
            )
            for number in range(requests)
        )
        await run.closed(short, requests)
        if all(sample.failure is not None for sample in run.samples):
            first = run.samples[0]
            url = self._client.endpoint.base_url
            if first.status is None and first.failure is not None:
                raise unanswered(url, first.failure, limits=self._client.limits)
            raise HeavyliftError(
                "WIRE060",
                {
                    "url": url,
                    "failure": str(first.failure),
                    "status": first.status,
                    "message": first.error or "",
                },
            )

    async def stage(self, load: Load) -> Stage:
        """Send one load and work out its figures."""
        wish = self._wish
        self._on_step("begins", {"load": load})
        run = Run(self._client, self._asking, self._write, load.label)
        async with (
            Monitor(self._client, wish.metric_names) as monitor,
            GpuWatch(wish.gpu_command) as watch,
        ):
            if load.kind is LoadKind.CLOSED:
                await run.closed(self._conversations(load.requests), load.concurrency or 1)
            else:
                await run.open(self._arrivals(load), load.in_flight_limit)
        client = monitor.health(run.samples, reached_limit=run.reached_limit)
        figures = stats.figures(run.samples, wish.slo)
        shared = bool(wish.workload.shared_tokens or wish.workload.simple or wish.trace)
        reasons = validity.reasons(
            run.samples, figures, client, prefix_is_shared=shared, bounds=wish.bounds
        )
        stage = Stage(
            load=load,
            offered_per_s=_offered_per_s(load, run.samples),
            client=client,
            server=monitor.points(),
            gpus=tuple(watch.points),
            forecast=_forecast(load, figures, wish.forecaster),
            valid=not reasons,
            invalid_reasons=reasons,
            **{each.name: getattr(figures, each.name) for each in fields(figures)},
        )
        self.stages.append(stage)
        self._on_step("stage", {"stage": stage})
        return stage

    async def find(self) -> Found:
        """Search for the highest concurrency under the SLO; each try is a stage."""
        wish = self._wish
        if wish.slo is None:
            raise ValueError(wish)
        widest = wish.loads[0]
        search = slo.Search(highest=widest.concurrency or 1)
        while (concurrency := search.next()) is not None:
            requests = max(widest.requests, _FEWEST_PER_SLOT * concurrency)
            await self.warm_up(concurrency)
            stage = await self.stage(replace(widest, concurrency=concurrency, requests=requests))
            measured = not set(stage.invalid_reasons) - validity.SERVER_REASONS
            search.note(concurrency, met=bool(stage.slo_met) and stage.valid, valid=measured)
        return Found(concurrency=search.best, slo=wish.slo.text, ended_by=search.ended_by)

    def _conversations(self, requests: int) -> Iterator[Conversation]:
        """New conversations: no index is used in two stages, or the second would meet the cache."""
        first, self._next_index = self._next_index, self._next_index + requests
        wish = self._wish
        for index in range(first, first + requests):
            if wish.trace:
                arrival = wish.trace[index % len(wish.trace)]
                yield self._writer.replayed(arrival, wish.workload, index)
            else:
                yield self._writer.conversation(wish.workload, index)

    def _arrivals(self, load: Load) -> Iterator[tuple[float, Conversation]]:
        conversations = self._conversations(load.requests)
        if load.kind is LoadKind.TRACE:
            due = (arrival.at_s or 0.0 for arrival in self._wish.trace)
            return zip(due, conversations, strict=False)
        times = islice(schedule.times(load, self._chance), load.requests)
        return zip(times, conversations, strict=True)

    def _write(self, sample: Sample) -> None:
        if self._written is not None:
            self._written.write(msgspec.json.encode(sample) + b"\n")


def _forecast(load: Load, figures: Figures, forecaster: Forecaster | None) -> Forecast | None:
    if forecaster is None:
        return None
    from heavylift.bench import roofline  # noqa: PLC0415 - the planner's records, where one is given

    return roofline.forecast(load, figures, forecaster)


def _offered_per_s(load: Load, samples: Sequence[Sample]) -> float | None:
    """What was asked of the server, by the plan of arrivals; None in a closed loop."""
    if load.kind is LoadKind.CLOSED or not samples:
        return None
    if load.rate_per_s is not None:
        return load.rate_per_s
    last_s = max(sample.scheduled_s for sample in samples)
    return len(samples) / last_s if last_s > 0 else None


async def run(wish: Wish, on_step: OnStep) -> Report:
    """Run a benchmark. Raises WIRE003 or WIRE060 when the server does not answer at all."""
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    async with Client(wish.endpoint, limits=wish.limits) as client:
        if not wish.workload.model:
            model = await client.first_model()
            wish = replace(wish, workload=replace(wish.workload, model=model.id))
        identity = await client.identity()
        bench = _Bench(client, wish, on_step)
        try:
            await bench.calibrate()
            found = await bench.find() if wish.find else None
            if not wish.find:
                for load in wish.loads:
                    at_once = load.concurrency or 1
                    await bench.warm_up(at_once if wish.warm_up is None else wish.warm_up)
                    await bench.stage(load)
        finally:
            bench.close()
    return _report(wish, bench.stages, found, started_at, identity)


def _report(
    wish: Wish,
    stages: Sequence[Stage],
    found: Found | None,
    started_at: str,
    identity: Identity,
) -> Report:
    chosen = stats.headline(stages, found)
    workload = asdict(wish.workload)
    settings = {name: value for name, value in workload.items() if name not in ("model", "extra")}
    settings |= {"extra": msgspec.json.encode(wish.workload.extra).decode()}
    settings |= {f"limit_{name}": value for name, value in asdict(wish.limits).items()}
    settings |= {"slo": wish.slo.text if wish.slo else None, "warm_up": wish.warm_up}
    return Report(
        target=ServedModel(
            url=wish.endpoint.base_url,
            model=wish.workload.model,
            engine=identity.engine,
            version=identity.version,
            variant=wish.variant,
            release=wish.release,
            is_quantised=wish.is_quantised,
        ),
        started_at=started_at,
        heavylift_version=__version__,
        seed=wish.seed,
        settings=settings,
        ttft_s=chosen.ttft_s,
        ttfa_s=chosen.ttfa_s,
        tpot_s=chosen.tpot_s,
        itl_s=chosen.itl_s,
        e2e_s=chosen.e2e_s,
        output_tokens_per_s=chosen.output_tokens_per_s,
        goodput_per_s=chosen.goodput_per_s,
        requests=chosen.requests,
        valid=chosen.valid,
        invalid_reasons=chosen.invalid_reasons,
        stages=tuple(stages),
        found=found,
        samples_file=None if wish.samples_file is None else str(wish.samples_file),
    )
