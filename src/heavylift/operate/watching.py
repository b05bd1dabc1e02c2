"""Watching: a name or an address becomes something that can be looked at again and again."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.launch import processes
from heavylift.launch.attempt import key_of, serving_rank
from heavylift.launch.keepers import SSH_OPTIONS
from heavylift.observe import series
from heavylift.observe.report import Standing, Watched, gpus_now, report
from heavylift.operate import clusters, recipes, secret_file, truth
from heavylift.planning import Planning
from heavylift.records.deployment import Deployment, DeploymentStatus
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Note, Plan
from heavylift.records.receipt import MeasuredTerm
from heavylift.records.series import FigureHistory, History
from heavylift.records.watch import CurvePoint, EngineNow, GpuNow, HostNow, Sight, WatchReport
from heavylift.state import paths
from heavylift.state.deployments import deployments_path, open_deployments
from heavylift.state.series import Series, open_series, series_path
from heavylift.telemetry import collect_gpus, collect_host, engine_metrics, llamacpp
from heavylift.telemetry.collect_gpus import Command
from heavylift.telemetry.engine_log import EngineWords, LogReader
from heavylift.telemetry.engine_metrics import EnginePage
from heavylift.telemetry.engine_queue import MetricNames
from heavylift.telemetry.gpu_readings import Seen
from heavylift.telemetry.gpu_watch import is_here
from heavylift.wire.client import Client, Endpoint, Limits

T = TypeVar("T")

WINDOW_S: Final = 60.0
"""Rates and quantiles are those of the last minute."""
_LIMITS: Final = Limits(connect_s=3.0, first_byte_s=10.0, total_s=15.0)
_START_BYTES: Final = 16 << 20
"""Of a log: a start is told in less, and a log of months need not be read."""
_VISIBLE: Final = "_VISIBLE_DEVICES"
"""How the variables end by which a process is given some of a machine's GPUs."""
_CURVE: Final = tuple(1 << exponent for exponent in range(12, 21))
"""4k to 1M tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What to look at. `reach`: host -> the words that lead to it, None = this machine; no host at
    all = its GPUs are where nobody here can ask. `name`: of a deployment of ours.
    """

    watched: Watched
    reach: Mapping[str, Command | None]
    url: str | None = None
    key: str | None = None
    name: str | None = None
    start: tuple[int, int] | None = None
    """Of a deployment: its release, and which of its starts."""
    tool: Command | None = None


def this_host() -> str:
    """This machine's name, by which its GPUs are told from others'."""
    return socket.gethostname()


def find(what: str | None, *, key: str | None = None, tool: Command | None = None) -> Target:
    """The target of a name or an address; None = the deployment that runs or starts, if alone.

    Raises OPS001 for a name that is none, USE021 and USE022 for an address that is none.
    """
    if what is not None and "://" in what:
        return _of_address(Endpoint.parse(what).base_url, key, tool)
    statuses = _statuses(what)
    if what is None:
        running = [each for each in statuses if each.ready]
        running = running or [each for each in statuses if not each.phase.is_over]
        if len(running) != 1:
            names = ", ".join(each.name for each in running)
            notes = (Note(code="observe.several", params={"names": names}),) if running else ()
            return Target(watched=Watched(notes=notes), reach={this_host(): None}, tool=tool)
        statuses = running
    return of_deployment(statuses[0], tool=tool)


def wanted() -> tuple[str, ...]:
    """The names of the deployments that somebody wants up."""
    return tuple(status.name for status in _statuses(None) if status.wanted == "up")


def _statuses(name: str | None) -> list[DeploymentStatus]:
    if name is None and not deployments_path().exists():
        return []
    with open_deployments(deployments_path()) as store:
        return list(truth.report(store, name).deployments)


def _of_address(url: str, key: str | None, tool: Command | None) -> Target:
    for status in _statuses(None):
        if status.url is not None and _is_same(status.url, url):
            return of_deployment(status, tool=tool)
    here = is_here(url) or tool is not None
    reach: dict[str, Command | None] = {this_host(): None} if here else {}
    return Target(watched=Watched(), reach=reach, url=url, key=key, tool=tool)


def _is_same(one: str, other: str) -> bool:
    """True for two addresses of one place; the loopback has several names."""

    def place(url: str) -> tuple[object, ...]:
        base = Endpoint.parse(url).base_url
        parts = urlsplit(base)
        return parts.scheme, None if is_here(base) else parts.hostname, parts.port, parts.path

    return place(one) == place(other)


