"""The gateway beside other gateways and a bare proxy, the same load on each in the same minutes.

`python benchmarks/gateway_rivals.py [FOLDER]`: FOLDER holds an environment for each rival, made by
`make rivals` (`FOLDER/vllm-router`, `FOLDER/smg`, `FOLDER/litellm`); one that is not there is said
and left out. What the others do for a request differs: ours checks a key and four quotas against a
database, settles, and writes an audit line; the routers check nothing; LiteLLM checks one key.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway import (
    BARE_PROXY,
    TICKS_PER_S,
    Streams,
    added,
    engine,
    gateway,
    load,
    machine,
    rss_mib,
    started,
    whole,
)

STREAMS: Final = 64
TOKENS: Final = 150
INTERVAL_S: Final = 0.02
REQUESTS: Final = 3000
SLOW_REQUESTS: Final = 320
"""For a rival that takes tens of milliseconds for one."""


@dataclass(frozen=True, kw_only=True)
class Rival:
    """Something that listens at `url` and passes on. `program` = its environment and version."""

    name: str
    url: str
    key: str | None
    process: subprocess.Popen[str]
    slow: bool = False


def main() -> None:
    """Start all, measure one after the other, print a table."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".venv-rivals")
    print(machine())
    scenario = f"[pace]\nttft_s = 0.2\ninterval_s = {INTERVAL_S}\n[reply]\ntokens = {TOKENS}\n"
    with engine(scenario) as paced, engine("[reply]\ntokens = 1\n") as quick:
        straight = Streams()
        load(straight, paced, None, streams=STREAMS, rounds=2, ramp_s=ramp_s())
        print(
            f"{'':<22}{'CPU/chunk':>10}{'CPU/req':>9}{'TTFT+':>8}{'p99+':>8}{'lost':>6}{'RSS':>7}"
        )
        for name in ("heavylift", "bare", "vllm-router", "smg", "litellm"):
            print(row(name, folder, paced, quick, straight), flush=True)


def ramp_s() -> float:
    """Starts are spread over the length of a stream."""
    return 0.2 + TOKENS * INTERVAL_S


def row(name: str, folder: Path, paced: str, quick: str, straight: Streams) -> str:
    """One line of the table."""
    with ExitStack() as stack:
        rivals = [opened(stack, name, folder, upstream) for upstream in (paced, quick)]
        if None in rivals:
            return f"{name:<22}not installed"
        streaming, plain = (rival for rival in rivals if rival is not None)
        through = Streams()
        load(Streams(), streaming.url, streaming.key, streams=8, rounds=1)
        before = tree_cpu_s(streaming.process.pid)
        load(through, streaming.url, streaming.key, streams=STREAMS, rounds=2, ramp_s=ramp_s())
        chunk_us = (tree_cpu_s(streaming.process.pid) - before) / (2 * STREAMS * TOKENS) * 1e6
        number = SLOW_REQUESTS if plain.slow else REQUESTS
        whole(plain.url, plain.key, number=number // 5, concurrency=32)
        before = tree_cpu_s(plain.process.pid)
        lost = through.lost + whole(plain.url, plain.key, number=number, concurrency=32)
        request_us = (tree_cpu_s(plain.process.pid) - before) / number * 1e6
        ttft_ms = added(through.ttft_s, straight.ttft_s, 50)
        # A rival that writes the chunks anew loses the time at which they were sent.
        seen = len(through.delay_s) > 1
        gap_ms = added(through.delay_s, straight.delay_s, 99) if seen else float("nan")
        rss = rss_mib(streaming.process.pid)
        title = f"{name} {version(name, folder)}"
        figures = f"{chunk_us:>10.1f}{request_us:>9.0f}{ttft_ms:>8.2f}{gap_ms:>8.2f}"
        return f"{title:<22}{figures}{lost:>6}{rss:>7.0f}"


def opened(stack: ExitStack, name: str, folder: Path, upstream: str) -> Rival | None:
    """A rival before an engine; None when it is not installed."""
    if name == "heavylift":
        url, key, process = stack.enter_context(gateway(upstream))
        return Rival(name=name, url=url, key=key, process=process)
    if name == "bare":
        url, process = stack.enter_context(started(*BARE_PROXY, upstream))
        return Rival(name=name, url=url, key=None, process=process)
    program = folder / name / "bin" / name
    if not program.exists():
        return None
    return stack.enter_context(rival(name, str(program.absolute()), upstream))


@contextmanager
def rival(name: str, program: str, upstream: str) -> Iterator[Rival]:
    """A rival as its own documentation starts it, without retries; stopped at the end."""
    port, other = free_port(), free_port()
    key = None
    with tempfile.TemporaryDirectory(prefix="heavylift-rival-") as folder:
        environment = dict(os.environ)
        here = ("--host", "127.0.0.1", "--port", str(port))
        if name == "litellm":
            key = "sk-bench"
            config = Path(folder) / "config.yaml"
            config.write_text(
                "model_list:\n- model_name: scripted\n  litellm_params:\n"
                f"    model: openai/scripted\n    api_base: {upstream}/v1\n    api_key: none\n"
                f"general_settings:\n  master_key: {key}\n",
                "utf-8",
            )
            command = [program, "--config", str(config), *here]
        else:
            launch = ("launch", "--disable-tokenizer-autoload") if name == "smg" else ()
            level = "warn" if name == "smg" else "warning"
            command = [
                *(program, *launch, *here, "--worker-urls", upstream, "--disable-retries"),
                *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(other)),
                *("--policy", "round_robin", "--log-level", level),
            ]
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, text=True, env=environment, cwd=folder
            )
            try:
                url = f"http://127.0.0.1:{port}"
                wait(url, key)
                yield Rival(name=name, url=url, key=key, process=process, slow=name == "litellm")
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def wait(url: str, key: str | None) -> None:
    """Until it lists a model."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/v1/models", headers=headers)  # noqa: S310 - ours
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:  # noqa: S310 - ours
                if b"scripted" in reply.read():
                    return
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.2)


def version(name: str, folder: Path) -> str:
    """The version that is installed; empty for our own two."""
    found = sorted(folder.glob(f"{name}/lib/*/site-packages/{name.replace('-', '_')}-*.dist-info"))
    return found[0].name.split("-")[1].removesuffix(".dist") if found else ""


def tree_cpu_s(pid: int) -> float:
    """CPU time of a process and of those it started, seconds."""
    parents: dict[int, list[tuple[int, float]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        spent_s = sum(int(fields[place]) for place in (11, 12)) / TICKS_PER_S
        number = int(path.parent.name)
        parents.setdefault(int(fields[1]), []).append((number, spent_s))
        if number == pid:
            own_s = spent_s
    total_s, waiting = own_s, [pid]
    while waiting:
        for child, spent_s in parents.get(waiting.pop(), []):
            total_s += spent_s
            waiting.append(child)
    return total_s


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
