"""What the gateway costs: CPU, delay and memory, beside the same traffic without it.

Run it with `make bench-gateway`. A scripted engine, the gateway (keys, quotas and audit on) and
this load are three processes on loopback. Every figure that says "added" is the difference of two
runs of the same load in the same minutes, one straight to the engine. CPU is user and system time
of the gateway's process as the kernel counts it. Chunks carry the time at which the engine sent
them, so that a delay is measured per chunk.
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
    "rss_growth_ratio": 1.05,
}


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
    parser.add_argument("--write", type=Path, help="file to write the results to (JSON)")
    options = parser.parse_args()
    results = measure(short=options.short)
    if options.write is not None:
        document = {"machine": machine(), "short": options.short, "results": results}
        options.write.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def measure(*, short: bool) -> dict[str, float]:
    """All figures, printed as they come."""
    scale = 10 if short else 1
    results: dict[str, float] = {}
    parts: tuple[Callable[[], dict[str, float]], ...] = (
        lambda: streaming(streams=64, tokens=500 // scale, interval_s=0.02),
        lambda: many_streams(streams=1000 // scale, seconds=60 // scale),
        lambda: requests(number=10_000 // scale, memory_number=200_000 // scale),
    )
    for part in parts:
        figures = part()
        print_results(figures)
        results |= figures
    return results


# --- the three measurements ----------------------------------------------------------------------


def streaming(*, streams: int, tokens: int, interval_s: float) -> dict[str, float]:
    """CPU per chunk and what is added to each chunk's way, at a usual pace.

    Straight, through the gateway and through the bare proxy by turns, in rounds.
    """
    scenario = f"[pace]\nttft_s = 0.2\ninterval_s = {interval_s}\n[reply]\ntokens = {tokens}\n"
    spread_s = 0.2 + tokens * interval_s  # evenly, so that starts do not come in a burst
    straight, through, bare = Streams(), Streams(), Streams()
    spent_s = bare_s = 0.0
    with (
        engine(scenario) as direct,
        gateway(direct) as (url, key, process),
        started(*BARE_PROXY, direct) as (bare_url, bare_process),
    ):
        for target, its_key in ((direct, None), (url, key), (bare_url, None)):  # all warm
            load(Streams(), target, its_key, streams=8, rounds=1)
        for _ in range(2):
            load(straight, direct, None, streams=streams, rounds=2, ramp_s=spread_s)
            before = cpu_s(process.pid)
            load(through, url, key, streams=streams, rounds=2, ramp_s=spread_s)
            spent_s += cpu_s(process.pid) - before
            before = cpu_s(bare_process.pid)
            load(bare, bare_url, None, streams=streams, rounds=2, ramp_s=spread_s)
            bare_s += cpu_s(bare_process.pid) - before
        idle_s = idle_cpu_s(process.pid)
    return {
        "cpu_us_per_chunk": spent_s / through.chunks * 1e6,
        "bare_cpu_us_per_chunk": bare_s / bare.chunks * 1e6,
        "idle_cpu_ms_per_s": idle_s * 1e3,
        "direct_delay_p50_ms": percentile(straight.delay_s, 50) * 1e3,
        "direct_delay_p99_ms": percentile(straight.delay_s, 99) * 1e3,
        "added_delay_p50_ms": added(through.delay_s, straight.delay_s, 50),
        "added_delay_p99_ms": added(through.delay_s, straight.delay_s, 99),
        "bare_added_delay_p99_ms": added(bare.delay_s, straight.delay_s, 99),
        "added_ttft_p50_ms": added(through.ttft_s, straight.ttft_s, 50),
        "bare_added_ttft_p50_ms": added(bare.ttft_s, straight.ttft_s, 50),
        "added_ttft_p99_ms": added(through.ttft_s, straight.ttft_s, 99),
    }


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


def requests(*, number: int, memory_number: int) -> dict[str, float]:
    """CPU per request, and whether memory grows over many."""
    scenario = "[reply]\ntokens = 1\n"
    with (
        engine(scenario) as direct,
        gateway(direct) as (url, key, process),
        started(*BARE_PROXY, direct) as (bare_url, bare_process),
    ):
        whole(url, key, number=max(500, memory_number // 20), concurrency=32)  # pools filled
        whole(bare_url, None, number=500, concurrency=32)
        before = cpu_s(bare_process.pid)
        whole(bare_url, None, number=number, concurrency=32)
        bare_s = cpu_s(bare_process.pid) - before
        before, began = cpu_s(process.pid), time.perf_counter()
        failed = whole(url, key, number=number, concurrency=32)
        spent_s, took_s = cpu_s(process.pid) - before, time.perf_counter() - began
        rss_before = rss_mib(process.pid)
        failed += whole(url, key, number=memory_number, concurrency=32)
        rss_after = rss_mib(process.pid)
    return {
        "cpu_us_per_request": spent_s / number * 1e6,
        "bare_cpu_us_per_request": bare_s / number * 1e6,
        "requests_per_s": number / took_s,
        "requests_failed": failed,
        "rss_requests": memory_number,
        "rss_before_mib": rss_before,
        "rss_after_mib": rss_after,
        "rss_growth_ratio": rss_after / rss_before,
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
    """One line per figure, with its target where there is one."""
    for name, value in results.items():
        target = TARGETS.get(name)
        verdict = (
            ""
            if target is None
            else f"  target {target:g}  {'ok' if value <= target else 'MISSED'}"
        )
        print(f"{name:<28}{value:>12.3f}{verdict}", flush=True)


if __name__ == "__main__":
    main()
