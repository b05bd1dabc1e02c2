"""A real one-node Slurm: a recipe submitted, served, killed, taken back.

Runs by `make test-up-slurm` (HEAVYLIFT_TEST_SLURM=1): it needs root, and Slurm's and munge's
programs, which it starts in a folder of its own.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.e2e.deployments import Field, field_of_deployments, free_port, kill, write_recipe

from heavylift.launch import processes
from heavylift.operate import operations
from heavylift.records.deployment import Phase, Supervision
from heavylift.records.launch import LaunchSpec

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("HEAVYLIFT_TEST_SLURM" not in os.environ, reason="see make test-up-slurm"),
]

SLOW = """
[[start]]
line = "starting"

[[start]]
line = "loading weights: 1 of 2"

[[start]]
after_s = 4.0
line = "ready"
then = "listen"

[[start]]
then = "ready"
"""
RULES = Supervision(backoff_s=0.2, grace_s=30.0, look_s=0.5)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """munged, slurmctld and slurmd of one node."""
    folder = Path(os.path.realpath(tmp_path_factory.mktemp("slurm")))
    node = socket.gethostname().partition(".")[0]
    controller, worker = free_port(), free_port()
    for each in ("state", "spool"):
        (folder / each).mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    (folder / "slurm.conf").write_text(
        f"""
ClusterName=test
SlurmctldHost={node}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmctldPort={controller}
SlurmdPort={worker}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
KillWait=2
NodeName={node} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
    )
    subprocess.run(
        [
            "munged",
            "--force",
            f"--key-file={key}",
            f"--socket={folder}/munge.sock",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/seed",
        ],
        check=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        for program in ("slurmctld", "slurmd"):
            subprocess.run([program, "-f", str(folder / "slurm.conf")], check=True)
        try:
            yield
        finally:
            for name in ("slurmd", "slurmctld", "munged"):
                pid = int((folder / f"{name}.pid").read_text())
                os.kill(pid, signal.SIGTERM)
                end = time.monotonic() + 20
                while processes.is_running(pid, None) and time.monotonic() < end:
                    time.sleep(0.05)


@pytest.fixture
def deployed(slurm: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:  # noqa: ARG001 - it must run
    """A field of deployments."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with field_of_deployments() as there:
        yield there


def recipe(folder: Path) -> Path:
    """A batch script that starts a scripted engine."""
    write_recipe(folder, SLOW, rules=RULES)
    spec = msgspec.json.decode((folder / "launch.json").read_bytes(), type=LaunchSpec)
    words = " ".join(spec.ranks[0].argv)
    (folder / "job.sbatch").write_text(
        f"#!/bin/bash\n#SBATCH --job-name=other\n#SBATCH --nodes=1\nexec {words}\n"
    )
    return folder


def jobs() -> list[str]:
    """The jobs in the queue."""
    listed = subprocess.run(
        ["squeue", "--noheader", "--format=%j %T"], check=True, capture_output=True, text=True
    )
    return listed.stdout.splitlines()


def test_a_recipe_is_submitted_served_and_taken_back(deployed: Field, tmp_path: Path) -> None:
    """Phases come from the job's log; `down` empties the queue."""
    run = deployed.follow(deployed.up(recipe(tmp_path / "r"), target="slurm"))
    assert run.phase is Phase.READY, run.failure
    assert Phase.WEIGHTS in deployed.phases
    assert jobs() == ["heavylift-d RUNNING"]
    assert operations.down("d").phase is Phase.STOPPED
    assert jobs() == []


def test_a_job_survives_no_supervisor_and_a_cancelled_job_is_submitted_again(
    deployed: Field, tmp_path: Path
) -> None:
    """With all its processes here killed, the next `up` takes the old job back first."""
    folder = recipe(tmp_path / "r")
    deployed.follow(deployed.up(folder, target="slurm"))
    before = deployed.status()
    kill(before.supervisor_pid, before.processes[0].keeper_pid, before.pid)
    deployed.until(lambda now: now.phase is Phase.LOST)
    deployed.follow(deployed.up(folder, target="slurm"))
    assert jobs() == ["heavylift-d RUNNING"]
    subprocess.run(["scancel", "--name=heavylift-d"], check=True)
    again = deployed.until(lambda now: now.ready and now.attempt == 2)
    assert again.restarts == 1
