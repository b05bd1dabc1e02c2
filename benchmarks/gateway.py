"""What the gateway costs: CPU, delay and memory, beside the same traffic without it.

    python benchmarks/gateway.py             under four minutes on a quiet machine
    python benchmarks/gateway.py --memory    resident memory over 200,000 requests, under ten
    python benchmarks/gateway.py --short     a tenth of everything

Run it with `make bench-gateway`. A scripted engine, the gateway (keys, quotas and audit on), a
bare proxy of the same libraries and this load are processes on loopback. They take turns in rounds:
straight to the engine, through the gateway, through the bare proxy; what is "added" is the
difference to the straight runs before and after, and the middle of the rounds counts. CPU is user
and system time of a process as the kernel counts it. Chunks carry the time at which the engine sent
them, so that a delay is measured per chunk. What the bare proxy misses too is the machine's, and
said to be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from heavylift.gateway.serve import run_fast
from heavylift.wire.client import Client, Endpoint, Limits
from heavylift.wire.reply import ChatRequest

HEAVYLIFT: Final = (sys.executable, "-m", "heavylift")
BARE_PROXY: Final = (sys.executable, str(Path(__file__).with_name("bare_proxy.py")))
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
MIB: Final = 2**20
HELLO: Final = ({"role": "user", "content": "hello"},)

# figure -> the most it may be
TARGETS: Final = {
    "cpu_us_per_chunk": 50.0,
    "cpu_us_per_request": 300.0,
    "added_delay_p99_ms": 5.0,
    "added_ttft_p50_ms": 2.0,
    "streams_lost": 0.0,
    "requests_failed": 0.0,
    "rss_growth_ratio": 1.05,
}
BARE: Final = "bare_"
"""Before the name of a figure: the bare proxy's in the same rounds."""


@dataclass(kw_only=True)
class Streams:
    """What a load of streams saw: times of first tokens, delays of chunks, and what was lost."""

    ttft_s: list[float] = field(default_factory=list)
    delay_s: list[float] = field(default_factory=list)
    chunks: int = 0
    lost: int = 0


def main() -> None:
    """Measure, print, and write the results if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a tenth of everything, for CI")
    parser.add_argument("--memory", action="store_true", help="only memory, over 200,000 requests")
    parser.add_argument("--write", type=Path, help="file to write the results to (JSON)")
    options = parser.parse_args()
    results = measure(short=options.short, memory=options.memory)
    print_verdict(results)
    if options.write is not None:
        document = {"machine": machine(), "short": options.short, "results": results}
        options.write.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def measure(*, short: bool, memory: bool = False) -> dict[str, float]:
    """All figures, printed as they come."""
    scale = 10 if short else 1
    results: dict[str, float] = {}
    parts: tuple[Callable[[], dict[str, float]], ...] = (
        lambda: streaming(streams=64, tokens=200 // scale, interval_s=0.02, rounds=3),
        lambda: many_streams(streams=1000 // scale, seconds=60 // scale),
        lambda: requests(number=3_000 // scale, rounds=3),
    )
    if memory:
        parts = (lambda: memory_over(200_000 // scale),)
    for part in parts:
        print(f"-- load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        figures = part()
        print_results(figures)
        results |= figures
    return results


# --- the measurements ----------------------------------------------------------------------------


@dataclass(kw_only=True)
class Round:
    """What one way took in one round."""

    seen: Streams
    cpu_us: float = 0.0


def streaming(*, streams: int, tokens: int, interval_s: float, rounds: int) -> dict[str, float]:
    """CPU per chunk and what is added to each chunk's way, at a usual pace."""
    scenario = f"[pace]\nttft_s = 0.2\ninterval_s = {interval_s}\n[reply]\ntokens = {tokens}\n"
    spread_s = 0.2 + tokens * interval_s  # evenly, so that starts do not come in a burst

    def run(url: str, key: str | None, pid: int | None) -> Round:
        seen = Streams()
        before = 0.0 if pid is None else cpu_s(pid)
        load(seen, url, key, streams=streams, rounds=2, ramp_s=spread_s)
        spent_s = 0.0 if pid is None else cpu_s(pid) - before
        return Round(seen=seen, cpu_us=spent_s / seen.chunks * 1e6)

    with (
        engine(scenario) as direct,
        gateway(direct) as (url, key, process),
        started(*BARE_PROXY, direct) as (bare_url, bare_process),
    ):
        for target, its_key in ((direct, None), (url, key), (bare_url, None)):  # all warm
            load(Streams(), target, its_key, streams=8, rounds=1)
        straight = [run(direct, None, None)]
        through, bare = [], []
        for _ in range(rounds):
            through.append(run(url, key, process.pid))
            bare.append(run(bare_url, None, bare_process.pid))
            straight.append(run(direct, None, None))
        idle_s = idle_cpu_s(process.pid)
    figures = {"idle_cpu_ms_per_s": idle_s * 1e3}
    delays = [one.seen.delay_s for one in straight]
    first = [one.seen.ttft_s for one in straight]
    figures["direct_delay_p99_ms"] = statistics.median(percentile(d, 99) for d in delays) * 1e3
    for name, ways in (("", through), (BARE, bare)):
        figures |= {
            f"{name}cpu_us_per_chunk": statistics.median(one.cpu_us for one in ways),
            f"{name}added_delay_p50_ms": beside([w.seen.delay_s for w in ways], delays, 50),
            f"{name}added_delay_p99_ms": beside([w.seen.delay_s for w in ways], delays, 99),
            f"{name}added_ttft_p50_ms": beside([w.seen.ttft_s for w in ways], first, 50),
            f"{name}added_ttft_p99_ms": beside([w.seen.ttft_s for w in ways], first, 99),
        }
    return figures


