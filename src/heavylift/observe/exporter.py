"""The exporter: looks every few seconds, and answers Prometheus with the last look."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from heavylift.errors import HeavyliftError, reason
from heavylift.observe.exported import FAMILIES, PREFIX, values
from heavylift.records.watch import WatchReport

HOST: Final = "127.0.0.1"
Say = Callable[[str], str]


class _Last:
    """What the registry asks at each scrape. The help of a family is the caller's words."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.reports: Sequence[WatchReport] = ()

    def describe(self) -> list[Metric]:
        """Nothing: what there is differs from look to look."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The families of the last look."""
        kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
        found: dict[str, Any] = {
            family.name: kinds[family.kind](
                f"{PREFIX}{family.name}", self._say(f"metric.{family.name}"), labels=family.labels
            )
            for family in FAMILIES
        }
        for name, labels, value in values(self.reports):
            found[name].add_metric(labels, value)
        yield from (family for family in found.values() if family.samples)


class Exporter:
    """Serves inside `with`, on the loopback alone. `port` 0 = a free one, known inside."""

    def __init__(
        self, look: Callable[[], Sequence[WatchReport]], *, port: int, say: Say, period_s: float
    ) -> None:
        self._look = look
        self._last = _Last(say)
        self._period_s = period_s
        self._end = threading.Event()
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self.port = port

    def __enter__(self) -> Self:
        """Raises ENV062 when the port is taken."""
        registry = CollectorRegistry()
        registry.register(self._last)
        try:
            self._server, self._thread = start_http_server(self.port, addr=HOST, registry=registry)
        except OSError as problem:
            raise HeavyliftError(
                "ENV062", {"port": self.port, "reason": reason(problem)}
            ) from problem
        self.port = self._server.server_port
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not None:
            self._thread.join()

    def run(self, after: Callable[[Sequence[WatchReport]], None]) -> None:
        """Look until `stop`; `after` is given each look."""
        while not self._end.is_set():
            self._last.reports = self._look()
            after(self._last.reports)
            self._end.wait(self._period_s)

    def stop(self) -> None:
        """End `run` after the look it is at."""
        self._end.set()
