"""What `heavylift bench` adds to the latencies it reports, and what starting it costs.

Against the stamped paced server: receive - stamp. Against the unstamped one (first token after
200 ms, one every 20 ms): the reported TTFT and TPOT. Then: from the command's start to its first
request, and that it loads no torch. Prints the numbers beside their limits; ends with status 1 when
one is over: `make bench-client`.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STREAMS = (64, 256)
TRUE_TTFT_S, TRUE_TPOT_S = 0.2, 0.02
STAMP_ERROR_LIMIT_S = {64: 0.005, 256: 0.015}
TTFT_ERROR_LIMIT_S = 0.030
START_LIMIT_S = 1.0
PYTHON = [sys.executable, "-m", "heavylift"]


def main() -> int:
    """Runs the benchmark; the status says whether all limits held."""
    print(
        f"load average of the machine before: {os.getloadavg()[0]:.1f} (its other work shows below)"
    )
    with _server("paced") as url:
        held = [_stamped(url, streams) for streams in STREAMS]
    with _server("unstamped") as url:
        held += [_unstamped(url, streams) for streams in STREAMS]
    with _server("paced") as url:
        held.append(_start(url))
    held.append(_no_torch())
    return 0 if all(held) else 1


def _stamped(url: str, streams: int) -> bool:
    error = _bench(url, streams)["stamp_error_s"]
    limit_s = STAMP_ERROR_LIMIT_S[streams]
    print(
        f"{streams} streams, stamped: receive - stamp p50 {error['p50'] * 1e3:.2f} ms "
        f"(limit {limit_s * 1e3:.0f}), p99 {error['p99'] * 1e3:.2f} ms"
    )
    return bool(error["p50"] <= limit_s)


def _unstamped(url: str, streams: int) -> bool:
    report = _bench(url, streams)
    ttft_s, tpot_s = report["ttft_s"]["p50"], report["tpot_s"]["p50"]
    print(
        f"{streams} streams, unstamped: TTFT p50 {ttft_s * 1e3:.1f} ms "
        f"(true {TRUE_TTFT_S * 1e3:.0f}, limit {TTFT_ERROR_LIMIT_S * 1e3:.0f} off), "
        f"TPOT p50 {tpot_s * 1e3:.2f} ms (true {TRUE_TPOT_S * 1e3:.0f}), valid {report['valid']}"
    )
    return bool(abs(ttft_s - TRUE_TTFT_S) <= TTFT_ERROR_LIMIT_S and report["valid"])


def _start(url: str) -> bool:
    began_at = time.perf_counter()
    command = [*PYTHON, "bench", url, "--requests", "1", "--warm-up", "0", "--json"]
    subprocess.run(command, capture_output=True, check=True)
    with urllib.request.urlopen(f"{url}/dev/requests") as reply:  # noqa: S310 - our own server
        first_at = json.load(reply)[0]["came_at"]
    start_s = first_at - began_at
    print(f"start to first request: {start_s:.2f} s (limit {START_LIMIT_S:.0f})")
    return bool(start_s <= START_LIMIT_S)


def _no_torch() -> bool:
    code = "import sys, heavylift.bench.run; print('torch' in sys.modules, len(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, modules = said.stdout.split()
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    print(f"torch loaded: {loaded}; modules loaded: {modules}; peak memory {peak_mb:.0f} MB")
    return loaded == "False"


def _bench(url: str, streams: int) -> dict[str, Any]:
    options = ["--concurrency", str(streams), "--requests", str(4 * streams)]
    command = [*PYTHON, "bench", url, *options, "--output-tokens", "64", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    report["stamp_error_s"] = report["stages"][-1]["stamp_error_s"]
    return report


@contextmanager
def _server(scenario: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [*PYTHON, "dev", "engine", scenario, "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            next(iter(server.stderr or ()))  # it says that it listens
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


if __name__ == "__main__":
    sys.exit(main())
