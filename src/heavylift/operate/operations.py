"""What is done to a deployment: up, down, restart, roll back. Each works from any state of it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError, reason
from heavylift.launch import processes
from heavylift.launch.supervisor import new_run
from heavylift.operate import driver, preparation, recipes, secret_file, truth
from heavylift.operate.recipes import EmbeddedWish, Recipe
from heavylift.records.deployment import (
    Alive,
    Deployment,
    DeploymentStatus,
    Phase,
    RunState,
)
from heavylift.records.release import Release
from heavylift.state import locks, paths
from heavylift.state.deployments import Deployments, deployments_path, open_deployments

UP: Final = "up"
DOWN: Final = "down"
_FOLLOW_S: Final = 0.1
_OPERATOR_WAIT_S: Final = 2.0
_SUPERVISOR_MORE_S: Final = 20.0
_STARTED_S: Final = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class UpWish:
    """What is to run. `source`: a recipe's folder, or what the embedded engine is to serve."""

    source: Path | EmbeddedWish
    name: str | None = None
    verify: bool = True
    secrets: Path | None = None
    hosts: tuple[str, ...] = ()
    ssh: tuple[str, ...] = ()
    replace: bool = False
    url: str | None = None
    target: str | None = None
    """What is to run it: `processes`, `docker`, `slurm`, `kubernetes`; None = see `preparation`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """A run that was begun, or (`was_running`) one that goes on."""

    name: str
    run_id: str
    release: int
    was_running: bool = False
    runs_by: str | None = None
    """What it runs by when that is not a process of this machine: `docker`, a scheduler."""


def up(wish: UpWish) -> Begun:
    """Begin a deployment; returns at once. One that runs by the same recipe goes on as it is.

    Raises what reading the recipe and its secrets raises; OPS002 when another recipe runs under
    the name, OPS003 when somebody else is at work on it.
    """
    with tempfile.TemporaryDirectory(prefix="heavylift-") as scratch:
        folder = _source(wish.source, Path(scratch))
        recipe = recipes.read(folder)
        name = recipes.name_of(wish.name, recipe.spec)
        with _at_work(name), _store() as store:
            running = _running(store, name)
            if running is not None and not wish.replace:
                if _is_same(store, running, recipe):
                    return Begun(
                        name=name,
                        run_id=store.runs(name, most=1)[0].id,
                        release=running.release,
                        was_running=True,
                    )
                raise HeavyliftError(
                    "OPS002",
                    {"name": name, "release": running.release},
                    hint_command=f"heavylift down {name}",
                )
            _clear(store, name)
            return _begin_new(store, wish, name, folder, recipe)


def _begin_new(store: Deployments, wish: UpWish, name: str, folder: Path, recipe: Recipe) -> Begun:
    spec = recipe.spec
    secret_file.prepare(paths.deployment_dir(name), spec, wish.secrets)
    release = store.add_release(
        Release(
            deployment=name,
            number=0,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            recipe_digest=recipe.digest,
            plan_digest=spec.plan_digest,
            receipt_digest=None,
            engine=spec.engine,
            engine_version=spec.engine_version,
            image_digest=spec.image_digest,
            model_revision=spec.model_revision,
            driver=driver.version(),
        )
    )
    kept = recipes.keep(folder, name, release.number)
    runs_by = preparation.place(kept, name=name, target=wish.target, hosts=wish.hosts, url=wish.url)
    deployment = Deployment(
        name=name,
        wanted=UP,
        release=release.number,
        model=spec.served_name or spec.model,
        engine=spec.engine,
        verify=wish.verify,
        ssh=wish.ssh,
        url=wish.url,
    )
    return replace(_begin(store, deployment), runs_by=runs_by)


def _begin(store: Deployments, deployment: Deployment) -> Begun:
    run = new_run(deployment, paths.deployment_dir(deployment.name))
    store.save_deployment(deployment)
    store.save_run(run)
    _spawn_supervisor(deployment.name, run)
    _await_supervisor(store, run)
    return Begun(name=deployment.name, run_id=run.id, release=deployment.release)


def down(name: str) -> DeploymentStatus:
    """Stop a deployment and whatever is left of it; how it stands afterwards. Doing it again does
    nothing. Raises OPS001 for a name that is none; STA009, when everything is stopped, for a disk
    that does not take the record of it.
    """
    with _at_work(name), _store() as store:
        if store.deployment(name) is None and truth.supervisor_pid(name) is not None:
            # Its database was put aside or begun anew: what still runs is to end all the same.
            _clear(store, name)
        deployment = truth.require(store, name)
        refused: HeavyliftError | None = None
        try:
            store.save_deployment(replace(deployment, wanted=DOWN))
        except HeavyliftError as error:
            # The disk is full: what runs is to end all the same.
            refused = error
        _clear(store, name)
        if refused is not None:
            raise refused
        return truth.status(store, truth.require(store, name))


def restart(name: str) -> Begun:
    """Stop a deployment and begin its release again. Raises OPS001."""
    with _at_work(name), _store() as store:
        deployment = truth.require(store, name)
        recipes.read(recipes.release_dir(name, deployment.release))
        # Written first: a disk that is full must not end what serves.
        store.save_deployment(replace(deployment, wanted=UP))
        _clear(store, name)
        return _begin(store, replace(deployment, wanted=UP))


@dataclass(frozen=True, kw_only=True, slots=True)
class RolledBack:
    """A roll-back that was begun. `driver_differs`: what it cannot bring back, then and now."""

    begun: Begun
    before: int
    driver_then: str | None
    driver_now: str | None

    @property
    def driver_differs(self) -> bool:
        """True when the driver is another than that of the release."""
        return self.driver_then != self.driver_now


def rollback(name: str, *, to: int | None = None) -> RolledBack:
    """Begin the newest other release that verified, or release `to`, in place of what runs.

    Raises OPS001; OPS004 when no other release verified; STA006 for a release that is none.
    """
    with _at_work(name), _store() as store:
        deployment = truth.require(store, name)
        found = (
            store.latest_verified(name, but=deployment.release)
            if to is None
            else store.release(name, to)
        )
        if found is None:
            raise HeavyliftError(
                "OPS004", {"name": name}, hint_command=f"heavylift releases {name}"
            )
        recipe = recipes.read(recipes.release_dir(name, found.number))
        _clear(store, name)
        begun = _begin(
            store,
            replace(
                deployment,
                wanted=UP,
                # Whatever was wanted of the release before: what one goes back to is looked at.
                verify=True,
                release=found.number,
                model=recipe.spec.served_name or recipe.spec.model,
                engine=recipe.spec.engine,
            ),
        )
        return RolledBack(
            begun=begun,
            before=deployment.release,
            driver_then=found.driver,
            driver_now=driver.version(),
        )


# --- following a run ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """How a run stood when following it ended."""

    run: RunState

    @property
    def is_sound(self) -> bool:
        """True when it serves and its verification, if any, found nothing."""
        return self.run.phase is Phase.READY and self.run.verdict not in ("fail", "unknown")


def follow(begun: Begun, on_change: Callable[[RunState], None]) -> Followed:
    """Follow a run until it serves and is verified, or is over. `on_change` gets every state seen.

    Raises RUN042 when its supervisor is gone without a word.
    """
    began_s = time.monotonic()
    last = None
    with _store() as store:
        while True:
            is_supervised = truth.supervisor_pid(begun.name) is not None
            run = store.run(begun.run_id)
            if run is None:
                raise HeavyliftError("RUN042", {"name": begun.name, "log": _own_log(begun)})
            if run != last:
                last = run
                on_change(run)
            if run.phase.is_over or (run.phase is Phase.READY and run.verdict != "pending"):
                return Followed(run=run)
            is_young = time.monotonic() - began_s < _STARTED_S and run.supervisor_pid is None
            if not is_supervised and not is_young:
                raise HeavyliftError("RUN042", {"name": begun.name, "log": _own_log(begun)})
            time.sleep(_FOLLOW_S)


def _own_log(begun: Begun) -> str:
    return str(paths.deployment_dir(begun.name) / "supervisor.log")


# --- parts -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _store() -> Iterator[Deployments]:
    with open_deployments(deployments_path()) as store:
        yield store


@contextlib.contextmanager
def _at_work(name: str) -> Iterator[None]:
    """One operation at a time on a deployment. Raises OPS003."""
    path = paths.deployment_dir(name) / truth.OPERATOR_LOCK
    with locks.hold(path, wait_s=_OPERATOR_WAIT_S) as has_it:
        if not has_it:
            raise HeavyliftError("OPS003", {"name": name, "pid": locks.holder(path)})
        yield


def _source(source: Path | EmbeddedWish, scratch: Path) -> Path:
    if isinstance(source, EmbeddedWish):
        recipes.write_embedded(source, scratch)
        return scratch
    return source


def _running(store: Deployments, name: str) -> Deployment | None:
    deployment = store.deployment(name)
    if deployment is None or truth.supervisor_pid(name) is None:
        return None
    return deployment


def _is_same(store: Deployments, running: Deployment, recipe: Recipe) -> bool:
    return store.release(running.name, running.release).recipe_digest == recipe.digest


def _clear(store: Deployments, name: str) -> None:
    """End whatever runs under the name: the supervisor in order, then what is left of any run."""
    run = next(iter(store.runs(name, most=1)), None)
    pid = truth.supervisor_pid(name)
    if pid:
        _end_supervisor(name, pid, run)
    if run is not None:
        preparation.take_back(recipes.release_dir(name, run.release))
    for each in store.runs(name):
        if each.boot_id == processes.boot_id():
            processes.end(processes.of_run(each.id, each.processes), grace_s=1.0)
    run = next(iter(store.runs(name, most=1)), None)
    if run is not None and not run.phase.is_over:
        # Nobody else is left to write it down.
        store.save_run(
            replace(
                run,
                phase=Phase.STOPPED,
                alive=Alive.DEAD,
                ready_at=None,
                ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
            )
        )


def _end_supervisor(name: str, pid: int, run: RunState | None) -> None:
    grace_s = _SUPERVISOR_MORE_S
    if run is not None:
        with contextlib.suppress(HeavyliftError):
            grace_s += recipes.read(recipes.release_dir(name, run.release)).rules.grace_s
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _SUPERVISOR_MORE_S)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        until = time.monotonic() + wait_s
        while truth.supervisor_pid(name) == pid and time.monotonic() < until:
            time.sleep(_FOLLOW_S / 2)
        if truth.supervisor_pid(name) != pid:
            return


def supervise_command(name: str) -> tuple[str, ...]:
    """The command that supervises a deployment in the foreground: for `up` and for systemd."""
    return (sys.executable, "-m", "heavylift", "supervise", name)


def _await_supervisor(store: Deployments, run: RunState) -> None:
    """Wait until the supervisor has taken the run: who comes next must find it at work."""
    until = time.monotonic() + _STARTED_S
    while time.monotonic() < until:
        found = store.run(run.id)
        if found is not None and (found.supervisor_pid is not None or found.phase.is_over):
            return
        time.sleep(_FOLLOW_S / 5)


def _spawn_supervisor(name: str, run: RunState) -> None:
    """Start the supervisor in a session of its own: closing the terminal does not reach it."""
    log = paths.deployment_dir(name) / "supervisor.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    python, *words = supervise_command(name)
    # Its log is for whoever looks for a mistake of ours.
    argv = (python, *words[:2], "--debug", *words[2:], "--run", run.id)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        os.posix_spawn(
            argv[0],
            argv,
            os.environ,
            setsid=True,
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ),
        )
    except OSError as error:
        raise HeavyliftError("RUN010", {"program": argv[0], "reason": reason(error)}) from error
