"""How long the whole search takes: every rack, engine, KV dtype and layout for Kimi K3.

Run it with `make bench-search`. Every figure is of a fresh process: CPU seconds (user and system)
and wall seconds, the median and the least of several runs, beside an interpreter that does nothing.
The machine is shared; the least is what an idle one takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

HEAVYLIFT: Final = (sys.executable, "-m", "heavylift")
COMMANDS: Final = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "compare kimi-k3 --all": (*HEAVYLIFT, "compare", "kimi-k3", "--all"),
    "compare kimi-k3 --search": (*HEAVYLIFT, "compare", "kimi-k3", "--search"),
    "… --search --engine vllm": (*HEAVYLIFT, "compare", "kimi-k3", "--search", "--engine", "vllm"),
    "fit --on 8xH100": (*HEAVYLIFT, "fit", "--on", "8xH100"),
    "variants kimi-k3": (*HEAVYLIFT, "variants", "kimi-k3"),
}
ANSWERED: Final = (0, 1)


def main() -> None:
    """Measure all commands in turns, then print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each command (at least 3)")
    runs = max(3, parser.parse_args().runs)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            taken[name].append(measured(command))
    load = os.getloadavg()[0]
    print(f"Whole process, {runs} runs; load average {load:.1f} on {os.cpu_count()} cores")
    print(f"{'':28}{'CPU s':>8}{'least':>8}{'wall s':>8}{'least':>8}")
    for name, samples in taken.items():
        cpu, wall = [each[0] for each in samples], [each[1] for each in samples]
        print(
            f"{name:28}{statistics.median(cpu):8.2f}{min(cpu):8.2f}"
            f"{statistics.median(wall):8.2f}{min(wall):8.2f}"
        )
    print()
    print(searched())


def measured(command: Sequence[str]) -> tuple[float, float]:
    """CPU and wall seconds of one process."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in ANSWERED:
        sys.exit(f"{' '.join(command)} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, wall


def searched() -> str:
    """How many ways the search looked through, in words."""
    finished = subprocess.run(
        [*HEAVYLIFT, "compare", "kimi-k3", "--search", "--json"],
        check=False,
        capture_output=True,
        text=True,
    )
    found = json.loads(finished.stdout)
    return (
        f"{found['candidates']:,} ways (layout × KV dtype × engine) on {found['racks']} racks; "
        f"{found['refused']:,} refused by the engine, {found['too_small']:,} on racks too small"
    )


if __name__ == "__main__":
    main()
