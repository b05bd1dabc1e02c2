"""Keeping the figures of a deployment: what its supervisor sees goes into its series."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from heavylift.launch.supervisor import Ready
from heavylift.operate import truth, watching
from heavylift.state.deployments import deployments_path, open_deployments
from heavylift.state.series import open_series, series_path

PERIOD_S: Final = 5.0
"""Between looks. A tool that tells of GPUs takes up to a second of CPU."""


class Keeping:
    """Keeps looks at one deployment. Runs in one thread at a time."""

    def __init__(self, name: str, *, period_s: float = PERIOD_S) -> None:
        self._name = name
        self._period_s = period_s
        self._next_at = 0.0
        self._logs: tuple[Path, ...] = ()
        self._watching: watching.Watching | None = None

    def keep(self, ready: Ready, page: str | None) -> None:
        """Take a look, if one is due, with the engine's page. Raises what looking or the disk does:
        that look is lost, and nothing else.
        """
        now_s = time.monotonic()
        if now_s < self._next_at:
            return
        self._next_at = now_s + self._period_s
        report = self._of(ready).take(page)
        with open_series(series_path(self._name)) as store:
            watching.feed(store, report)

    def _of(self, ready: Ready) -> watching.Watching:
        """The watch of this attempt: another one has other logs, and may have another address."""
        if self._watching is None or ready.logs != self._logs:
            with open_deployments(deployments_path()) as store:
                status = truth.status(store, truth.require(store, self._name))
            self._watching = watching.Watching(watching.of_deployment(status))
            self._logs = ready.logs
        return self._watching
