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
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GIB: Final = 2**30
HERE: Final = Path(__file__).parent
HEAVYLIFT: Final = (sys.executable, "-m", "heavylift")

READ_WITH_JSON: Final = """
import json, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    with path.open("rb") as file:
        json.loads(file.read(int.from_bytes(file.read(8), "little")))
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Medians over runs of one command."""

    name: str
    cpu_s: float
    wall_s: float
    rss_mib: float


def main() -> None:
    """Measure, then print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=7, help="runs of each command (at least 5)")
    parser.add_argument("--folder", type=Path, help="a sparse checkpoint to use instead of a new one")
    options = parser.parse_args()
    runs = max(5, options.runs)
    with sparse_checkpoint(options.folder) as folder:
        print_costs(costs(folder, runs), runs)
    print_answers(tomllib.loads((HERE / "rivals_plan.toml").read_text("utf-8")))


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
    """The four commands, run in turns so that a slow minute touches all of them."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "json.loads of all headers": [sys.executable, "-c", READ_WITH_JSON, str(folder)],
        "plan kimi-k3, from facts": [*HEAVYLIFT, "plan", "kimi-k3", "--on", "8xMI355X"],
        "plan FOLDER, 96 shards": [*HEAVYLIFT, "plan", str(folder), "--on", "8xMI355X"],
    }
    samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            samples[name].append(measure(command))
    return [
        Cost(
            name=name,
            cpu_s=statistics.median(cpu for cpu, _, _ in taken),
            wall_s=statistics.median(wall for _, wall, _ in taken),
            rss_mib=statistics.median(rss for _, _, rss in taken),
        )
        for name, taken in samples.items()
    ]


def measure(command: Sequence[str]) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and peak MiB of one process, its children included."""
    started = os.times().elapsed
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = os.times().elapsed - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command[:6])} … ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024


def print_costs(measured: Sequence[Cost], runs: int) -> None:
    """Our costs, with the ratio to both baselines."""
    bare, plain_json = measured[0], measured[1]
    print(f"Whole process, medians of {runs} runs")
    print(
        f"{'':27}{'CPU s':>8}{'wall s':>8}{'peak MiB':>10}"
        f"{'× python':>10}{'× json':>8}"
    )
    for cost in measured:
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
    print(row("truth", "", f"{truth['weights_gib']:.3f}", f"{low:g}-{high:g}", truth, racks))
    print(row("heavylift, now", "", *our_sizes(), {"racks": our_verdicts(racks)}, racks))
    for rival in record["rivals"]:
        first, last = rival["seconds"]
        seconds = f"{first:g}" if first == last else f"{first:g}-{last:g}"
        name = f"{rival['name']} {rival['version']}"
        weights, kv = (f"{rival[key]:g}" if key in rival else "-" for key in SIZE_KEYS)
        print(row(name, seconds, weights, kv, rival, racks))
    print()
    for rival in record["rivals"]:
        print(f"{rival['name']}: {rival['note']}")


SIZE_KEYS: Final = ("weights_gib", "kv_gib")


def row(
    name: str, seconds: str, weights: str, kv: str, answer: Mapping[str, Any], racks: Sequence[str]
) -> str:
    """One line of the table of answers."""
    verdicts = answer.get("racks", {})
    cells = "".join(f"{verdicts.get(rack, '-'):>10}" for rack in racks)
    return f"{name:23}{seconds:>10}{weights:>13}{kv:>10}{cells}"


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
