"""The fleet simulator against what was measured, and how fast it is.

    python benchmarks/simulate.py            all three parts
    python benchmarks/simulate.py sweeps     K3 on 16 H200: published closed loops, row by row
    python benchmarks/simulate.py speed      simulated requests per minute, and memory
    python benchmarks/simulate.py engine     a real engine here, measured by bench in the same run

Sweeps: the bands come from the facts of speed; the pool and seats are those the row states. Engine:
its steps and prompts are taken from two closed loops (one client, and as many as it has slots);
what it does with other loads is then foretold and measured. Status 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import resource
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from heavylift.bench import run as measuring
from heavylift.bench.files import shipped_prose
from heavylift.bench.prompts import Workload
from heavylift.bench.records import Load, LoadKind, Stage
from heavylift.facts.catalog import Catalog
from heavylift.launch import engine_env
from heavylift.launch.embedded import launch
from heavylift.launch.runner import serve
from heavylift.plan.speed import forecaster
from heavylift.planning import Planning
from heavylift.recipe.engines.embedded import KEY_SECRET, EmbeddedSettings
from heavylift.records.plan import PlanRequest
from heavylift.records.simulation import PaceEnd
from heavylift.records.speed import Band, SpeedWorkload
from heavylift.simulate.build import PACES, Fleet, Unit
from heavylift.simulate.fleet import FleetSpec, Outcome, PoolSpec, Router, Stop, run
from heavylift.simulate.pace import Pace
from heavylift.simulate.pace import Row as StepRow
from heavylift.simulate.pool import Room
from heavylift.simulate.request import Request, Source
from heavylift.simulate.workload import Closed, Conversations
from heavylift.traffic.shape import TrafficShape
from heavylift.wire.client import Endpoint
from speed_accuracy import HERE, Row, read_rows

INSIDE_LIMIT: Final = 0.75
"""The bands of a known class hold three rows of four; so must the simulator's."""
REQUESTS_PER_MINUTE_LIMIT: Final = 1_000_000
MEMORY_LIMIT_MIB: Final = 64
"""What ten times the requests may add."""
ENGINE_ERROR_LIMIT: Final = 1.35
ENGINE_DEFAULT_SEATS: Final = 1024


# --- published sweeps ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A figure of a row, its band, and whether it lies inside."""

    row: Row
    figure: str
    measured: float
    band: Band
    middle: float

    @property
    def inside(self) -> bool:
        """True when the band holds it."""
        return self.measured in self.band


def sweep_rows(path: Path = HERE / "rows.csv") -> list[Row]:
    """K3 on 16 H200 in a closed loop, prompts and answers of 1,000 tokens, not split."""
    return [
        row
        for row in read_rows(path)
        if "K3" in row.model
        and (row.gpu, row.gpus, row.input_tokens) == ("H200", 16, 1000)
        and not row.prefill_pools
    ]


def judge_sweeps(rows: Sequence[Row], planning: Planning) -> Iterator[Judged]:
    """Throughput, TPOT and TTFT of each row against three runs."""
    knowledge = planning.knowledge("kimi-k3")
    facts = planning.catalog.speed()
    _, rack = planning.rack("2x8xH200")
    if rack is None:
        raise TypeError(rack)
    for row in rows:
        sizes = {"tensor": row.tp, "pipeline": row.pp, "data": row.dp, "expert": row.ep}
        plan = planning.plan(
            PlanRequest(
                model="kimi-k3",
                rack=rack,
                engine="vllm",
                context_tokens=2000,
                kv_cache_dtype="bf16",
                max_num_seqs=row.max_num_seqs or ENGINE_DEFAULT_SEATS,
                vision=False,
                layout_constraints=sizes,
            ),
            knowledge,
            with_fixes=False,
        )
        work = SpeedWorkload(concurrency=row.concurrency, input_tokens=1000, output_tokens=1000)
        found = forecaster(plan, knowledge, facts)
        fleet = Fleet(serve=Unit(found, work, kv_tokens=row.kv_pool_tokens), racks=1)
        # As many requests as such a run sends: a burst at the start is part of its figures.
        stop = Stop(requests=max(5, 2 * row.concurrency))
        outcomes = {
            pace: run(
                fleet.spec(pace), Closed(row.concurrency, 1000, 1000), stop, random.Random(1).random
            )
            for pace in PACES
        }
        yield from _judged(row, outcomes)


