"""Keeping the figures of a deployment: what its supervisor sees goes into its series."""

from __future__ import annotations

import time
from typing import Final

from heavylift.launch.job import Ready
from heavylift.operate import watching
from heavylift.state.series import open_series, series_path

PERIOD_S: Final = 5.0
"""Between looks. A tool that tells of GPUs takes up to a second of CPU."""


class Keeping:
    """Keeps looks at one deployment. Runs in one thread at a time."""

    def __init__(self, name: str, *, period_s: float = PERIOD_S) -> None:
        self._name = name
        self._period_s = period_s
        self._next_at = 0.0
        self._has_waited = False
        self._watching: watching.Watching | None = None

    def keep(self, _ready: Ready, page: str | None) -> None:
        """Take a look, if one is due, with the engine's page. Raises what looking or the disk does:
        that look is lost, and nothing else.
        """
        now_s = time.monotonic()
        if now_s < self._next_at or (page is None and not self._has_waited):
            # The first page is asked for at the first look, and is there at the second.
            self._has_waited = True
            return
        self._next_at = now_s + self._period_s
        if self._watching is None:
            self._watching = watching.Watching(watching.find(self._name))
        report = self._watching.take(page)
        with open_series(series_path(self._name)) as store:
            watching.feed(store, report)