def beside(
    through: Sequence[Sequence[float]], straight: Sequence[Sequence[float]], percent: int
) -> float:
    """The middle of what rounds add to the straight runs before and after each, ms."""
    around = [
        (percentile(before, percent) + percentile(after, percent)) / 2
        for before, after in pairwise(straight)
    ]
    added_s = [percentile(run, percent) - base for run, base in zip(through, around, strict=True)]
    return statistics.median(added_s) * 1e3


def many_streams(*, streams: int, seconds: int) -> dict[str, float]:
    """Many slow streams at once, and whether anything is lost."""
    scenario = f"[pace]\nttft_s = 0.5\ninterval_s = 0.2\n[reply]\ntokens = {seconds * 5}\n"
    with engine(scenario) as direct, gateway(direct) as (url, key, process):
        before = cpu_s(process.pid)
        through = Streams()
        load(through, url, key, streams=streams, rounds=1, ramp_s=1.0)
        spent_s = cpu_s(process.pid) - before
        rss = rss_mib(process.pid)
    return {
        "streams": streams,
        "stream_seconds": seconds,
        "streams_lost": through.lost,
        "streams_cpu_us_per_chunk": spent_s / through.chunks * 1e6,
        "streams_delay_p99_ms": percentile(through.delay_s, 99) * 1e3,
        "streams_rss_mib": rss,
    }


