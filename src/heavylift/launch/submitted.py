"""Something submitted to a scheduler, as a process: what keepers and logs know how to deal with.

`submitted.py ORDER.json` submits, writes the job's log to its own output, lives as long as the job
and takes it back when it is asked to end. A script of its own, like the keeper: standard library
only. The order holds commands as lists of words: `start`, `running` (prints something while the job
is there), `stop`, and if given `host` (prints the machine it runs on, for the address), `logs`
(files, by pattern) or `follow` (a command that prints the log as it grows).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

POLL_S = 1.0
WORD_S = 60.0
STOP_S = 600.0
ADDRESS = "heavylift-address:"


class Job:
    """A submitted job."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._folder = Path(order["folder"])
        self._read: dict[Path, int] = {}
        self._follower: subprocess.Popen[bytes] | None = None
        self._is_told = False

    def ask(self, what: str) -> tuple[int, str]:
        """Status and output of a command of the order."""
        try:
            result = subprocess.run(
                self._order[what],
                cwd=self._folder,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=WORD_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, f"{self._order[what][0]}: {error}\n"
        return result.returncode, result.stdout

    def is_there(self) -> bool:
        """True while the job waits or runs. A scheduler that does not answer says nothing."""
        status, output = self.ask("running")
        return status != 0 or bool(output.strip())

    def pass_on(self) -> None:
        """Write what the log has gained, and once the address."""
        for path in sorted(self._folder.glob(self._order.get("logs") or "\0")):
            with contextlib.suppress(OSError), path.open("rb") as log:
                log.seek(self._read.get(path, 0))
                block = log.read()
                self._read[path] = self._read.get(path, 0) + len(block)
                os.write(1, block)
        if self._order.get("follow") and (
            self._follower is None or self._follower.poll() is not None
        ):
            self._follower = subprocess.Popen(self._order["follow"], cwd=self._folder, stdout=1)
        if self._order.get("host") and not self._is_told:
            status, output = self.ask("host")
            if status == 0 and output.split():
                self._is_told = True
                say(f"{ADDRESS} http://{output.split()[0]}:{self._order['port']}")

    def skip_old_logs(self) -> None:
        """What lies there from earlier jobs is not of this one."""
        for path in self._folder.glob(self._order.get("logs") or "\0"):
            self._read[path] = path.stat().st_size


def say(line: str) -> None:
    """A line of our own in the log."""
    os.write(1, line.rstrip("\n").encode() + b"\n")


def main(path: str) -> int:
    """Submit, follow, take back."""
    job = Job(json.loads(Path(path).read_text("utf-8")))

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    job.skip_old_logs()
    try:
        status, output = job.ask("start")
        say(output)
        if status != 0:
            return status
        while job.is_there():
            job.pass_on()
            time.sleep(POLL_S)
        job.pass_on()
    finally:
        _take_back(job)
    return 1  # a service that ended has failed, whatever the scheduler calls it


def _take_back(job: Job) -> None:
    """Twice asked for is once done; who is asked to end meanwhile ends after it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    say(job.ask("stop")[1])
    end = time.monotonic() + STOP_S
    while job.is_there() and time.monotonic() < end:
        time.sleep(POLL_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
