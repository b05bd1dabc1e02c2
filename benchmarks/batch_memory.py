"""The memory and the cost per row of a batch as it grows: 1,000 to 1,000,000 rows.

Run it with `make bench-batch-memory` (minutes). Each size is a fresh `heavylift batch run` against
the mock, with 256 requests at once; memory is the largest resident set of the process as the kernel
counts it. Ends with 1 when a million rows need more than 250 MB.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LIMIT_MB = 250


def main() -> int:
    """Measure each size and print a line for it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    sizes = options.parse_args().rows
    sys.path.insert(0, str(HERE))
    speed = importlib.import_module("batch_speed")
    mock = subprocess.Popen([sys.executable, HERE / "batch_mock.py"], stdout=subprocess.PIPE)
    worst = 0.0
    try:
        assert mock.stdout is not None  # noqa: S101 - for the type
        url = f"http://127.0.0.1:{int(mock.stdout.readline())}"
        print("     rows   CPU us/row   wall s   rows/s   RSS MB   journal MB")
        for rows in sizes:
            folder = Path(tempfile.mkdtemp(prefix="batch-memory-"))
            try:
                speed.write_input(folder / "input.jsonl", rows)
                argv = speed.heavylift(folder / "input.jsonl", folder / "out", url)
                began = os.times().elapsed
                process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode:
                    return process.returncode
                wall = os.times().elapsed - began
                cpu = (usage.ru_utime + usage.ru_stime) / rows * 1e6
                resident = usage.ru_maxrss * 1024 / 1e6
                journal = (folder / "out" / "journal.db").stat().st_size / 1e6
                worst = max(worst, resident)
                figures = f"{rows:9}{cpu:13.0f}{wall:9.1f}{rows / wall:9.0f}"
                print(f"{figures}{resident:9.0f}{journal:13.1f}", flush=True)
            finally:
                shutil.rmtree(folder)
    finally:
        mock.kill()
        mock.wait()
    return int(worst > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
