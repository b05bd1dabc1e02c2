"""The most memory that was held while something went on: of a card, or of an engine's processes."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from heavylift.launch import processes
from heavylift.records.deployment import RunState
from heavylift.telemetry.collect_gpus import tool_here
from heavylift.telemetry.gpu_readings import readings

CARD: Final = "card"
HOST: Final = "host"
_PERIOD_S: Final = 0.5
_ANSWER_S: Final = 15.0
_KIB: Final = 1024


class Peak:
    """Looks again and again inside `with`, from a thread of its own; once at least.

    `bytes` is the most of one card where this machine's tool tells of cards, else the most that the
    processes of the run held together (shared pages counted once each); None = nothing was told.
    """

    def __init__(self, run: RunState | None) -> None:
        self._run = run
        self._tool = tool_here()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began_s = 0.0
        self.bytes: int | None = None
        self.of: str | None = None

    def __enter__(self) -> Self:
        self._began_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(_ANSWER_S + _PERIOD_S)

    def _watch(self) -> None:
        while True:
            found = self._of_cards() if self._tool is not None else self._of_processes()
            if found:
                self.bytes = max(self.bytes or 0, found)
                self.of = HOST if self._tool is None else CARD
            if self._over.wait(_PERIOD_S):
                return

    def _of_cards(self) -> int:
        try:
            said = subprocess.run(  # noqa: S603 - a tool of the card's maker
                self._tool or (), check=False, capture_output=True, timeout=_ANSWER_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0
        found = readings(said.stdout.decode("utf-8", "replace"), time.monotonic() - self._began_s)
        return max((each.memory_used_bytes or 0 for each in found), default=0)

    def _of_processes(self) -> int:
        if self._run is None:
            return 0
        return sum(map(_held, processes.of_run(self._run.id, self._run.processes)))


def _held(pid: int) -> int:
    """Bytes of a process, a shared page divided by those who share it; 0 for one that is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * _KIB
    return 0
