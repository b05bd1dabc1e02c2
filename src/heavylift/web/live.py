"""What the live page shows, read anew for every look: deployments, batches, keys and usage.

Nothing is written; of an engine that serves only its page of metrics is asked, as `top` does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from heavylift.batch import job
from heavylift.batch.records import Status
from heavylift.errors import HeavyliftError, Scalar
from heavylift.gateway import keys as gateway_keys
from heavylift.gateway.admin import KeyView, view
from heavylift.gateway.keys import Scope
from heavylift.gateway.store import DATABASE, Usage, open_store
from heavylift.operate import releases, truth, watching
from heavylift.operate.releases import ListedRelease
from heavylift.records.deployment import DeploymentStatus, Failure, Phase
from heavylift.records.series import History
from heavylift.records.watch import WatchReport
from heavylift.redact import without_secrets
from heavylift.state.deployments import Deployments, deployments_path, open_deployments

START: Final = (
    Phase.PREFLIGHT,
    Phase.IMAGE,
    Phase.PROCESS,
    Phase.FIT,
    Phase.WEIGHTS,
    Phase.MEMORY,
    Phase.GRAPHS,
    Phase.WARM_UP,
    Phase.API,
    Phase.READY,
)
"""The phases of a start, in order."""
_RELEASES_SHOWN: Final = 8
HISTORY_S: Final = 3600.0
LOOK_S: Final = 5.0
"""Between two looks at a deployment: a tool that tells of GPUs takes up to a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeploymentView:
    """A deployment as it stands, with its releases, newest first. No paths: a page names none."""

    status: DeploymentStatus
    releases: tuple[ListedRelease, ...]
    look: WatchReport | None = None
    history: History | None = None

    @property
    def reached(self) -> int:
        """How many phases of the start are behind it; -1 where no start goes on."""
        phase = self.status.phase
        return START.index(phase) if phase in START else -1


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchView:
    """A batch by the name of its folder. `failure` is the code of why it cannot be read."""

    name: str
    status: Status | None = None
    failure: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Live:
    """One look."""

    deployments: tuple[DeploymentView, ...]
    batches: tuple[BatchView, ...]
    has_gateway: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Keys without their secrets, and what they used."""

    keys: tuple[KeyView, ...]
    by_key: tuple[Usage, ...]
    by_day: tuple[Usage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where the live page looks: the gateway's folder and the folders of batches."""

    gateway: Path
    batches: tuple[Path, ...] = ()


class Watcher:
    """Looks at deployments again and again. One thread at a time: rates come of several looks."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._watched: dict[str, watching.Watching] = {}
        self._looks: dict[str, tuple[float, WatchReport]] = {}

    def look(self) -> Live:
        """Everything that needs no key. Raises what opening a database of ours raises."""
        found = look(self._places)
        return replace(found, deployments=tuple(map(self._watch, found.deployments)))

    def _watch(self, seen: DeploymentView) -> DeploymentView:
        name = seen.status.name
        if not seen.status.ready:
            # Another start is another process, with another log and perhaps another address.
            self._watched.pop(name, None)
            self._looks.pop(name, None)
            return seen
        return replace(
            seen, look=self._look(name), history=watching.history(name, span_s=HISTORY_S)
        )

    def _look(self, name: str) -> WatchReport | None:
        """A look not older than what a tool of a card maker may be asked for."""
        taken = self._looks.get(name)
        if taken is not None and time.monotonic() - taken[0] < LOOK_S:
            return taken[1]
        try:
            if name not in self._watched:
                self._watched[name] = watching.Watching(watching.find(name))
            report = _without_disks(self._watched[name].look())
        except HeavyliftError:
            return None  # it went between two questions: the next look says so
        self._looks[name] = (time.monotonic(), report)
        return report


def _without_disks(report: WatchReport) -> WatchReport:
    return replace(report, host=replace(report.host, disks=()))


def look(places: Places) -> Live:
    """What is written down. Raises what opening a database of ours raises."""
    return Live(
        deployments=_deployments(),
        batches=tuple(map(_batch, places.batches)),
        has_gateway=(places.gateway / DATABASE).is_file(),
    )


def _deployments() -> tuple[DeploymentView, ...]:
    path = deployments_path()
    if not path.is_file():
        return ()  # opening it would make it
    with open_deployments(path) as store:
        found = truth.report(store).deployments
        return tuple(
            DeploymentView(status=without_paths(each), releases=_releases(store, each.name))
            for each in found
        )


def _releases(store: Deployments, name: str) -> tuple[ListedRelease, ...]:
    return releases.listed(store, name).releases[:_RELEASES_SHOWN]


def without_paths(status: DeploymentStatus) -> DeploymentStatus:
    """The status without the places of logs and secrets, and with secrets in log lines hidden."""
    return replace(
        status,
        log=None,
        secrets_file=None,
        processes=tuple(replace(process, log="") for process in status.processes),
        failure=None if status.failure is None else _redacted(status.failure),
    )


def _redacted(failure: Failure) -> Failure:
    return replace(
        failure,
        line=None if failure.line is None else without_secrets(failure.line),
        params={name: _harmless(value) for name, value in failure.params.items()},
    )


def _harmless(value: Scalar) -> Scalar:
    """A parameter as a page may show it: of a path its name, of a log's lines no secret."""
    if not isinstance(value, str):
        return value
    is_path = value.startswith("/") and "\n" not in value
    return Path(value).name if is_path else without_secrets(value)


def _batch(folder: Path) -> BatchView:
    try:
        return BatchView(name=folder.name, status=replace(job.status(folder), folder=folder.name))
    except HeavyliftError as error:
        return BatchView(name=folder.name, failure=error.code)


def ledger(places: Places, presented: str, address: str | None) -> Ledger | None:
    """Keys and usage for who presents an admin key; None for anybody else.

    Raises what opening the database raises.
    """
    key_id = gateway_keys.id_of(presented)
    if key_id is None or not (places.gateway / DATABASE).is_file():
        return None
    with open_store(places.gateway, must_exist=True) as store:
        denial = gateway_keys.judge(
            presented,
            store.key(key_id),
            scope=Scope.ADMIN,
            address=address,
            now_epoch_s=time.time(),
        )
        if denial is not None:
            return None
        return Ledger(
            keys=tuple(map(view, store.keys())),
            by_key=store.usage("key"),
            by_day=store.usage("day")[-31:],
        )
