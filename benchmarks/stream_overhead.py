"""What our client and the scripted server cost per streamed event, and what the client adds.

The server paces 50 tokens a second on each of N streams and stamps every send; the client compares
its receive with the stamp. Both processes run on this machine, so the clocks are one clock.
Prints one line per N: `make bench-stream`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

from heavylift.wire.client import Client, Endpoint
from heavylift.wire.reply import ChatRequest

STREAMS = (64, 256)
SCENARIO = "[pace]\nttft_s = 0.2\ninterval_s = 0.02\n[reply]\ntokens = 100\n"
REQUEST = ChatRequest(model="scripted", messages=({"role": "user", "content": "hello"},))
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Runs the benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "paced.toml"
        scenario.write_text(SCENARIO)
        command = [sys.executable, "-m", "heavylift", "dev", "engine", str(scenario)]
        port = _free_port()
        url = f"http://127.0.0.1:{port}"
        with subprocess.Popen(
            [*command, "--port", str(port)], stderr=subprocess.PIPE, text=True
        ) as server:
            try:
                next(iter(server.stderr or ()))  # it says that it listens
                for streams in STREAMS:
                    print(asyncio.run(_measure(url, server.pid, streams)))
            finally:
                server.terminate()


async def _measure(url: str, server_pid: int, streams: int) -> str:
    lags: list[float] = []
    async with Client(Endpoint.parse(url)) as client:

        async def one() -> float:
            async with client.open_chat(REQUEST) as stream:
                lags.extend(
                    [
                        timed.at - timed.delta.sent_at
                        async for timed in stream
                        if timed.delta.sent_at is not None
                    ]
                )
            outcome = stream.outcome()
            if outcome.latency.ttft_s is None:
                sys.exit(f"a stream failed: {outcome.failure}")
            return outcome.latency.ttft_s

        client_before, server_before = time.process_time(), _cpu_s(server_pid)
        began = time.perf_counter()
        ttfts = await asyncio.gather(*(one() for _ in range(streams)))
        wall_s = time.perf_counter() - began
    client_s = time.process_time() - client_before
    server_s = _cpu_s(server_pid) - server_before
    lag = quantiles(lags, n=100)
    ttft = quantiles(ttfts, n=100)
    return (
        f"{streams} streams, {len(lags)} events in {wall_s:.2f} s: "
        f"receive - send p50 {lag[49] * 1e3:.2f} ms, p99 {lag[98] * 1e3:.2f} ms; "
        f"TTFT (200 ms) p50 {ttft[49] * 1e3:.0f} ms; "
        f"CPU per event: client {client_s / len(lags) * 1e6:.0f} us, "
        f"server {server_s / len(lags) * 1e6:.0f} us"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _cpu_s(pid: int) -> float:
    """User and system time of a process so far: fields 14 and 15 of proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


if __name__ == "__main__":
    main()
