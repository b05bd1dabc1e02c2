"""What a scripted engine counts for its metrics page: only requests that are over."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

_BOUNDS_S: Final = (0.01, 0.1, 1.0, 10.0, math.inf)


class Tally:
    """Figures of requests. An event carries a token."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.events = 0
        self._first = dict.fromkeys(_BOUNDS_S, 0)

    def add(self, prompt_tokens: int, came_at: float, sends: Sequence[float]) -> None:
        """Count a request by the times at which it came and its events were sent."""
        self.prompt_tokens += prompt_tokens
        self.events += len(sends)
        for bound in _BOUNDS_S:
            if sends and sends[0] - came_at <= bound:
                self._first[bound] += 1

    def first_tokens(self) -> Iterator[str]:
        """The histogram of the time to the first event, line by line."""
        for bound, count in self._first.items():
            label = "+Inf" if math.isinf(bound) else bound
            yield f'scripted_ttft_seconds_bucket{{le="{label}"}} {count}'
