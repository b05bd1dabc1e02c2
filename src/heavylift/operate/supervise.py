"""The supervisor's process: takes the lock, reads the release, has every stage at hand."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.launch.job import Hooks, Job, Measured, Proof, Ready
from heavylift.launch.keeper import PR_SET_CHILD_SUBREAPER
from heavylift.launch.supervisor import Supervisor, new_run
from heavylift.operate import memory, placement, preparation, recipes, secret_file, truth
from heavylift.operate.explain import Explaining
from heavylift.operate.keeping import Keeping
from heavylift.operate.operations import UP
from heavylift.operate.proof import Proving
from heavylift.records.deployment import Deployment, Failure, RunState
from heavylift.records.release import Verdict
from heavylift.state import locks, paths
from heavylift.state.deployments import Deployments, deployments_path, open_deployments
from heavylift.telemetry.engine_log import EngineWords

_LOCK_WAIT_S: Final = 10.0
_NOT_WRITTEN: Final = "STA009"
VERIFY: Final = "verify"


def supervise(name: str, run_id: str | None = None) -> RunState | None:
    """Supervise a deployment until it is over. `run_id`: a run that was begun; None = a new one.

    None when there is nothing to do: nobody wants it up, or a later run was begun meanwhile.
    Raises OPS001 for a name that is none, OPS006 when it is supervised already.
    """
    lock = paths.deployment_dir(name) / truth.SUPERVISOR_LOCK
    with open_deployments(deployments_path()) as store:
        truth.require(store, name)
        with locks.hold(lock, wait_s=_LOCK_WAIT_S) as has_it:
            if not has_it:
                raise HeavyliftError("OPS006", {"name": name, "pid": locks.holder(lock)})
            # Read under the lock: what was wanted before it may not be wanted now.
            deployment = truth.require(store, name)
            newest = next(iter(store.runs(name, most=1)), None)
            is_late = run_id is not None and (newest is None or newest.id != run_id)
            if deployment.wanted != UP or is_late:
                return None
            return _Supervising(store, deployment).run(run_id)


class _Supervising:
    def __init__(self, store: Deployments, deployment: Deployment) -> None:
        self._store = store
        self._deployment = deployment
        self._catalog = Catalog()
        self._recipe = recipes.read(recipes.release_dir(deployment.name, deployment.release))

    def run(self, run_id: str | None) -> RunState:
        folder = paths.deployment_dir(self._deployment.name)
        run = None if run_id is None else self._store.run(run_id)
        if run is None:
            run = new_run(self._deployment, folder)
        run = replace(run, supervisor_pid=os.getpid())
        self._store.save_run(run)
        # Whatever loses its parent below us is ours to end.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        supervisor = Supervisor(self._job(folder), run, self._hooks())

        def stop(_number: int, _frame: object) -> None:
            supervisor.stop_asked = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return supervisor.run()

    def _job(self, folder: Path) -> Job:
        spec = self._recipe.spec
        kept = recipes.release_dir(self._deployment.name, self._deployment.release)
        secrets = folder / secret_file.FILE
        return Job(
            deployment=self._deployment,
            spec=spec,
            plan=self._recipe.plan,
            folder=folder,
            secrets=secret_file.read(secrets) if secrets.is_file() else {},
            rules=self._recipe.rules,
            metrics=self._catalog.metric_names(),
            words=EngineWords(self._catalog.engine_logs(), spec.engine),
            restarts=self._catalog.restarts(),
            recipe_folder=kept,
            ways=preparation.ways(self._catalog, kept, spec),
        )

    def _hooks(self) -> Hooks:
        proving = Proving(self._store, self._deployment, self._recipe, self._catalog)
        return Hooks(
            explain=self._explain,
            measure=self._measure,
            save=self._save,
            judged=self._judged,
            prove=proving.prove if self._deployment.verify else None,
            watch=Keeping(self._deployment.name).keep,
        )

    def _save(self, run: RunState) -> bool:
        try:
            self._store.save_run(run)
        except HeavyliftError as error:
            if error.code != _NOT_WRITTEN:
                raise
            return False
        return True

    def _explain(self, failure: Failure, logs: tuple[Path, ...]) -> Failure:
        return Explaining(self._catalog, self._recipe).explain(failure, logs)

    def _measure(self, ready: Ready) -> Measured:
        book = self._catalog.engine_logs()
        measured = memory.measure(self._recipe, ready.attempt, ready.logs[0], book=book)
        placed = placement.findings(self._catalog, self._recipe, ready)
        if measured.receipt is None:
            return Measured(findings=(*measured.findings, *placed))
        digest = None
        with _unless_the_disk_is_full():
            digest = self._store.save_receipt(measured.receipt)
            self._store.add_receipt_digest(self._deployment.name, self._deployment.release, digest)
        return Measured(findings=(*measured.findings, *placed), receipt_digest=digest)

    def _judged(self, run: RunState, proof: Proof) -> None:
        verdict = Verdict(
            stage=VERIFY,
            status=proof.verdict,
            at=run.phase_at,
            report=str(Path(run.folder) / "verification.json"),
        )
        with _unless_the_disk_is_full():
            self._store.add_verdict(run.deployment, run.release, verdict)


@contextlib.contextmanager
def _unless_the_disk_is_full() -> Iterator[None]:
    """A full disk costs records, not an engine that serves."""
    try:
        yield
    except HeavyliftError as error:
        if error.code != _NOT_WRITTEN:
            raise
