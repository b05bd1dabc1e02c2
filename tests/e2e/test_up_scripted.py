"""Deployments of scripted engines: slow loads, dead and slow engines, deaths, memory, ports, kills.

Times are scaled: a supervision that suspects after 30 s does so after 1.5 s here.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.deployments import (
    QUICK,
    Field,
    field_of_deployments,
    gone,
    kill,
    write_recipe,
)

from heavylift.errors import HeavyliftError
from heavylift.operate import operations
from heavylift.records.deployment import Alive, DeploymentStatus, Phase
from heavylift.state.deployments import Deployments, deployments_path
from heavylift.wire.client import Endpoint, Limits, ask
from heavylift.wire.reply import ChatRequest

pytestmark = pytest.mark.e2e

SLOW = """
[[start]]
line = "starting"

[[start]]
after_s = 0.2
line = "loading weights: 1 of 4"

[[start]]
after_s = 0.4
line = "loading weights: 3 of 4"

[[start]]
after_s = 0.2
line = "memory for the cache: 1024 MiB"
then = "listen"

[[start]]
after_s = 0.2
line = "ready"
then = "ready"
"""


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    """A field of deployments; its engines find this source."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with field_of_deployments() as there:
        yield there


def test_a_slow_load_is_followed_by_phase_and_shard(deployed: Field, tmp_path: Path) -> None:
    """Each phase comes as the log tells it, with its shards; ready means answered."""
    begun = deployed.up(write_recipe(tmp_path / "r", SLOW))
    loading = deployed.until(lambda now: now.progress.done == 1)
    assert (loading.phase, loading.progress.total, loading.ready) == (Phase.WEIGHTS, 4, False)
    run = deployed.follow(begun)
    order = list(Phase)
    assert deployed.phases == sorted(deployed.phases, key=order.index)
    assert deployed.phases[-1] is Phase.READY
    status = deployed.status()
    assert (status.ready, status.alive, status.release) == (True, Alive.ALIVE, 1)
    assert status.url == run.url
    assert status.pid is not None


def test_the_same_recipe_again_is_no_second_start(deployed: Field, tmp_path: Path) -> None:
    """`up` twice is one deployment; another recipe under its name is refused, or replaces it."""
    folder = write_recipe(tmp_path / "r", "healthy")
    deployed.follow(deployed.up(folder))
    pid = deployed.status().pid
    again = deployed.up(folder)
    assert (again.was_running, deployed.status().pid) == (True, pid)
    other = write_recipe(tmp_path / "other", "healthy", version="2")
    with pytest.raises(HeavyliftError) as caught:
        deployed.up(other)
    assert caught.value.code == "OPS002"
    deployed.follow(deployed.up(other, replace=True))
    status = deployed.status()
    assert (status.release, status.ready) == (2, True)
    assert status.pid != pid


def test_an_api_over_a_dead_engine_is_found_and_started_again(
    deployed: Field, tmp_path: Path
) -> None:
    """Health, models and metrics answer 200, but no step is taken: dead, and started again, up to
    the limit, which is said.
    """
    rules = replace(
        QUICK, suspect_s=0.4, probe_timeout_s=0.6, heartbeat_s=0.2, restart_limit=1, grace_s=0.5
    )
    deployed.follow(deployed.up(write_recipe(tmp_path / "r", "freezes", rules=rules)))
    over = deployed.until(lambda now: now.phase is Phase.FAILED)
    assert over.restarts == rules.restart_limit
    assert over.failure is not None
    assert (over.failure.code, over.failure.restart_reason) == ("RUN032", "limit")
    assert over.failure.params["reason"] in ("no_steps_no_answer", "idle_with_work")
    assert gone(deployed.everything())


