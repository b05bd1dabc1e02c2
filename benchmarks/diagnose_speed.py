"""How fast logs are read: MB per second of one processor, by the clock too, and the memory taken.

`serving`: an engine's start and hours of serving, a failure in the middle. `ids`: every line holds
a random id, so that no two lines share a shape. Run it with `make bench-diagnose`; a size in MB may
be given.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Iterator
from typing import Final

from heavylift.devserver.healthy_log import ENGINES, healthy_lines
from heavylift.diagnose.match import diagnose
from heavylift.diagnose.scan import Scanner
from heavylift.diagnose.symptoms import CompiledSymptoms
from heavylift.facts.catalog import Catalog

WANTED_MB_PER_S: Final = 100
_BLOCK: Final = 1 << 20
_FAILURE: Final = b"OSError: [Errno 98] Address already in use\n"


def serving(engine: str, size: int) -> Iterator[bytes]:
    """Blocks of a log of `size` bytes; the numbers in its lines repeat every 20 MB."""
    whole = "\n".join(healthy_lines(engine, 160_000)).encode() + b"\n"
    parts = [whole[start : start + _BLOCK] for start in range(0, len(whole), _BLOCK)]
    given = 0
    while given < size:
        for part in parts:
            cut = part.rfind(b"\n") + 1
            yield part[:cut]
            given += cut
        if given >= size // 2:
            yield _FAILURE


def ids(size: int) -> Iterator[bytes]:
    """Blocks of lines with a random id in each."""
    chance = random.Random(1)  # noqa: S311 - sample text, no secret
    lines = [
        f"INFO 11-30 07:00:00 [async_llm.py:420] Added chatcmpl-{chance.randbytes(16).hex()}."
        for _ in range(size // 90)
    ]
    whole = "\n".join(lines).encode()
    for start in range(0, len(whole), _BLOCK):
        part = whole[start : start + _BLOCK]
        yield part[: part.rfind(b"\n") + 1]


def measure(name: str, blocks: Iterator[bytes], symptoms: CompiledSymptoms) -> float:
    """Read blocks and print how fast; MB per second of processor time."""
    scanner = Scanner(symptoms, name)
    wall = cpu = 0.0
    for block in blocks:
        begun, begun_cpu = time.perf_counter(), time.process_time()
        scanner.feed(block)
        wall += time.perf_counter() - begun
        cpu += time.process_time() - begun_cpu
    diagnosis = diagnose([scanner.reading()])
    speed = diagnosis.bytes / cpu / 1e6
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = diagnosis.causes[0].cause_class if diagnosis.causes else "-"
    print(
        f"{name:16} {diagnosis.bytes / 1e6:5.0f} MB {diagnosis.lines:11,} lines {speed:5.0f} MB/s"
        f" ({diagnosis.bytes / wall / 1e6:.0f} by the clock) {memory:4.0f} MiB  {found}"
    )
    return speed


def main() -> int:
    """All kinds; status 1 when a served log is read slower than wanted."""
    size = int(sys.argv[1]) * 10**6 if len(sys.argv) > 1 else 10**9
    begun = time.perf_counter()
    symptoms = CompiledSymptoms(Catalog().symptoms())
    print(
        f"{len(symptoms.patterns)} patterns, {len(symptoms.anchors)} anchors compiled in"
        f" {time.perf_counter() - begun:.2f} s"
    )
    speeds = [measure(f"serving {engine}", serving(engine, size), symptoms) for engine in ENGINES]
    measure("ids", ids(min(size, 50 * 10**6)), symptoms)
    return int(min(speeds) < WANTED_MB_PER_S)


if __name__ == "__main__":
    sys.exit(main())
