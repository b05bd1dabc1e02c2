"""Kills batch runs at random: `python kills.py INPUT URL FOLDER KILLS SEED`, JSON on its output.

A process of its own, because it forks: imports are done once, and every run is a real process that
is really killed. Each child reports, through a pipe, how many rows its ledger has recorded.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
from pathlib import Path

from heavylift.batch import intake, job
from heavylift.batch.outputs import Ledger
from heavylift.batch.policy import RetryRules
from heavylift.batch.records import Settings, Shape
from heavylift.errors import HeavyliftError


class ReportingLedger(Ledger):
    """Says what it has recorded, after it has."""

    pipe = -1

    def record(self, *given: object, **named: object) -> list[tuple[object, bytes]]:  # type: ignore[override] # passes everything on
        """As the ledger does."""
        claims = super().record(*given, **named)  # type: ignore[arg-type] # passes everything on
        os.write(self.pipe, f"{self.counts.ok + self.counts.failed}\n".encode())
        return claims  # type: ignore[return-value] # passes everything on


def child(source: str, url: str, folder: Path, pipe: int) -> None:
    """One run to its end, if it is let."""
    ReportingLedger.pipe = pipe
    # So many attempts that no row is unlucky with all of them: only what is refused fails.
    retry = RetryRules(attempts=30, base_s=0.01)
    settings = Settings(endpoints=(url,), concurrency=16, retry=retry)
    with job.held(folder, must_exist=False) as journal:
        intake.take_in(folder, journal, intake.Source(path=source, shape=Shape()))
        journal.put(settings=settings)
        job.run(job.Run(folder, journal, settings, make_ledger=ReportingLedger))


def run_and_kill(source: str, url: str, folder: Path, after_s: float | None) -> tuple[int, bool]:
    """How many rows the run said it had recorded, and whether it was killed."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        child(source, url, folder, writer)
        os._exit(0)
    os.close(writer)
    # The end of the pipe is the end of the child.
    killed = after_s is not None and not ended_within(process, after_s)
    if killed:
        os.kill(process, signal.SIGKILL)
    said = b""
    while chunk := os.read(reader, 65536):
        said += chunk
    os.close(reader)
    _, status = os.waitpid(process, 0)
    if not killed and status:
        sys.exit("a run failed")
    lines = said.split(b"\n")[:-1]
    return (int(lines[-1]) if lines else 0), killed


def ended_within(process: int, seconds: float) -> bool:
    """True when the process ended by itself in that time."""
    descriptor = os.pidfd_open(process)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def main() -> None:
    """Kill so many runs, then let each batch finish; print what was found."""
    source, url, base, kills, seed = sys.argv[1:]
    chance = random.Random(int(seed))  # a reproducible choice of moments
    done = broken = 0
    problems: list[str] = []
    folders: list[Path] = []
    while done < int(kills):
        folder = Path(base) / f"batch{len(folders)}"
        folder.mkdir(parents=True)
        folders.append(folder)
        most = 0
        while done < int(kills):
            said, killed = run_and_kill(source, url, folder, chance.uniform(0.005, 0.25))
            most = max(most, said)
            if not killed:
                break
            done += 1
            try:
                found = job.audited(folder)
            except HeavyliftError as error:
                # Killed before the input was in: there is no batch yet.
                if error.code != "BAT003" or most:
                    raise
                continue
            broken += found.unrecorded_bytes > 0
            if found.duplicates or found.ok + found.failed < most:
                problems.append(f"after kill {done}: said {most}, found {found}")
        run_and_kill(source, url, folder, None)
        found = job.audited(folder)
        if not found.sound:
            problems.append(f"at the end: {found}")
    resent = sum(job.audited(folder).resent for folder in folders)
    told = {"kills": done, "torn": broken, "resent": resent, "problems": problems}
    print(json.dumps({**told, "folders": [str(folder) for folder in folders]}))  # noqa: T201 - its result


if __name__ == "__main__":
    main()
