"""How long the planner page takes to answer a change, at the browser's end of the wire.

Run it with `make bench-web`. A server of its own, one connection on loopback, no browser: what a
change of a slider costs until its answer is there in whole. Every question is asked once only, so
that nothing is answered from memory. The goal is 50 ms for a change of a slider.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiohttp

from heavylift.web.serve import Settings, running

GOAL_MS: Final = 50.0
RACKS: Final = {
    "8xMI355X": "atom/8/1/1/1/1",
    "8xB300": "vllm/8/1/1/1/1",
    "16xH200": "vllm/8/2/1/1/1",
    "32xH100": "vllm/8/4/1/1/1",
}
CONTEXTS: Final = (8192, 16384, 32768, 49152, 65536, 131072, 262144, 524288, 1048576)
SEQUENCES: Final = (1, 3, 12, 50, 200)


def questions(rack: str, keep: str | None) -> Iterator[str]:
    """The addresses of a walk over both sliders."""
    engine = "" if keep is None else f"&engine={keep.partition('/')[0]}"
    for context in CONTEXTS:
        for sequences in SEQUENCES:
            kept = "" if keep is None else f"&keep={keep}"
            yield f"on={rack}{engine}&context={context}&concurrency={sequences}{kept}"


async def times(
    session: aiohttp.ClientSession, base: str, part: str, asked: list[str]
) -> list[float]:
    """Milliseconds of each answer; every one must be a plan."""
    taken = []
    for query in asked:
        started = time.perf_counter()
        async with session.get(f"{base}/part/{part}?model=kimi-k3&{query}") as answer:
            body = await answer.text()
        taken.append((time.perf_counter() - started) * 1000)
        if "data-region" not in body or "INT001" in body:
            sys.exit(f"no plan for {query}")
    return taken


def row(name: str, taken: list[float]) -> str:
    """A line of the table."""
    ordered = sorted(taken)
    return (
        f"{name:44}{len(taken):6}{statistics.median(taken):9.1f}"
        f"{ordered[int(len(ordered) * 0.95)]:9.1f}{ordered[-1]:9.1f}"
    )


async def main() -> None:
    """Measure, print."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            running(Settings(port=0, gateway=Path(folder))) as port,
            aiohttp.ClientSession() as session,
        ):
            base = f"http://127.0.0.1:{port}"
            started = time.perf_counter()
            async with session.get(f"{base}/?model=kimi-k3&on=8xB300") as answer:
                await answer.text()
            print(f"first page, facts read: {(time.perf_counter() - started) * 1000:.0f} ms\n")
            print(f"{'milliseconds per answer':44}{'n':>6}{'median':>9}{'p95':>9}{'max':>9}")
            sliders: list[float] = []
            for rack, keep in RACKS.items():
                asked = list(questions(rack, keep))
                await times(session, base, "plan", asked[:1])
                taken = await times(session, base, "plan", asked[1:])
                sliders += taken
                print(row(f"slider, {rack}, layout kept", taken))
            for rack in RACKS:
                print(
                    row(
                        f"search of all layouts, {rack}",
                        await times(session, base, "plan", list(questions(rack, None))[::4]),
                    )
                )
            for part in ("speed", "cost", "fixes", "recipe"):
                asked = [f"on={rack}&isl={isl}" for rack in RACKS for isl in (4096, 16384)]
                if part in {"fixes", "recipe"}:
                    asked = [f"on={rack}&context={c}" for rack in RACKS for c in (20480, 200704)]
                print(
                    row(
                        f"{part} (on its own, after the plan)",
                        await times(session, base, part, asked),
                    )
                )
            share = sum(each <= GOAL_MS for each in sliders) / len(sliders)
            print(f"\nchanges of a slider answered within {GOAL_MS:.0f} ms: {share:.1%}")


if __name__ == "__main__":
    asyncio.run(main())