def test_a_long_prompt_is_left_alone(deployed: Field, tmp_path: Path) -> None:
    """For many times the suspicion's span no token comes, and the engine is not touched."""
    rules = replace(QUICK, suspect_s=0.5, probe_timeout_s=1.0)
    deployed.follow(deployed.up(write_recipe(tmp_path / "r", "long-prefill", rules=rules)))
    before = deployed.status()
    endpoint = Endpoint.parse(str(before.url))
    request = ChatRequest(
        model="scripted", messages=({"role": "user", "content": "a long prompt"},)
    )
    waiting = threading.Thread(
        target=ask, args=(endpoint, request), kwargs={"limits": Limits(total_s=4.0)}, daemon=True
    )
    waiting.start()
    seen = set()
    while waiting.is_alive():
        now = deployed.status()
        seen.add(now.alive)
        assert (now.pid, now.attempt) == (before.pid, 1)
    assert Alive.ALIVE in seen
    assert Alive.DEAD not in seen


def test_an_engine_that_dies_in_a_stream_is_started_again(deployed: Field, tmp_path: Path) -> None:
    """It had served: the next attempt serves under the same name and address."""
    rules = replace(QUICK, heartbeat_s=3600.0)
    deployed.follow(deployed.up(write_recipe(tmp_path / "r", "dies-mid-stream", rules=rules)))
    first = deployed.status()
    request = ChatRequest(model="scripted", messages=({"role": "user", "content": "go on"},))
    for _ in range(2):
        ask(Endpoint.parse(str(first.url)), request, limits=Limits(total_s=20.0))
    second = deployed.until(lambda now: now.ready and now.attempt == 2)
    assert (second.url, second.restarts) == (first.url, 1)
    assert second.pid != first.pid


def test_garbage_at_the_start_is_found_without_a_verification(
    deployed: Field, tmp_path: Path
) -> None:
    """The API is well and the log is clean; the first answer is `!!!!`."""
    scenario = '[reply]\ntext = "!!!!!!!!!!!!!!!!!!!!!!!!"\n'
    run = deployed.follow(deployed.up(write_recipe(tmp_path / "r", scenario)))
    assert run.phase is Phase.READY
    found = deployed.until(lambda now: now.findings != ())
    assert [each.code for each in found.findings] == ["run.words.garbage_text"]


def test_memory_that_does_not_suffice_at_load_is_explained_and_not_tried_again(
    deployed: Field, tmp_path: Path
) -> None:
    """The next start would meet the same: the cause, its line and its fix are in the status."""
    scenario = """
[[start]]
line = "starting"

[[start]]
after_s = 0.2
line = "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:10<00:10, 10.0s/it]"

[[start]]
line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
stream = "stderr"
then = "exit"
"""
    run = deployed.follow(deployed.up(write_recipe(tmp_path / "r", scenario, engine="vllm")))
    assert (run.phase, run.attempt, run.restarts) == (Phase.FAILED, 1, 0)
    assert run.failure is not None
    assert (run.failure.phase, run.progress.total) == ("weights", 2)
    assert run.failure.cause_class == "weights_do_not_fit"
    assert run.failure.restart_reason == "same_again"
    assert "out of memory" in str(run.failure.line)
    assert run.failure.fix


def test_a_death_at_load_that_nothing_explains_is_tried_once_more(
    deployed: Field, tmp_path: Path
) -> None:
    """Once, not for ever."""
    scenario = '[[start]]\nline = "starting"\nthen = "exit"\nstatus = 7\n'
    run = deployed.follow(deployed.up(write_recipe(tmp_path / "r", scenario)))
    assert (run.phase, run.attempt) == (Phase.FAILED, 2)
    assert run.failure is not None
    assert run.failure.restart_reason == "unexplained_again"
    assert run.failure.params["exit_code"] == 7