def of_deployment(status: DeploymentStatus, *, tool: Command | None = None) -> Target:
    """The target of a deployment, by the recipe of its release. Raises as `recipes.read`."""
    with open_deployments(deployments_path()) as store:
        deployment = truth.require(store, status.name)
    folder = recipes.release_dir(status.name, status.release)
    recipe = recipes.read(folder)
    secrets = paths.deployment_dir(status.name) / secret_file.FILE
    values = secret_file.read(secrets) if secrets.is_file() else {}
    spec = recipe.spec
    rank = spec.ranks[serving_rank(spec.ranks)]
    plan = recipe.plan
    title = status.engine if plan is None else f"{plan.title} · {plan.engine_title}"
    return Target(
        watched=Watched(
            name=status.name,
            title=title,
            plan=plan,
            measured=_measured(spec.engine, status),
            gpus=_given(spec),
        ),
        reach={} if (folder / clusters.ORDER).exists() else _reach(spec, deployment),
        url=status.url,
        key=key_of(rank, values) or None,
        name=status.name,
        start=(status.release, status.attempt),
        tool=tool,
    )


def _reach(spec: LaunchSpec, deployment: Deployment) -> dict[str, Command | None]:
    hosts = dict.fromkeys(rank.host for rank in spec.ranks if rank.gpus != 0)
    return {
        (this_host() if host in processes.LOCAL else host): (
            None if host in processes.LOCAL else (*deployment.ssh, *SSH_OPTIONS, "--", host)
        )
        for host in hosts
    }


def _given(spec: LaunchSpec) -> dict[str, frozenset[int]]:
    """Host -> the GPUs that its ranks are given by number; without those of which nobody says."""
    found: dict[str, set[int] | None] = {}
    for rank in spec.ranks:
        if rank.gpus == 0:
            continue
        host = this_host() if rank.host in processes.LOCAL else rank.host
        words = [value for name, value in rank.env.items() if name.endswith(_VISIBLE)]
        numbers = set(map(int, re.findall(r"\d+", words[0]))) if words else set()
        plain = bool(words) and re.fullmatch(r"[\d, ]+", words[0]) is not None
        before = found.get(host, set())
        found[host] = before | numbers if plain and before is not None else None
    return {host: frozenset(each) for host, each in found.items() if each is not None}


def _measured(engine: str, status: DeploymentStatus) -> tuple[MeasuredTerm, ...]:
    book = Catalog().engine_logs()
    words = EngineWords(book, engine)
    terms: list[MeasuredTerm] = []
    for process in status.processes:
        with contextlib.suppress(OSError), Path(process.log).open("rb") as log:
            reader = LogReader(words)
            start = log.read(_START_BYTES)
            reader.feed(start)
            terms += reader.measured_terms()
            if book.tells_buffers(engine):
                with contextlib.suppress(HeavyliftError):
                    lines = start.decode("utf-8", "replace").splitlines()
                    terms += llamacpp.measured_terms(llamacpp.parse(lines))
    return tuple(terms)


def with_curve(target: Target) -> Target:
    """The target with its curve: what sequences of each length need, planned again by the plan's
    own request, beside what a GPU holds. None without a plan.
    """
    plan = target.watched.plan
    if plan is None:
        return target
    return replace(target, watched=replace(target.watched, curve=_curve(plan)))


def _curve(plan: Plan) -> tuple[CurvePoint, ...]:
    planning = Planning()
    points = []
    try:
        knowledge = planning.knowledge(plan.request.model)
    except HeavyliftError:
        return ()
    for tokens in sorted({*_CURVE, plan.context_tokens}):
        request = replace(
            plan.request, engine=plan.engine, layout=plan.layout, context_tokens=tokens
        )
        with contextlib.suppress(HeavyliftError):
            again = planning.plan(request, knowledge, with_fixes=False)
            need = again.per_gpu.known_total_bytes
            points.append(CurvePoint(max_model_len=tokens, need_bytes=need, held_bytes=None))
    return tuple(points)


