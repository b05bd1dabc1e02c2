"""The truth about deployments: what was written down, against what runs now."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.launch import processes
from heavylift.operate.secret_file import FILE
from heavylift.records.deployment import (
    Alive,
    Deployment,
    DeploymentStatus,
    Phase,
    RunState,
    StatusReport,
)
from heavylift.state import locks, paths
from heavylift.state.deployments import Deployments

SUPERVISOR_LOCK: Final = "supervisor.lock"
OPERATOR_LOCK: Final = "operator.lock"


def report(store: Deployments, name: str | None = None) -> StatusReport:
    """The status of one deployment or of all. Raises OPS001 for a name that is none."""
    found = store.deployments() if name is None else (require(store, name),)
    return StatusReport(deployments=tuple(status(store, each) for each in found))


def require(store: Deployments, name: str) -> Deployment:
    """The deployment of that name. Raises OPS001, with those there are."""
    found = store.deployment(name)
    if found is None:
        known = ", ".join(each.name for each in store.deployments())
        raise HeavyliftError("OPS001", {"name": name, "known": known})
    return found


def status(store: Deployments, deployment: Deployment) -> DeploymentStatus:
    """The status of a deployment."""
    # The lock before the record: a supervisor writes its last word while it holds it.
    supervisor = supervisor_pid(deployment.name)
    run = next(iter(store.runs(deployment.name, most=1)), None)
    if run is None:
        return _bare(deployment, supervisor)
    same_boot = run.boot_id == processes.boot_id()
    family = processes.of_run(run.id, run.processes) if same_boot else ()
    return _judged(deployment, run, supervisor, family, same_boot=same_boot)


def supervisor_pid(name: str) -> int | None:
    """The supervisor of a deployment, by the lock it holds; None = there is none."""
    return locks.holder(paths.deployment_dir(name) / SUPERVISOR_LOCK)


def _bare(deployment: Deployment, supervisor: int | None) -> DeploymentStatus:
    return DeploymentStatus(
        name=deployment.name,
        phase=Phase.STOPPED if supervisor is None else Phase.PREFLIGHT,
        pid=None,
        url=None,
        ready=False,
        alive=Alive.UNKNOWN,
        release=deployment.release,
        wanted=deployment.wanted,
        model=deployment.model,
        engine=deployment.engine,
        supervisor_pid=supervisor,
    )


def _judged(
    deployment: Deployment,
    run: RunState,
    supervisor: int | None,
    family: tuple[int, ...],
    *,
    same_boot: bool,
) -> DeploymentStatus:
    first = run.processes[0] if run.processes else None
    is_here = first is not None and first.host in processes.LOCAL
    is_there = first is not None and (
        processes.is_running(first.pid, first.started_ticks)
        if is_here
        else first.exit_code is None and first.pid is not None
    )
    is_there = is_there and same_boot
    # Without a supervisor nothing is looked after, whatever the record says.
    phase = run.phase if supervisor is not None or run.phase.is_over else Phase.LOST
    ready = phase is Phase.READY and is_there
    return DeploymentStatus(
        name=deployment.name,
        phase=phase,
        pid=first.pid if first is not None and is_there else None,
        url=run.url if ready else None,
        ready=ready,
        alive=_alive(run, phase, is_there=is_there),
        release=run.release,
        wanted=deployment.wanted,
        model=deployment.model,
        engine=deployment.engine,
        supervisor_pid=supervisor,
        attempt=run.attempt,
        restarts=run.restarts,
        since=run.phase_at,
        ready_s=run.ready_s,
        progress=run.progress,
        stalled_s=run.stalled_s,
        is_late=run.is_late,
        alive_reason=run.alive_reason,
        restart_at=run.restart_at,
        verdict=run.verdict,
        verdict_reasons=run.verdict_reasons,
        failure=run.failure,
        findings=run.findings,
        leftovers=family if supervisor is None else (),
        log=None if first is None else first.log,
        secrets_file=_secrets_file(deployment.name),
        processes=run.processes,
    )


def _secrets_file(name: str) -> str | None:
    path = paths.deployment_dir(name) / FILE
    return str(path) if path.is_file() and path.stat().st_size else None


def _alive(run: RunState, phase: Phase, *, is_there: bool) -> Alive:
    if not is_there:
        return Alive.DEAD if phase not in (Phase.PREFLIGHT, Phase.PROCESS) else Alive.UNKNOWN
    return Alive.UNKNOWN if phase is Phase.LOST else run.alive


def newest_log(run: RunState) -> Path | None:
    """The log of the run's newest attempt."""
    return Path(run.processes[0].log) if run.processes else None
