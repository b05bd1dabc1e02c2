"""Our batch script on a real Slurm: three nodes of eight cards on this machine, stand-in engines.

munged, slurmctld and slurmd of the distribution run in a folder of their own, on ports of the
kernel's choice, and are gone afterwards. `make test-slurm` runs this.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from heavylift.facts.catalog import Catalog
from heavylift.recipe.targets import render
from heavylift.recipe.targets.records import Runtime, TargetOptions
from heavylift.records.launch import LaunchSpec, RankSpec, Rendezvous, host_token

NODES: Final = 3
CARDS: Final = 8
DEADLINE_S: Final = 60
SECRET: Final = "not-to-be-seen"  # noqa: S105 - made up
_TOOLS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "squeue")
_PLACES: Final = "/usr/sbin:/usr/bin:/sbin:/bin"

# Writes down how it was started; with `--until N` it then waits for the others.
_ENGINE: Final = """#!/usr/bin/env python3
import json, os, pathlib, sys, time
out = pathlib.Path(os.environ["STAND_IN_OUT"])
place = [os.environ["SLURM_STEP_ID"], os.environ["SLURM_PROCID"]]
name = "-".join([pathlib.Path(sys.argv[0]).name, *place])
seen = {
    "argv": sys.argv[1:],
    "pid": os.getpid(),
    "node": os.environ["SLURMD_NODENAME"],
    "own": os.environ.get("VLLM_HOST_IP"),
    "key": os.environ.get("ENGINE_API_KEY"),
    "cards": os.environ.get("SLURM_GPUS_ON_NODE") or os.environ.get("SLURM_STEP_GPUS"),
}
(out / f"{name}.part").write_text(json.dumps(seen))
(out / f"{name}.part").rename(out / f"{name}.json")
if "--stay" in sys.argv:
    time.sleep(300)
while len(list(out.glob("*.json"))) < int(os.environ["STAND_IN_COUNT"]):
    time.sleep(0.05)
