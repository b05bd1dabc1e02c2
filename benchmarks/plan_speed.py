"""How long a plan of Kimi K3 takes, whole process, beside what other planners were recorded to say.

Run it with `make bench-plan`. Every figure is the median of several runs of a fresh process: CPU
seconds (user and system) and the largest resident memory, as the kernel counts them. Two baselines
run in the same minutes, because shared machines differ by the hour: an interpreter that does
nothing, and the standard library's `json` reading the same headers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GIB: Final = 2**30
HERE: Final = Path(__file__).parent
HEAVYLIFT: Final = (sys.executable, "-m", "heavylift")

# A plan's verdict against the rack is an answer as well.
ANSWERED: Final = (0, 1)

READ_HEADERS: Final = """
import pathlib, sys
from heavylift.checkpoint.read import read_checkpoint
read_checkpoint(pathlib.Path(sys.argv[1])).require_sound()
"""
READ_WITH_JSON: Final = """
import json, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    with path.open("rb") as file:
        json.loads(file.read(int.from_bytes(file.read(8), "little")))
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Medians over runs of one command; `failed` is the status it ended with instead."""

    name: str
    cpu_s: float = 0.0
    wall_s: float = 0.0
    rss_mib: float = 0.0
    failed: int | None = None


def main() -> None:
    """Measure, then print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=7, help="runs of each command (at least 5)")
    parser.add_argument(
        "--folder", type=Path, help="a sparse checkpoint to use instead of a new one"
    )
    options = parser.parse_args()
    runs = max(5, options.runs)
    with sparse_checkpoint(options.folder) as folder:
        measured = costs(folder, runs)
    print_costs(measured, runs)
    print_answers(tomllib.loads((HERE / "rivals_plan.toml").read_text("utf-8")))
    sys.exit(any(cost.failed is not None for cost in measured))


@contextmanager
def sparse_checkpoint(given: Path | None) -> Iterator[Path]:
    """The folder of headers: the given one, or a new one that is removed afterwards."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="heavylift-bench-") as scratch:
        folder = Path(scratch) / "kimi-k3"
        subprocess.run(
            [*HEAVYLIFT, "dev", "sparse-checkpoint", "kimi-k3", str(folder)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        yield folder


def costs(folder: Path, runs: int) -> list[Cost]:
    """All commands, run in turns so that a slow minute touches each of them."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "json.loads of all headers": [sys.executable, "-c", READ_WITH_JSON, str(folder)],
        "our reader, all headers": [sys.executable, "-c", READ_HEADERS, str(folder)],
        "plan kimi-k3, from facts": [*HEAVYLIFT, "plan", "kimi-k3", "--on", "8xMI355X"],
        "plan FOLDER, 96 shards": [*HEAVYLIFT, "plan", str(folder), "--on", "8xMI355X"],
    }
    samples: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            samples[name].append(measure(name, command))
    return [median(taken) for taken in samples.values()]


def median(taken: Sequence[Cost]) -> Cost:
    """The median of each figure; a single failure makes the whole row a failure."""
    return next(
        (cost for cost in taken if cost.failed is not None),
        Cost(
            name=taken[0].name,
            cpu_s=statistics.median(cost.cpu_s for cost in taken),
            wall_s=statistics.median(cost.wall_s for cost in taken),
            rss_mib=statistics.median(cost.rss_mib for cost in taken),
        ),
    )


def measure(name: str, command: Sequence[str]) -> Cost:
    """CPU seconds, wall seconds and peak MiB of one process, its children included."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in ANSWERED:
        return Cost(name=name, failed=process.returncode)
    return Cost(
        name=name,
        cpu_s=usage.ru_utime + usage.ru_stime,
        wall_s=wall,
        rss_mib=usage.ru_maxrss / 1024,
    )


def print_costs(measured: Sequence[Cost], runs: int) -> None:
    """Our costs, with the ratio to both baselines."""
    bare, plain_json = measured[0], measured[1]
    print(f"Whole process, medians of {runs} runs")
    print(f"{'':27}{'CPU s':>8}{'wall s':>8}{'peak MiB':>10}{'× python':>10}{'× json':>8}")
    for cost in measured:
        if cost.failed is not None:
            print(f"{cost.name:27}ended with status {cost.failed}")
            continue
        print(
            f"{cost.name:27}{cost.cpu_s:8.3f}{cost.wall_s:8.3f}{cost.rss_mib:10.0f}"
            f"{cost.cpu_s / bare.cpu_s:10.1f}{cost.cpu_s / plain_json.cpu_s:8.2f}"
        )


def print_answers(record: Mapping[str, Any]) -> None:
    """Our answers now, beside the recorded ones."""
    truth = record["truth"]
    racks = list(truth["racks"])
    print()
    print(f"Answers for Kimi K3; others as recorded on {record['record']['as_of']}")
    print(f"(seconds are wall time there: {record['record']['machine']})")
    print(
        f"{'':23}{'s':>10}{'TP8 weights':>13}{'KV of 1M':>10}"
        + "".join(f"{rack:>10}" for rack in racks)
    )
    low, high = truth["kv_gib"]
    print(row(("truth", "", f"{truth['weights_gib']:.3f}", f"{low:g}-{high:g}"), truth, racks))
    print(row(("heavylift, now", "", *our_sizes()), {"racks": our_verdicts(racks)}, racks))
    for rival in record["rivals"]:
        first, last = rival["seconds"]
        seconds = f"{first:g}" if first == last else f"{first:g}-{last:g}"
        name = f"{rival['name']} {rival['version']}"
        weights, kv = (
            f"{rival[key]:g}" if key in rival else "-" for key in ("weights_gib", "kv_gib")
        )
        print(row((name, seconds, weights, kv), rival, racks))
    print()
    for rival in record["rivals"]:
        print(f"{rival['name']}: {rival['note']}")


def row(cells: tuple[str, str, str, str], answer: Mapping[str, Any], racks: Sequence[str]) -> str:
    """One line of the table: name, seconds, weights, KV, then a verdict per rack."""
    name, seconds, weights, kv = cells
    verdicts = answer.get("racks", {})
    answers = "".join(f"{verdicts.get(rack, '-'):>10}" for rack in racks)
    return f"{name:23}{seconds:>10}{weights:>13}{kv:>10}{answers}"


def our_sizes() -> tuple[str, str]:
    """GiB of weights and of one 1M sequence's KV, from the plan itself."""
    plan = planned("8xMI355X", "--engine", "atom", "--tp", "8", "--text-only", "--context", "1M")
    weights, kv = (plan["per_gpu"][f"{part}_bytes"]["low"] for part in ("weights", "kv_cache"))
    return f"{weights / GIB:.3f}", f"{kv / GIB:g}"


def our_verdicts(racks: Sequence[str]) -> dict[str, str]:
    """Our verdict per rack, in the record's words."""
    words = {"does_not_fit": "no"}
    verdicts = {rack: planned(rack)["verdict"] for rack in racks}
    return {rack: words.get(verdict, verdict) for rack, verdict in verdicts.items()}


def planned(rack: str, *options: str) -> dict[str, Any]:
    """A plan of Kimi K3 as JSON. A verdict against is an answer too, so any status is taken."""
    finished = subprocess.run(
        [*HEAVYLIFT, "plan", "kimi-k3", "--on", rack, *options, "--json"],
        check=False,
        capture_output=True,
        text=True,
    )
    try:
        plan: dict[str, Any] = json.loads(finished.stdout)
    except json.JSONDecodeError:
        sys.exit(f"plan kimi-k3 --on {rack} gave no plan: {finished.stderr}")
    return plan


if __name__ == "__main__":
    main()