class Watching:
    """Looks at one target. Keeps what rates and means are made of; a look may take seconds."""

    def __init__(self, target: Target, *, names: MetricNames | None = None) -> None:
        self.target = target
        self._names = Catalog().metric_names() if names is None else names
        self._pages: deque[EnginePage] = deque()
        self._looks: deque[tuple[float, tuple[GpuNow, ...]]] = deque()

    def look(self) -> WatchReport:
        """How it is now."""
        self._standing()
        return self.take(*self._page())

    def take(self, page: str | None, sight: Sight = Sight.NO_METRICS) -> WatchReport:
        """How it is now, with a metrics page that somebody else has asked for; None = there is
        none, for the reason `sight`.
        """
        now_s = time.time()
        standing = self._standing()
        target = self.target
        seen = self._seen()
        gpus = gpus_now(target.watched, seen)
        self._looks.append((now_s, gpus))
        engine = self._engine(page, sight, now_s)
        _forget(self._looks, now_s, lambda entry: entry[0])
        watched = _held(target.watched, gpus)
        return report(
            at=(datetime.fromtimestamp(now_s, UTC).isoformat(timespec="seconds"), now_s),
            watched=watched,
            standing=standing,
            seen=seen,
            looks=[entry for _, entry in self._looks],
            engine=engine,
            host=self._host(seen),
        )

    def _engine(self, page: str | None, sight: Sight, now_s: float) -> EngineNow:
        if page is None:
            self._pages.clear()
            return EngineNow(sight=sight)
        self._pages.append(engine_metrics.read(page, self._names, now_s))
        _forget(self._pages, now_s, lambda entry: entry.at_s)
        return engine_metrics.now(tuple(self._pages))

    def _page(self) -> tuple[str | None, Sight]:
        url = self.target.url
        if url is None:
            return None, Sight.NO_ENGINE if self.target.name is None else Sight.NOT_READY

        async def page() -> str | None:
            async with Client(Endpoint.parse(url, self.target.key), limits=_LIMITS) as client:
                return await client.page("/metrics")

        try:
            return asyncio.run(page()), Sight.NO_METRICS
        except HeavyliftError:
            return None, Sight.NO_ANSWER

    def _seen(self) -> dict[str, Seen]:
        return {
            host: collect_gpus.look(tool=self.target.tool)
            if reach is None
            else collect_gpus.look_through(reach)
            for host, reach in self.target.reach.items()
        }

    def _host(self, seen: Mapping[str, Seen]) -> HostNow:
        mine = seen.get(this_host())
        gtt = None if mine is None else mine.gtt_used_bytes
        return collect_host.look((paths.data_dir(), paths.state_dir()), gtt_used_bytes=gtt)

    def _standing(self) -> Standing:
        """The deployment as it stands. Another start has another log, and may have another address
        and recipe: it is the target from now on.
        """
        name = self.target.name
        if name is None:
            return Standing(url=self.target.url)
        with open_deployments(deployments_path()) as store:
            status = truth.status(store, truth.require(store, name))
        if (status.release, status.attempt) != self.target.start:
            self._begin_anew(status)
        self.target = replace(self.target, url=status.url)
        return Standing(
            url=status.url,
            phase=str(status.phase),
            alive=str(status.alive),
            restarts=status.restarts,
        )

    def _begin_anew(self, status: DeploymentStatus) -> None:
        curve = self.target.watched.curve
        # A recipe that cannot be read now: what is known of it stays.
        with contextlib.suppress(HeavyliftError):
            fresh = of_deployment(status, tool=self.target.tool)
            self.target = replace(fresh, watched=replace(fresh.watched, curve=curve))


def _forget(entries: deque[T], now_s: float, at: Callable[[T], float]) -> None:
    """Drop what is older than the window, but never all: a rate needs one look before this."""
    while len(entries) > 2 and now_s - at(entries[0]) > WINDOW_S:  # noqa: PLR2004 - this and one before
        entries.popleft()


def _held(watched: Watched, gpus: tuple[GpuNow, ...]) -> Watched:
    used = [gpu.memory_used_bytes for gpu in gpus if gpu.memory_used_bytes is not None]
    if not watched.curve or not used:
        return watched
    return replace(
        watched, curve=tuple(replace(point, held_bytes=max(used)) for point in watched.curve)
    )


def feed(store: Series, seen: WatchReport) -> None:
    """Keep the figures of a look. Raises as `Series.add`."""
    store.add(seen.at_s, series.figures(seen))


def history(name: str | None, *, figures: tuple[str, ...] = (), span_s: float) -> History:
    """What was kept of the last `span_s` seconds of a deployment, or of this machine. `figures`:
    names, or how they begin; none = all. Raises OPS001 for a name that is none.
    """
    if name is not None:
        _statuses(name)
    level = series.level_for(span_s)
    path = series_path(name)
    found: list[FigureHistory] = []
    if path.exists():
        since_s = time.time() - span_s
        with open_series(path) as store:
            for figure in store.names():
                buckets = store.read(figure, level=level, since_s=since_s)
                if buckets and (not figures or figure.startswith(figures)):
                    found.append(FigureHistory(name=figure, buckets=buckets))
    return History(name=name, span_s=span_s, period_s=level.period_s, figures=tuple(found))


# --- for batches -----------------------------------------------------------------------------

GpuMemory = Callable[[], Awaitable[tuple[int, ...] | None]]


def gpu_memory(url: str) -> GpuMemory | None:
    """A way to ask for the memory in use on each GPU (bytes, by number) behind an endpoint, when it
    is that of a running deployment of ours; None when it is not. The answer None = nobody tells.
    """
    running = (each for each in _statuses(None) if each.url is not None)
    status = next((each for each in running if _is_same(each.url or "", url)), None)
    if status is None:
        return None
    try:
        target = of_deployment(status)
    except HeavyliftError:
        return None

    async def ask() -> tuple[int, ...] | None:
        return await asyncio.to_thread(_used, target)

    return ask


def _used(target: Target) -> tuple[int, ...] | None:
    seen = {
        host: collect_gpus.look() if reach is None else collect_gpus.look_through(reach)
        for host, reach in target.reach.items()
    }
    gpus = sorted(gpus_now(target.watched, seen), key=lambda gpu: (gpu.host, gpu.gpu))
    used = tuple(gpu.memory_used_bytes for gpu in gpus if gpu.memory_used_bytes is not None)
    return used or None
