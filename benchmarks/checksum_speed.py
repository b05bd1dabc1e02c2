"""How fast `heavylift checksum` hashes, beside openssl and the disk in the same run.

    python benchmarks/checksum_speed.py [--gb 4] [--folder DIR]

Writes files of random bytes, then measures, each several times in turn: openssl's own speed of
SHA-256 on one processor and on all, reading the files without hashing them, and the check. The
ceiling is the slower of openssl on all processors and reading.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from heavylift.checkpoint.integrity import NoDigests, check

ROUNDS = 3
CHUNK = 4 * 2**20


def openssl(processors: int) -> float:
    """GB/s of SHA-256 over blocks of 16 KiB, as openssl measures itself."""
    command = ["openssl", "speed", "-seconds", "1", "-bytes", "16384"]
    if processors > 1:
        command += ["-multi", str(processors)]
    ran = subprocess.run([*command, "-evp", "sha256"], capture_output=True, text=True, check=True)
    found = re.findall(r"sha256\s+([0-9.]+)k", ran.stdout, re.IGNORECASE)
    return float(found[-1]) * 1000 / 1e9


def read_all(paths: list[Path], processors: int) -> float:
    """GB/s of reading the files several at once, without hashing."""

    def read(path: Path) -> int:
        buffer = bytearray(CHUNK)
        done = 0
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                done += count
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(processors) as pool:
        total = sum(pool.map(read, paths))
    return total / (time.perf_counter() - began) / 1e9


def checksum(folder: Path) -> float:
    """GB/s of the whole check."""
    began = time.perf_counter()
    found = check(folder, (), NoDigests(), clock=time.perf_counter, progress=lambda _: None)
    return found.bytes_read / (time.perf_counter() - began) / 1e9


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    processors = os.cpu_count() or 1
    folder = Path(tempfile.mkdtemp(prefix="checksum-", dir=given.folder))
    try:
        paths = [folder / f"part-{number}.bin" for number in range(8)]
        for path in paths:
            with path.open("wb") as file:
                for _ in range(int(given.gb * 1e9 / len(paths) / CHUNK)):
                    file.write(os.urandom(CHUNK))
        measures: dict[str, Callable[[], float]] = {
            "openssl sha256, one processor": lambda: openssl(1),
            f"openssl sha256, {processors} processors": lambda: openssl(processors),
            "reading, no hash": lambda: read_all(paths, processors),
            "heavylift checksum": lambda: checksum(folder),
        }
        seen: dict[str, list[float]] = {name: [] for name in measures}
        for _ in range(ROUNDS):
            for name, measure in measures.items():
                seen[name].append(measure())
    finally:
        shutil.rmtree(folder)
    print(
        f"{given.gb:g} GB in {len(paths)} files, {processors} processors, {ROUNDS} rounds in turn"
    )
    middle = {name: statistics.median(values) for name, values in seen.items()}
    for name, values in seen.items():
        print(f"{name:34} {middle[name]:6.2f} GB/s  ({min(values):.2f} to {max(values):.2f})")
    names = list(middle)
    ceiling = min(middle[names[1]], middle[names[2]])
    print(f"{'of the ceiling':34} {100 * middle[names[3]] / ceiling:6.0f} %")
    print(f"{'1.56 TB at that speed':34} {1560.86 / middle[names[3]] / 60:6.1f} min")


if __name__ == "__main__":
    main()
