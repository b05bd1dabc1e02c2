"""What it costs to import Heavylift: CPU, in ms and as a ratio.

Run it with `make bench-import`. Each program is a fresh process that reads its bytecode from the
disk, as after an installation; they take turns, so that all meet the same neighbours. Medians, and
the least. The target is of `import heavylift`: at most 60 ms of CPU over the bare interpreter.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from typing import Final

TARGET_MS: Final = 60.0
PROGRAMS: Final = {
    "python -c pass": "pass",
    "import heavylift": "import heavylift",
    "import heavylift.api": "import heavylift.api",
    "heavylift.plan: the name alone": "import heavylift; heavylift.plan",
    "heavylift.cli.main (every command starts so)": "import heavylift.cli.main",
}


def cpu_ms(program: str) -> float:
    """User and system time of a fresh interpreter with a program, in ms, by the kernel."""
    process = subprocess.Popen([sys.executable, "-c", program])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{program}: {process.returncode}")
    return 1e3 * (usage.ru_utime + usage.ru_stime)


def main() -> int:
    """Measure and print; 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=31)
    runs = parser.parse_args().runs
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for name, program in PROGRAMS.items():
        cpu_ms(program)  # writes the bytecode, where it may
        taken[name].clear()
    for _ in range(runs):
        for name, program in PROGRAMS.items():
            taken[name].append(cpu_ms(program))
    bare = statistics.median(taken["python -c pass"])
    print("| program | CPU ms, median | least | over the bare interpreter, ms | ratio |")
    print("|---|---|---|---|---|")
    for name, found in taken.items():
        middle = statistics.median(found)
        over = middle - bare
        print(f"| `{name}` | {middle:.1f} | {min(found):.1f} | {over:.1f} | {middle / bare:.2f} |")
    over = statistics.median(taken["import heavylift"]) - bare
    print(f"\nimport heavylift: {over:.1f} ms over the bare interpreter (target {TARGET_MS:.0f})")
    return int(over > TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