def _judged(row: Row, outcomes: dict[PaceEnd, Outcome]) -> Iterator[Judged]:
    figures: tuple[tuple[str, float | None, Callable[[Outcome], float]], ...] = (
        ("tok/s", row.output_tokens_per_s, lambda o: o.output_tokens_per_s),
        ("TPOT ms", row.tpot_ms, lambda o: o.tpot.quantile(0.5) * 1e3),
        ("TTFT ms", row.ttft_ms, lambda o: o.ttft.quantile(0.5) * 1e3),
    )
    for name, measured, figure in figures:
        if measured is None:
            continue
        values = {pace: figure(outcome) for pace, outcome in outcomes.items()}
        yield Judged(
            row=row,
            figure=name,
            measured=measured,
            band=Band(low=min(values.values()), high=max(values.values())),
            middle=values[PaceEnd.MIDDLE],
        )


def sweeps() -> bool:
    """Print the table."""
    judged = list(judge_sweeps(sweep_rows(), Planning()))
    print("K3 on 16 H200, vLLM, closed loop, 1,000 in, 1,000 out: measured against the band")
    for each in judged:
        row = each.row
        layout = f"tp{row.tp} pp{row.pp} dp{row.dp} ep{row.ep}"
        mark = " " if each.inside else "x"
        print(
            f"{mark} {row.id} {layout:<22} c {row.concurrency:<4}{each.figure:<8}"
            f"{each.measured:>12,.1f}   {each.band.low:>12,.1f} – {each.band.high:<12,.1f}"
        )
    held = []
    for figure in ("tok/s", "TPOT ms", "TTFT ms"):
        of = [each for each in judged if each.figure == figure]
        off = sorted(abs(math.log(each.measured / each.middle)) for each in of)
        inside = sum(each.inside for each in of) / len(of)
        typical = math.exp(off[len(off) // 2])
        print(f"{figure:<8} {inside:.0%} of {len(of)} inside; middle off by a factor {typical:.2f}")
        held.append(inside)
    inside = sum(each.inside for each in judged) / len(judged)
    print(f"all      {inside:.0%} of {len(judged)} inside (limit {INSIDE_LIMIT:.0%})")
    return inside >= INSIDE_LIMIT


# --- speed ---------------------------------------------------------------------------------------


def _k3_fleet(racks: int, router: Router) -> tuple[FleetSpec, dict[str, TrafficShape]]:
    planning = Planning()
    knowledge, facts = planning.knowledge("kimi-k3"), planning.catalog.speed()
    _, rack = planning.rack("8xB300")
    if rack is None:
        raise TypeError(rack)
    request = PlanRequest(model="kimi-k3", rack=rack, engine="sglang", context_tokens=1400)
    plan = planning.plan(request, knowledge, with_fixes=False)
    work = SpeedWorkload(concurrency=1, input_tokens=1200, output_tokens=211)
    unit = Unit(forecaster(plan, knowledge, facts), work)
    fleet = Fleet(serve=unit, racks=racks, router=router)
    return fleet.spec(PaceEnd.MIDDLE), {entry.id: entry.shape for entry in facts.shapes}


CASES: Final = (
    # traffic, racks of 8 GPUs, requests per second, requests, router
    ("chat", 1, 3.0, 100_000, Router.LEAST),
    ("chat", 40, 116.0, 200_000, Router.LEAST),
    ("conversation", 60, 40.0, 100_000, Router.AFFINITY),
    ("agent", 40, 20.0, 60_000, Router.AFFINITY),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """What a run took: processor and wall seconds, and the memory of its process at most, MiB."""

    requests: int
    processor_s: float
    wall_s: float
    memory_mib: int


def _timed(case: tuple[str, int, float, int, Router]) -> Timed:
    """One run, alone in its process."""
    name, racks, rate, requests, router = case
    spec, shapes = _k3_fleet(racks, router)
    source = Conversations(shapes[name], rate, random.Random(1).random)
    began, clock = time.process_time(), time.perf_counter()
    outcome = run(spec, source, Stop(requests=requests), random.Random(2).random)
    return Timed(
        requests=outcome.requests,
        processor_s=time.process_time() - began,
        wall_s=time.perf_counter() - clock,
        memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def speed() -> bool:
    """Print requests per minute of two cores, and memory at twenty times the length.

    Judged by wall time, start of the processes and facts included; the processor's beside it, since
    the cores may have other work.
    """
    print("two processes, one per core; requests per minute")
    print(
        f"{'traffic':<13} {'fleet':>10} {'a day':>12} {'wall':>12} {'processor':>12}  load  total"
    )
    held = []
    for case in CASES:
        with ProcessPoolExecutor(2, max_tasks_per_child=1) as pool:
            load, began = os.getloadavg()[0], time.perf_counter()
            pair = list(pool.map(_timed, [case, case]))
            took = time.perf_counter() - began
        requests = sum(each.requests for each in pair)
        by_wall = requests / took * 60
        by_processor = requests / max(each.processor_s for each in pair) * 60
        print(
            f"{case[0]:<13} {f'{case[1]} × 8':>10} {case[2] * 86400:>12,.0f} {by_wall:>12,.0f}"
            f" {by_processor:>12,.0f} {load:>5.1f}  {requests:,} in {took:.1f} s"
            f"  {_told(by_wall, by_processor)}",
            flush=True,
        )
        held.append(by_wall >= REQUESTS_PER_MINUTE_LIMIT)
    short = ("chat", 40, 116.0, 20_000, Router.LEAST)
    with ProcessPoolExecutor(1, max_tasks_per_child=1) as pool:
        few, many = (
            next(iter(pool.map(_timed, [c]))).memory_mib
            for c in (short, (*short[:3], 400_000, short[4]))
        )
    print(f"memory: {few} MiB after 20,000 requests, {many} after 400,000")
    held.append(many - few <= MEMORY_LIMIT_MIB)
    return all(held)


def _told(by_wall: float, by_processor: float) -> str:
    """Whether the limit is kept, and whether it is the machine that does not keep it."""
    if by_wall >= REQUESTS_PER_MINUTE_LIMIT:
        return "ok"
    if by_processor >= REQUESTS_PER_MINUTE_LIMIT:
        return "MISSED by wall time; kept by the processor's: the cores had other work"
    return "MISSED"


# --- a real engine -------------------------------------------------------------------------------

SLOTS: Final = 4
PROMPT_TOKENS: Final = 96
ANSWER_TOKENS: Final = 24
BATCH_TOKENS: Final = 2048
HALF_LOAD: Final = 0.5


@contextmanager
def _engine() -> Iterator[tuple[str, str]]:
    """The embedded engine with SmolLM2: its address and key."""
    key = secrets.token_urlsafe(24)
    settings = EmbeddedSettings(
        model_path=str(engine_env.smollm2_path()), model="smollm2", slot_tokens=1024, slots=SLOTS
    )
    with tempfile.TemporaryDirectory() as folder:
        spec = launch(settings, plan_digest="sha256:none")
        log = Path(folder) / "engine.log"
        with serve(spec, secrets={KEY_SECRET: key}, log=log) as served:
            yield served.address, key


def _measure(address: str, key: str, load: Load) -> Stage:
    wish = measuring.Wish(
        endpoint=Endpoint.parse(address, key),
        loads=(load,),
        workload=Workload(
            model="smollm2",
            prompt_tokens=PROMPT_TOKENS,
            wanted_tokens=ANSWER_TOKENS,
            extra={"ignore_eos": True, "cache_prompt": False},
        ),
        prose=shipped_prose(),
        metric_names=Catalog().metric_names(),
    )
    return asyncio.run(measuring.run(wish, lambda _key, _params: None)).stages[0]


def _closed(clients: int, requests: int) -> Load:
    return Load(kind=LoadKind.CLOSED, requests=requests, concurrency=clients)


def engine() -> bool:
    """Measure two loops, foretell other loads, measure them."""
    with _engine() as (address, key):
        one = _measure(address, key, _closed(1, 6))
        full = _measure(address, key, _closed(SLOTS, 16))
        spec, sizes = fitted(one, full)
        half = HALF_LOAD * full.requests.ok / full.window_s
        poisson = Load(kind=LoadKind.POISSON, requests=16, rate_per_s=half)
        loads = {
            "2 clients": _closed(2, 8),
            "3 clients": _closed(3, 12),
            "8 clients": _closed(8, 16),
            f"Poisson, {half:.2f} requests/s": poisson,
        }
        print(
            f"llama.cpp, SmolLM2, {SLOTS} slots, {sizes[0]} tokens in, {sizes[1]} out; steps and"
            f" prompts taken at 1 and {SLOTS} clients; load average {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        off: list[float] = []
        for name, load in loads.items():
            off += _compared(name, load, _measure(address, key, load), spec, sizes)
    typical = math.exp(sorted(off)[len(off) // 2])
    print(f"typically off by a factor of {typical:.2f} (limit {ENGINE_ERROR_LIMIT})")
    return typical <= ENGINE_ERROR_LIMIT


def _values(stage: Stage) -> tuple[float, float]:
    """Median TTFT and TPOT of a stage, seconds."""
    if stage.ttft_s is None or stage.tpot_s is None:
        raise TypeError(stage.requests)
    return stage.ttft_s.p50, stage.tpot_s.p50


def fitted(one: Stage, full: Stage) -> tuple[FleetSpec, tuple[int, int]]:
    """A replica like the engine, and the sizes of its requests.

    Prompts: the time to the first token with one client, per token. Steps: that of one sequence as
    measured; that of all slots so that the loop with as many clients comes out; a line between.
    """
    if one.prompt_tokens_mean is None or one.output_tokens_mean is None:
        raise TypeError(one.requests)
    sizes = (round(one.prompt_tokens_mean), round(one.output_tokens_mean))
    first, step = _values(one)
    _, target = _values(full)

    def spec(widest: float) -> FleetSpec:
        rows = [
            StepRow(step + (widest - step) * max(0, batch - 1) / (SLOTS - 1), 0.0, 0.0, 0.0)
            for batch in range(SLOTS + 1)
        ]
        pace = Pace(prefill_floor_s=0.0, prefill_s_per_token=first / sizes[0], rows=rows)
        room = Room(tokens=SLOTS * 1024, seats=SLOTS, caches_prefixes=False)
        return FleetSpec(serve=PoolSpec(replicas=1, pace=pace, room=room, budget=BATCH_TOKENS))

    low, high = step / SLOTS, 2 * target
    for _ in range(30):
        widest = (low + high) / 2
        made = run(spec(widest), Closed(SLOTS, *sizes), Stop(requests=32), random.Random(1).random)
        if made.tpot.quantile(0.5) < target:
            low = widest
        else:
            high = widest
    return spec(high), sizes


class _Steady:
    """Poisson arrivals of one size."""

    def __init__(self, rate_per_s: float, sizes: tuple[int, int]) -> None:
        self._rate, self._sizes = rate_per_s, sizes

    def arrivals(self) -> Iterator[Request]:
        """Endless."""
        draw, at_s = random.Random(1), 0.0
        while True:
            at_s += draw.expovariate(self._rate)
            yield Request(at_s, *self._sizes)

    def follow(self, request: Request, finished_s: float) -> Request | None:
        """Nothing follows."""
        del request, finished_s
        return None


def _compared(
    name: str, load: Load, stage: Stage, spec: FleetSpec, sizes: tuple[int, int]
) -> Iterator[float]:
    """Prints measured beside foretold; gives |log ratio| of each figure."""
    source: Source
    if load.rate_per_s is not None:
        source, requests = _Steady(load.rate_per_s, sizes), 2000
    else:
        source, requests = Closed(load.concurrency or 1, *sizes), load.requests
    made = run(spec, source, Stop(requests=requests), random.Random(1).random)
    first, step = _values(stage)
    pairs = {
        "TTFT ms": (first * 1e3, made.ttft.quantile(0.5) * 1e3),
        "TPOT ms": (step * 1e3, made.tpot.quantile(0.5) * 1e3),
        "tok/s": (stage.output_tokens_per_s, made.output_tokens_per_s),
    }
    for figure, (measured, foretold) in pairs.items():
        print(
            f"{name:<28}{figure:<9} measured {measured:>9.1f}  foretold {foretold:>9.1f}"
            f"  × {measured / foretold:.2f}{'' if stage.valid else '  (bench: not valid)'}",
            flush=True,
        )
        yield abs(math.log(measured / foretold))


# --- all -----------------------------------------------------------------------------------------

PARTS: Final[dict[str, Any]] = {"sweeps": sweeps, "speed": speed, "engine": engine}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are named; the status says whether all limits held."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    named = parser.parse_args(arguments).parts or list(PARTS)
    held = []
    for name in named:
        load, began = os.getloadavg()[0], time.perf_counter()
        held.append(PARTS[name]())
        word = "ok" if held[-1] else "MISSED"
        took = time.perf_counter() - began
        print(f"{name}: {word}, {took:.0f} s, load average {load:.1f} before\n", flush=True)
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