def test_a_taken_port_is_said_before_anything_is_started(deployed: Field, tmp_path: Path) -> None:
    """Preflight finds it; no engine is started, and not again either."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        run = deployed.follow(deployed.up(write_recipe(tmp_path / "r", "healthy", port=port)))
    assert (run.phase, run.attempt) == (Phase.FAILED, 1)
    assert run.failure is not None
    assert (run.failure.code, run.failure.phase) == ("RUN033", "preflight")
    assert run.failure.params["port"] == port
    assert run.processes == () or run.processes[0].pid is None


@pytest.mark.parametrize("scenario", ["never-ready", "server-error"])
def test_a_start_that_stands_still_is_given_up(
    deployed: Field, tmp_path: Path, scenario: str
) -> None:
    """Listening, even listing its model, is not ready; without progress it is not waited for."""
    rules = replace(QUICK, stall_s=1.5, restart_limit=0)
    recipe = write_recipe(tmp_path / "r", scenario, rules=rules, deadline_s=3)
    run = deployed.follow(deployed.up(recipe))
    assert run.phase is Phase.FAILED
    assert run.failure is not None
    assert run.failure.code in ("RUN030", "RUN031")
    assert str(run.failure.params["reason"]).startswith("chat:")


# --- kills ---------------------------------------------------------------------------------------


def _in_weights(now: DeploymentStatus) -> bool:
    return now.phase is Phase.WEIGHTS


def _ready(now: DeploymentStatus) -> bool:
    return now.ready


def _in_process(now: DeploymentStatus) -> bool:
    return now.pid is not None


WHEN = {"process": _in_process, "weights": _in_weights, "ready": _ready}


VICTIMS = ("supervisor", "supervisor and keeper", "all")
IS_WHOLE = bool(os.environ.get("HEAVYLIFT_TEST_KILLS"))
"""`make test-up-kills`: every victim at every phase. Else each victim and each phase once."""

LOSSES = (
    [(what, when) for what in VICTIMS for when in WHEN]
    if IS_WHOLE
    else [("supervisor", "process"), ("all", "weights"), ("supervisor and keeper", "ready")]
)
DEATHS = (
    [(what, when) for what in ("keeper", "engine") for when in WHEN]
    if IS_WHOLE
    else [("keeper", "ready"), ("engine", "weights")]
)


@pytest.mark.parametrize(("what", "when"), LOSSES)
def test_without_its_supervisor_nothing_runs_on_and_up_begins_anew(
    deployed: Field, tmp_path: Path, what: str, when: str
) -> None:
    """After a kill at any phase the status says lost, no process is left over, and `up` works."""
    folder = write_recipe(tmp_path / "r", SLOW)
    deployed.up(folder)
    before = deployed.until(WHEN[when])
    family = deployed.everything()
    keeper = before.processes[0].keeper_pid
    victims: dict[str, tuple[int | None, ...]] = {
        "supervisor": (before.supervisor_pid,),
        "supervisor and keeper": (before.supervisor_pid, keeper),
        "all": (before.supervisor_pid, keeper, before.pid),
    }
    kill(*victims[what])
    lost = deployed.until(lambda now: now.supervisor_pid is None)
    assert (lost.phase, lost.ready, lost.url) == (Phase.LOST, False, None)
    assert gone(family)
    assert deployed.status().leftovers == ()
    run = deployed.follow(deployed.up(folder))
    assert (run.phase, deployed.status().ready) == (Phase.READY, True)


@pytest.mark.parametrize(("what", "when"), DEATHS)
def test_a_killed_engine_is_started_again_and_leaves_nothing(
    deployed: Field, tmp_path: Path, what: str, when: str
) -> None:
    """Whether the engine is killed or the keeper that holds it."""
    deployed.up(write_recipe(tmp_path / "r", SLOW))
    before = deployed.until(WHEN[when])
    kill(before.pid if what == "engine" else before.processes[0].keeper_pid)
    after = deployed.until(lambda now: now.ready and now.attempt == 2)
    assert after.restarts == 1
    assert gone((int(str(before.pid)),))
    assert before.pid not in deployed.everything()


def test_killed_while_it_waits_to_start_again(deployed: Field, tmp_path: Path) -> None:
    """Between two attempts too the status is the truth, and `down` ends it."""
    rules = replace(QUICK, backoff_s=60.0)
    deployed.up(write_recipe(tmp_path / "r", "healthy", rules=rules))
    kill(deployed.until(_ready).pid)
    waiting = deployed.until(lambda now: now.phase is Phase.BACKOFF)
    assert (waiting.ready, waiting.pid, waiting.restart_at is None) == (False, None, False)
    kill(waiting.supervisor_pid)
    assert deployed.until(lambda now: now.supervisor_pid is None).phase is Phase.LOST
    assert operations.down("d").phase is Phase.STOPPED


def test_down_works_from_any_state_and_twice(deployed: Field, tmp_path: Path) -> None:
    """In the middle of a load: everything ends, in order, and a second time changes nothing."""
    deployed.up(write_recipe(tmp_path / "r", SLOW))
    deployed.until(_in_weights)
    family = deployed.everything()
    assert operations.down("d").phase is Phase.STOPPED
    assert gone(family)
    assert operations.down("d").phase is Phase.STOPPED


def test_the_deployment_outlives_its_command_and_terminal(deployed: Field, tmp_path: Path) -> None:
    """`up` killed while it waits, and the signal of a closing terminal: the start goes on."""
    folder = write_recipe(tmp_path / "r", SLOW)
    deployed.names.append("d")
    argv = [sys.executable, "-m", "heavylift", "up", str(folder), "--name=d", "--no-verify"]
    with subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as command:
        deadline = threading.Event()
        while command.poll() is None and not deadline.wait(0.02):
            with_name = _named(deployed)
            if with_name is not None and with_name.pid is not None:
                break
        os.killpg(command.pid, signal.SIGHUP)
        command.kill()
    after = deployed.until(_ready)
    assert os.getsid(int(str(after.supervisor_pid))) == after.supervisor_pid


def _named(deployed: Field) -> DeploymentStatus | None:
    try:
        return deployed.status()
    except HeavyliftError:
        return None


def test_two_at_once_are_one(deployed: Field, tmp_path: Path) -> None:
    """Of two operators one waits or is told; there is never a second supervisor."""
    folder = write_recipe(tmp_path / "r", "healthy")
    told: list[str] = []

    def up() -> None:
        try:
            deployed.up(folder)
        except HeavyliftError as error:
            told.append(error.code)

    both = [threading.Thread(target=up) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert set(told) <= {"OPS003"}
    deployed.until(_ready)
    assert len(deployed.everything()) == 2  # keeper and engine


def test_a_full_disk_costs_records_and_no_engine(
    deployed: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor that can write nothing goes on, and keeps what it could not as soon as it can;
    `down` ends everything and then says that it was not written down.
    """
    before = deployed.follow(deployed.up(write_recipe(tmp_path / "r", "healthy")))
    supervisor = before.supervisor_pid
    assert supervisor is not None
    _, hard = resource.prlimit(supervisor, resource.RLIMIT_FSIZE)
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (0, hard))
    # Each of these is a change that it would write down.
    kill(before.processes[0].pid)
    assert gone(tuple(each.pid for each in before.processes if each.pid is not None))
    assert deployed.status().supervisor_pid == supervisor
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (hard, hard))
    again = deployed.until(lambda now: now.ready and now.attempt > 1)
    assert again.supervisor_pid == supervisor

    def full(*_: object) -> None:
        raise HeavyliftError("STA009", {"detail": "database or disk is full"})

    family = deployed.everything()
    with monkeypatch.context() as patched:
        patched.setattr(Deployments, "save_deployment", full)
        with pytest.raises(HeavyliftError, match="STA009"):
            operations.restart("d")
        assert deployed.status().ready
        with pytest.raises(HeavyliftError, match="STA009"):
            operations.down("d")
    assert gone(family)
    assert deployed.status().phase is Phase.STOPPED


def test_a_database_put_aside_leaves_nothing_running(deployed: Field, tmp_path: Path) -> None:
    """One that is broken is told with the command that puts it aside; what still ran under a name
    is ended by `down` and by `up`, by the lock of its supervisor.
    """
    folder = write_recipe(tmp_path / "r", "healthy")
    deployed.follow(deployed.up(folder))
    family = deployed.everything()
    supervisor = deployed.status().supervisor_pid
    path = deployments_path()
    for each in list(path.parent.glob(f"{path.name}*")):
        each.rename(each.with_name(f"kept-{each.name}"))
    path.write_bytes(b"no database at all" * 400)
    with pytest.raises(HeavyliftError) as broken:
        deployed.status()
    assert broken.value.hint_command == f"mv {path} {path}.broken"
    path.unlink()
    with pytest.raises(HeavyliftError, match="OPS001"):
        operations.down("d")
    assert gone((*family, int(str(supervisor))))
    deployed.follow(deployed.up(folder))
