"""The status of a deployment: what was written down against what runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from heavylift.errors import HeavyliftError
from heavylift.launch import processes
from heavylift.launch.keeper import started_ticks
from heavylift.operate import truth
from heavylift.records.deployment import Alive, Deployment, Phase, ProcessState, RunState
from heavylift.state import locks, paths
from heavylift.state.deployments import Deployments, deployments_path, open_deployments

DEPLOYMENT = Deployment(name="chat", wanted="up", release=3, model="m", engine="e")


@pytest.fixture
def store() -> Iterator[Deployments]:
    """A store with one deployment."""
    with open_deployments(deployments_path()) as deployments:
        deployments.save_deployment(DEPLOYMENT)
        yield deployments


def run(**changes: object) -> RunState:
    """A run that says of itself that it serves; its engine is this very process."""
    engine = ProcessState(
        rank=0,
        host="127.0.0.1",
        log="/l",
        pid=os.getpid(),
        started_ticks=started_ticks(os.getpid()),
    )
    state = RunState(
        id="r",
        deployment="chat",
        release=3,
        folder="/f",
        started_at="",
        boot_id=processes.boot_id(),
        phase=Phase.READY,
        processes=(engine,),
        url="http://127.0.0.1:1",
        alive=Alive.ALIVE,
    )
    return replace(state, **changes)  # type: ignore[arg-type]


def test_what_serves_is_said_to_serve(store: Deployments) -> None:
    """With its supervisor's lock held and its process there."""
    store.save_run(run())
    with locks.hold(paths.deployment_dir("chat") / truth.SUPERVISOR_LOCK, wait_s=0.0):
        status = truth.status(store, DEPLOYMENT)
    assert (status.ready, status.alive, status.url) == (True, Alive.ALIVE, "http://127.0.0.1:1")
    assert (status.pid, status.supervisor_pid) == (os.getpid(), os.getpid())


def test_without_its_supervisor_it_is_lost_whatever_the_record_says(store: Deployments) -> None:
    """Its engine may still be there for a moment; it serves nobody by our word."""
    store.save_run(run())
    status = truth.status(store, DEPLOYMENT)
    assert (status.phase, status.ready, status.url) == (Phase.LOST, False, None)
    assert status.alive is Alive.UNKNOWN


def test_after_a_reboot_a_process_of_the_same_number_is_not_the_engine(
    store: Deployments,
) -> None:
    """Numbers of another boot mean nothing; neither does a number with another start."""
    store.save_run(run(boot_id="another"))
    status = truth.status(store, DEPLOYMENT)
    assert (status.phase, status.pid, status.leftovers) == (Phase.LOST, None, ())
    engine = replace(run().processes[0], started_ticks=1)
    store.save_run(run(processes=(engine,)))
    with locks.hold(paths.deployment_dir("chat") / truth.SUPERVISOR_LOCK, wait_s=0.0):
        status = truth.status(store, DEPLOYMENT)
    assert (status.ready, status.pid, status.alive) == (False, None, Alive.DEAD)


def test_a_run_that_is_over_is_not_lost(store: Deployments) -> None:
    """It has had its last word."""
    store.save_run(run(phase=Phase.STOPPED, processes=()))
    assert truth.status(store, DEPLOYMENT).phase is Phase.STOPPED


def test_a_deployment_that_was_never_run_is_stopped(store: Deployments) -> None:
    """Killed between the two first writes of `up`."""
    status = truth.status(store, DEPLOYMENT)
    assert (status.phase, status.ready, status.release) == (Phase.STOPPED, False, 3)


def test_an_unknown_name_is_said_with_those_there_are(store: Deployments) -> None:
    """What one could have meant."""
    with pytest.raises(HeavyliftError) as caught:
        truth.report(store, "chta")
    assert caught.value.params == {"name": "chta", "known": "chat"}
