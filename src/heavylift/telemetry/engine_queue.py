"""An engine's own queue, from its metrics page. PURE.

Engines name these gauges each in their own way, under a prefix of their own; what follows the
prefix is matched. Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_RUNNING: Final = ("num_requests_running", "num_running_reqs", "requests_processing")
_WAITING: Final = ("num_requests_waiting", "num_queue_reqs", "requests_deferred")
_KV_USED: Final = (
    "kv_cache_usage_perc",
    "gpu_cache_usage_perc",
    "token_usage",
    "kv_cache_usage_ratio",
)

_SAMPLE: Final = re.compile(
    r"^(?:\w+:)?(\w+)(?:\{[^}]*\})?[ \t]+([0-9.eE+-]+)(?:[ \t]+[0-9]+)?[ \t]*$", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineQueue:
    """Requests in the engine, and the used share of its KV cache (0 to 1); None = not told.

    Counts are summed over the engine's replicas; the share is that of the fullest.
    """

    running: float
    waiting: float
    kv_used_ratio: float | None = None


def parse(page: str) -> EngineQueue | None:
    """The queue on a metrics page; None when the page does not speak of one."""
    running: list[float] = []
    waiting: list[float] = []
    kv_used: list[float] = []
    for name, value in _SAMPLE.findall(page):
        for names, found in ((_RUNNING, running), (_WAITING, waiting), (_KV_USED, kv_used)):
            if name in names:
                found.append(float(value))
    if not running or not waiting:
        return None
    ratio = max(kv_used) if kv_used else None
    return EngineQueue(running=sum(running), waiting=sum(waiting), kv_used_ratio=ratio)