"""

pytestmark = [pytest.mark.e2e, pytest.mark.slurm]


def _free_ports(count: int) -> list[int]:
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]
    finally:
        for holder in holders:
            holder.close()


def _configuration(folder: Path) -> str:
    host = socket.gethostname().partition(".")[0]
    controller, *nodes = _free_ports(1 + NODES)
    named = [
        f"NodeName=n{index} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1"
        f" RealMemory=100 Gres=gpu:{CARDS} State=UNKNOWN"
        for index, port in enumerate(nodes)
    ]
    settings = {
        "ClusterName": "test",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmUser": getpass.getuser(),
        "SlurmdUser": getpass.getuser(),
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge.socket",
        "StateSaveLocation": f"{folder}/state",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd-%n.pid",
        "SlurmdSpoolDir": f"{folder}/spool-%n",
        "SlurmctldLogFile": f"{folder}/slurmctld.log",
        "SlurmdLogFile": f"{folder}/slurmd-%n.log",
        "SlurmctldPort": controller,
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "ReturnToService": 2,
        "GresTypes": "gpu",
        "MailProg": "/bin/true",
        "KillWait": 2,
    }
    lines = [f"{key}={value}" for key, value in settings.items()]
    partition = "PartitionName=cards Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
    return "\n".join([*lines, *named, partition, ""])


def _wait(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not in time: {what}")
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    """True for a process that is there and not only waiting to be read off."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return words.rpartition(") ")[2][0] not in "ZX"


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands reach the cluster."""
    if os.environ.get("HEAVYLIFT_TEST_SLURM") != "1":
        pytest.skip("starts a Slurm cluster: make test-slurm")
    path = f"{os.environ['PATH']}:{_PLACES}"
    missing = [name for name in _TOOLS if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)} (Debian: slurm-wlm, munge)")
    folder = Path(tempfile.mkdtemp(prefix="hl-slurm-"))
    folder.chmod(0o711)
    for name in ("state", *(f"spool-n{index}" for index in range(NODES))):
        (folder / name).mkdir()
    for index in range(CARDS):
        (folder / f"card{index}").touch()
    configuration = folder / "slurm.conf"
    configuration.write_text(_configuration(folder), "utf-8")
    cards = f"NodeName=n[0-{NODES - 1}] Name=gpu File={folder}/card[0-{CARDS - 1}]\n"
    (folder / "gres.conf").write_text(cards, "utf-8")
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    environment = {**os.environ, "PATH": path, "SLURM_CONF": str(configuration)}

    def run(*argv: str) -> str:
        return subprocess.run(
            argv, env=environment, capture_output=True, text=True, check=True, timeout=DEADLINE_S
        ).stdout

    try:
        run(
            "munged",
            "--force",
            f"--socket={folder}/munge.socket",
            f"--key-file={key}",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munge.seed",
        )
        run("slurmctld", "-f", str(configuration))
        for index in range(NODES):
            run("slurmd", "-N", f"n{index}", "-f", str(configuration))
        _wait(lambda: run("sinfo", "--noheader", "-o", "%D %T").strip() == f"{NODES} idle", "nodes")
        yield environment
    finally:
        _stop(folder)


def _stop(folder: Path) -> None:
    """End what the pid files name, wait until it is gone, and remove the folder."""
    pids = [int(each.read_text()) for each in sorted(folder.glob("slurm*.pid"))]
    pids += [int(each.read_text()) for each in folder.glob("munged.pid")]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    _wait(lambda: not any(map(_runs, pids)), "daemons ending")
    shutil.rmtree(folder)


@pytest.fixture
def submit(cluster: dict[str, str], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Submit a launch as we write it, wait for its end, and say how each process was started."""

    def to_the_end(spec: LaunchSpec, processes: int) -> dict[str, Any]:
        options = TargetOptions(name="test-job", header=("a test",), runtime=Runtime.HOST)
        for file in render("slurm", spec, options, Catalog().card_access("nvidia")).files:
            (tmp_path / file.path).write_text(file.text, "utf-8")
        kept = tmp_path / "secrets.env"
        kept.touch(mode=0o600)
        kept.write_text(f"ENGINE_API_KEY={SECRET}\n", "utf-8")
        tools, out = tmp_path / "bin", tmp_path / "out"
        out.mkdir()
        tools.mkdir()
        for name in {rank.argv[0] for rank in spec.ranks}:
            (tools / name).write_text(_ENGINE, "utf-8")
            (tools / name).chmod(0o755)
        environment = {
            **cluster,
            "PATH": f"{tools}:{cluster['PATH']}",
            "STAND_IN_OUT": str(out),
            "STAND_IN_COUNT": str(processes),
        }
        done = subprocess.run(
            ["sbatch", "--wait", "job.sbatch"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        log = "".join(each.read_text("utf-8") for each in tmp_path.glob("test-job-*.log"))
        found = {each.stem: json.loads(each.read_text("utf-8")) for each in out.glob("*.json")}
        assert len(found) == processes, (done.stdout, done.stderr, log)
        assert SECRET not in log
        found["exit"] = done.returncode
        return found

    return to_the_end


def _rank(name: str, *argv: str, number: int = 0, **given: Any) -> RankSpec:
    return RankSpec(
        rank=number,
        host=name,
        name=name,
        role=name.partition("-")[0],
        node=number,
        argv=argv,
        **{"gpus": CARDS, **given},
    )


def _launch(ranks: tuple[RankSpec, ...], head: str) -> LaunchSpec:
    meeting = Rendezvous(kind="native", head=head, port=29500, rank_flag="--node-rank")
    return LaunchSpec(
        engine="vllm",
        engine_version="0.32.0",
        image_digest=None,
        model="kimi-k3",
        model_revision=None,
        ranks=ranks,
        expected_phases=(),
        deadline_s=600,
        plan_digest="sha256:0",
        gpu_vendor="nvidia",
        bind_host="127.0.0.1",
        served_port=8000,
        rendezvous=(meeting,),
        host_network=True,
    )


def test_each_node_runs_its_rank_and_finds_the_head(
    submit: Callable[..., dict[str, Any]],
) -> None:
    """Ranks are Slurm's, the head is the first node, every node has its own address and cards."""
    ranks = tuple(
        _rank(
            f"serve-{number}",
            *("vllm", "serve", "m", "--master-addr", host_token("serve-0")),
            *("--node-rank", str(number), "--config", '{"a b": "$HOME"}'),
            number=number,
            env={"VLLM_HOST_IP": host_token("self")},
            secrets={"ENGINE_API_KEY": "api-key"} if number == 0 else {},
            ports={"api": 8000} if number == 0 else {},
        )
        for number in range(NODES)
    )
    found = submit(_launch(ranks, "serve-0"), NODES)
    assert found["exit"] == 0
    for number in range(NODES):
        seen = found[f"vllm-0-{number}"]
        assert seen["node"] == f"n{number}"
        assert seen["own"] == f"n{number}"
        assert seen["argv"] == [
            *("serve", "m", "--master-addr", "n0", "--node-rank", str(number)),
            *("--config", '{"a b": "$HOME"}'),
        ]
        assert seen["key"] == (SECRET if number == 0 else None)
        assert seen["cards"] is not None


def test_a_router_stands_beside_the_pools_and_its_end_is_the_end_of_the_job(
    submit: Callable[..., dict[str, Any]],
) -> None:
    """Pools have nodes of their own, the router shares the first; whoever ends, all end."""
    router = _rank(
        "router-0",
        *("router", "--prefill", f"http://{host_token('prefill-0')}:8001"),
        *("--decode", f"http://{host_token('decode-0')}:8001"),
        gpus=0,
        ports={"api": 8000},
    )
    ranks = (
        _rank("prefill-0", "vllm", "serve", "--stay"),
        _rank("prefill-1", "vllm", "serve", "--headless", "--stay", number=1),
        _rank("decode-0", "vllm", "serve", "--stay"),
        router,
    )
    found = submit(_launch(ranks, "prefill-0"), len(ranks))
    engines = {name: seen for name, seen in found.items() if name.startswith("vllm")}
    assert {seen["node"] for seen in engines.values()} == {"n0", "n1", "n2"}
    beside = next(seen for name, seen in found.items() if name.startswith("router"))
    assert beside["node"] == "n0"
    assert beside["argv"] == ["--prefill", "http://n0:8001", "--decode", "http://n2:8001"]
    _wait(lambda: not any(_runs(seen["pid"]) for seen in engines.values()), "engines ending")
