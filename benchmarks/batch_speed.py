"""What a row of a batch costs the client, beside a bare loop and the usual SDK.

Run it with `make bench-batch`. All clients run in the same minutes against the same mock, with 256
requests at once, each a fresh process; CPU is user and system time of the whole process, start-up
included, as the kernel counts it. The bare loop reads lines, posts them with aiohttp, decodes the
answers and writes them: no journal, no sync, no retries. The SDK loop does the same with the
`openai` package, on fewer rows; it is left out where the package is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
CONCURRENCY = 256

LOOP = """
import asyncio, json, sys
import aiohttp
source, target, url = sys.argv[1:]
async def main():
    lines = iter(open(source, "rb"))
    out = open(target, "wb")
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        async def slot():
            for text in lines:
                line = json.loads(text)
                async with session.post(url + line["url"], json=line["body"]) as reply:
                    body = json.loads(await reply.read())
                response = {"status_code": 200, "body": body}
                done = {"custom_id": line["custom_id"], "response": response}
                out.write(json.dumps(done).encode() + b"\\n")
        await asyncio.gather(*(slot() for _ in range(CONCURRENCY)))
    out.close()
asyncio.run(main())
""".replace("CONCURRENCY", str(CONCURRENCY))

SDK = """
import asyncio, json, sys
import openai
source, target, url = sys.argv[1:]
async def main():
    lines = iter(open(source, "rb"))
    out = open(target, "wb")
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        async def slot():
            for text in lines:
                line = json.loads(text)
                body = await client.chat.completions.create(**line["body"])
                done = {
                    "custom_id": line["custom_id"],
                    "response": {"status_code": 200, "body": body.model_dump()},
                }
                out.write(json.dumps(done).encode() + b"\\n")
        await asyncio.gather(*(slot() for _ in range(CONCURRENCY)))
    out.close()
asyncio.run(main())
""".replace("CONCURRENCY", str(CONCURRENCY))


def write_input(path: Path, rows: int) -> None:
    """An input of that many rows, about a kilobyte each."""
    prompt = "Read the clause and say who must pay, and by when. " * 18
    with path.open("w") as file:
        for number in range(rows):
            body = {
                "model": "mock",
                "messages": [{"role": "user", "content": f"{prompt}{number}"}],
                "max_tokens": 128,
            }
            line = {"custom_id": f"row-{number}", "method": "POST", "url": "/v1/chat/completions"}
            file.write(json.dumps({**line, "body": body}) + "\n")


def cpu_s(argv: Sequence[str]) -> tuple[float, float]:
    """CPU seconds and wall seconds of a process that must succeed."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    began = os.times().elapsed
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{argv[:4]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, os.times().elapsed - began


def heavylift(source: Path, out: Path, url: str) -> list[str]:
    """The command under test: durable, pinned to the same number at once."""
    run = [sys.executable, "-m", "heavylift", "batch", "run", str(source), "--endpoint", url]
    return [*run, "--out", str(out), "--concurrency", str(CONCURRENCY), "--pin", "--quiet"]


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=30_000)
    options.add_argument("--sdk-rows", type=int, default=2_000)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    mock = subprocess.Popen([sys.executable, HERE / "batch_mock.py"], stdout=subprocess.PIPE)
    try:
        assert mock.stdout is not None  # noqa: S101 - for the type
        url = f"http://127.0.0.1:{int(mock.stdout.readline())}"
        with tempfile.TemporaryDirectory() as folder:
            compare(Path(folder), url, mock.pid, given)
    finally:
        mock.kill()
        mock.wait()


def compare(folder: Path, url: str, mock: int, given: argparse.Namespace) -> None:
    """Run all clients in turn, several rounds, and print medians and ratios."""
    rows, sdk_rows, rounds = given.rows, given.sdk_rows, given.rounds
    source, small = folder / "input.jsonl", folder / "small.jsonl"
    write_input(source, rows)
    write_input(small, sdk_rows)
    per_row: dict[str, list[float]] = {"bare aiohttp loop": [], "heavylift batch": []}
    has_sdk = importlib.util.find_spec("openai") is not None
    mock_us = []
    for number in range(rounds):
        before = _process_cpu_s(mock)
        out = folder / f"loop{number}.jsonl"
        spent, _ = cpu_s([sys.executable, "-c", LOOP, str(source), str(out), url])
        per_row["bare aiohttp loop"].append(spent / rows * 1e6)
        mock_us.append((_process_cpu_s(mock) - before) / rows * 1e6)
        spent, wall = cpu_s(heavylift(source, folder / f"batch{number}", url))
        per_row["heavylift batch"].append(spent / rows * 1e6)
        print(f"round {number + 1}: heavylift {rows / wall:.0f} rows/s", flush=True)
        if has_sdk:
            out = folder / f"sdk{number}.jsonl"
            spent, _ = cpu_s([sys.executable, "-c", SDK, str(small), str(out), url])
            per_row.setdefault("openai SDK loop", []).append(spent / sdk_rows * 1e6)
    medians = {name: statistics.median(found) for name, found in per_row.items()}
    ours = medians["heavylift batch"]
    print(f"\nCPU per row, median of {rounds} ({rows} rows, {CONCURRENCY} at once)")
    for name, found in medians.items():
        print(f"  {name:20} {found:8.0f} us   heavylift is {ours / found:.2f} of it")
    print(f"  {'mock':20} {statistics.median(mock_us):8.0f} us")


def _process_cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