def requests(*, number: int, rounds: int) -> dict[str, float]:
    """CPU per request, gateway and bare proxy by turns."""
    with (
        engine("[reply]\ntokens = 1\n") as direct,
        gateway(direct) as (url, key, process),
        started(*BARE_PROXY, direct) as (bare_url, bare_process),
    ):
        ways = (("", url, key, process.pid), (BARE, bare_url, None, bare_process.pid))
        for _, its_url, its_key, _ in ways:  # pools filled
            whole(its_url, its_key, number=max(320, number // 2), concurrency=32)
        spent: dict[str, list[float]] = {"": [], BARE: []}
        rates, failed = [], 0
        for _ in range(rounds):
            for name, its_url, its_key, pid in ways:
                before, began = cpu_s(pid), time.perf_counter()
                lost = whole(its_url, its_key, number=number, concurrency=32)
                spent[name].append((cpu_s(pid) - before) / number * 1e6)
                if not name:
                    failed += lost
                    rates.append(number / (time.perf_counter() - began))
    return {
        "cpu_us_per_request": statistics.median(spent[""]),
        "bare_cpu_us_per_request": statistics.median(spent[BARE]),
        "requests_per_s": statistics.median(rates),
        "requests_failed": failed,
    }


def memory_over(number: int) -> dict[str, float]:
    """Whether memory grows over many requests."""
    with engine("[reply]\ntokens = 1\n") as direct, gateway(direct) as (url, key, process):
        failed = whole(url, key, number=number // 20, concurrency=32)  # pools filled
        steps = [rss_mib(process.pid)]
        for part in range(10):
            print(f"{part * number // 10:>8} requests  {steps[-1]:.2f} MiB", flush=True)
            failed += whole(url, key, number=number // 10, concurrency=32)
            steps.append(rss_mib(process.pid))
    return {
        "rss_requests": number,
        "rss_before_mib": steps[0],
        "rss_after_mib": steps[-1],
        "rss_growth_ratio": steps[-1] / steps[0],
        "requests_failed": failed,
    }


# --- load ----------------------------------------------------------------------------------------


def load(
    seen: Streams,
    url: str,
    key: str | None,
    *,
    streams: int,
    rounds: int,
    ramp_s: float = 0.0,
) -> None:
    """Add what `streams` streams at once see, `rounds` times one after the other.

    Their starts are spread over `ramp_s`.
    """

    async def one(client: Client, number: int) -> None:
        await asyncio.sleep(number / streams * ramp_s)
        for _ in range(rounds):
            await follow(client, seen)

    async def run() -> None:
        async with Client(Endpoint(base_url=url, key=key), limits=Limits()) as client:
            await asyncio.gather(*(one(client, number) for number in range(streams)))

    run_fast(run())


async def follow(client: Client, seen: Streams) -> None:
    """One stream to its end."""
    request = ChatRequest(model="scripted", messages=HELLO, max_tokens=1000)
    async with client.open_chat(request) as stream:
        async for timed in stream:
            if timed.delta.is_token and timed.delta.sent_at is not None:
                seen.delay_s.append(timed.at - timed.delta.sent_at)
                seen.chunks += 1
        outcome = stream.outcome()
    usage, ttft_s = outcome.reply.usage, outcome.latency.ttft_s
    words = len(outcome.reply.text.split())
    if outcome.failure is not None or usage is None or usage.completion_tokens != words:
        seen.lost += 1
    if ttft_s is not None:
        seen.ttft_s.append(ttft_s)


def whole(url: str, key: str | None, *, number: int, concurrency: int) -> int:
    """How many of `number` requests, not streamed, failed."""
    request = ChatRequest(model="scripted", messages=HELLO, stream=False, max_tokens=16)
    failures = 0

    async def worker(client: Client, share: int) -> None:
        nonlocal failures
        for _ in range(share):
            failures += (await client.chat(request)).failure is not None

    async def run() -> None:
        async with Client(Endpoint(base_url=url, key=key), limits=Limits()) as client:
            await asyncio.gather(
                *(worker(client, number // concurrency) for _ in range(concurrency))
            )

    run_fast(run())
    return failures


# --- processes -----------------------------------------------------------------------------------


@contextmanager
def started(*command: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process and the address it says it listens on; stopped at the end."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None  # noqa: S101 - asked for above
        for line in process.stderr:
            if "listening on " in line:
                yield line.partition("listening on ")[2].strip(), process
                break
        else:
            sys.exit(f"{command} did not start")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def engine(scenario: str) -> Iterator[str]:
    """A scripted engine's address."""
    with tempfile.TemporaryDirectory(prefix="heavylift-bench-") as folder:
        path = Path(folder) / "scenario.toml"
        path.write_text(scenario, "utf-8")
        with started(*HEAVYLIFT, "dev", "engine", str(path)) as (url, _):
            yield url


@contextmanager
def gateway(upstream: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """A gateway's address, a key with every kind of quota, and its process."""
    with tempfile.TemporaryDirectory(prefix="heavylift-bench-") as folder:
        huge = str(10**12)
        limits = [
            part
            for name in ("requests-per-minute", "tokens-per-minute", "tokens-per-day", "concurrent")
            for part in (f"--{name}", huge)
        ]
        made = subprocess.run(
            [*HEAVYLIFT, "keys", "create", "bench", *limits, "--state", folder, "--json"],
            check=True,
            capture_output=True,
        )
        key = msgspec.json.decode(made.stdout)["key"]
        arguments = (
            *HEAVYLIFT,
            "gateway",
            "--upstream",
            upstream,
            "--port",
            "0",
            "--state",
            folder,
        )
        with started(*arguments) as (url, process):
            yield url, key, process


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def idle_cpu_s(pid: int, seconds: float = 3.0) -> float:
    """CPU time per second of a gateway with nothing to do."""
    before = cpu_s(pid)
    time.sleep(seconds)
    return (cpu_s(pid) - before) / seconds


def rss_mib(pid: int) -> float:
    """Resident memory of a process, MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


# --- figures -------------------------------------------------------------------------------------


def percentile(values: Sequence[float], percent: int) -> float:
    """The percentile of some values."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def added(through: Sequence[float], straight: Sequence[float], percent: int) -> float:
    """Difference of a percentile of two runs, ms."""
    return (percentile(through, percent) - percentile(straight, percent)) * 1e3


def machine() -> dict[str, object]:
    """What it ran on."""
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "at": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def print_results(results: dict[str, float]) -> None:
    """One line per figure, with its target and verdict where there is one."""
    for name, value in results.items():
        target = TARGETS.get(name)
        told = "" if target is None else f"  target {target:g}  {verdict(name, results)}"
        print(f"{name:<32}{value:>12.3f}{told}", flush=True)


def verdict(name: str, results: dict[str, float]) -> str:
    """Whether a figure keeps its target; whether it is the machine that does not."""
    if results[name] <= TARGETS[name]:
        return "ok"
    if results.get(BARE + name, 0.0) > TARGETS[name]:
        return "not judged: the bare proxy misses it too, the machine is busy"
    return "MISSED"


def print_verdict(results: dict[str, float]) -> None:
    """All targets in one line each."""
    judged = {name: verdict(name, results) for name in TARGETS if name in results}
    print("\n" + "\n".join(f"{name:<24}{word}" for name, word in judged.items()))


if __name__ == "__main__":
    main()
