"""Watching deployments: a plan beside fake GPUs, series kept by the supervisor, memory in a batch's
log, the live screen.

There is no GPU here: a program of the tool's name prints what the real one prints.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.e2e.deployments import WAIT_S, Field, field_of_deployments, kill, write_recipe

from heavylift.batch import intake, job
from heavylift.batch.records import Settings, Shape
from heavylift.operate import operations, watching
from heavylift.operate.operations import UpWish
from heavylift.operate.recipes import EmbeddedWish
from heavylift.operate.secret_file import FILE, write
from heavylift.records.deployment import Phase
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Plan
from heavylift.records.series import LEVELS
from heavylift.records.watch import Sight
from heavylift.state import paths
from heavylift.state.series import open_series, series_path

pytestmark = pytest.mark.e2e

MIB = 2**20
HEALTHY = """
[pace]
ttft_s = 0.01
[reply]
tokens = 4
[server]
models = ["scripted"]
"""
HELD = (265_000, 265_000, 265_000, 265_000, 265_000, 265_000, 265_000, 90_000)
"""MB of each of eight cards; the last one fell behind."""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `amd-smi` on PATH over eight cards of 288 GiB; no NVML, no cards of the kernel's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    cards = [
        {
            "gpu": number,
            "mem_usage": {
                "total_vram": {"value": 294_896, "unit": "MB"},
                "used_vram": {"value": held, "unit": "MB"},
            },
            "usage": {"gfx_activity": {"value": 90, "unit": "%"}},
        }
        for number, held in enumerate(HELD)
    ]
    tool = folder / "amd-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps({'gpu_data': cards})}\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return tool


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Field]:
    """A field of deployments; its engines find this source."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path / "home"))
    with field_of_deployments() as there:
        yield there


@pytest.fixture
def recipe(tmp_path: Path, make_plan: Callable[..., Plan]) -> Path:
    """A scripted engine that stands for K3 on eight MI355X."""
    folder = write_recipe(tmp_path / "r", HEALTHY)
    plan = make_plan("kimi-k3", "8xMI355X", engine="atom", tensor=8)
    (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
    return folder


def test_a_deployment_is_watched_against_its_plan(deployed: Field, recipe: Path, smi: Path) -> None:
    """By its name, by its address, or alone; the GPU that fell behind is named, and its plan."""
    assert smi.exists()
    run = deployed.follow(deployed.up(recipe))
    assert run.phase is Phase.READY
    url = (run.url or "").replace("127.0.0.1", "localhost")
    for what in ("d", url, None):
        target = watching.find(what)
        look = watching.Watching(watching.with_curve(target)).look()
        assert (look.name, look.phase, look.sight) == ("d", "ready", Sight.SEEN)
        assert look.engine.sight is Sight.SEEN
        assert look.sources == ("amd-smi",)
        assert len(look.gpus) == 8
        assert look.gpus[0].gpu == 7
        assert (look.gpus[0].drift_bytes or 0) < 0
        assert "observe.memory_imbalance" in [each.code for each in look.findings]
        assert look.notes[0].code == "observe.pool"
        needs = [point.need_bytes for point in look.curve]
        assert needs == sorted(needs)
        assert needs[0] < needs[-1]
        assert {point.held_bytes for point in look.curve} == {265_000 * MIB}


def test_another_start_is_the_one_that_is_watched(deployed: Field, recipe: Path, smi: Path) -> None:
    """Its log and its address, without beginning the watch anew; down, it is not ready."""
    assert smi.exists()
    deployed.follow(deployed.up(recipe))
    watch = watching.Watching(watching.find("d"))
    assert watch.target.start == (1, 1)
    kill(deployed.status().pid)
    deployed.until(lambda now: now.ready and now.attempt == 2)
    look = watch.look()
    assert watch.target.start == (1, 2)
    assert (look.engine.sight, look.restarts) == (Sight.SEEN, 1)
    operations.down("d")
    assert watch.look().engine.sight is Sight.NOT_READY
    assert watching.wanted() == ()


def test_a_deployment_is_asked_for_the_gpus_it_was_given(
    deployed: Field, recipe: Path, smi: Path
) -> None:
    """By number, where its launch names them; on other hosts through the command that leads there;
    submitted ones are elsewhere.
    """
    assert smi.exists()
    path = recipe / "launch.json"
    spec = msgspec.json.decode(path.read_bytes(), type=LaunchSpec)
    given = replace(spec.ranks[0], env={"HIP_VISIBLE_DEVICES": "0, 3"})
    path.write_bytes(msgspec.json.encode(replace(spec, ranks=(given,))))
    deployed.follow(deployed.up(recipe))
    look = watching.Watching(watching.find("d")).look()
    assert sorted(gpu.gpu for gpu in look.gpus) == [0, 3]
    codes = [each.code for each in look.findings]
    assert "observe.gpus_differ" in codes
    folder = paths.deployment_dir("d") / "releases" / "1"
    (folder / "submitted.json").write_text("{}")
    elsewhere = watching.Watching(watching.find("d")).look()
    assert (elsewhere.gpus, elsewhere.sight) == ((), Sight.ELSEWHERE)


def test_the_supervisor_keeps_the_figures_of_its_engine(
    deployed: Field, recipe: Path, smi: Path
) -> None:
    """In the deployment's own file, while it serves."""
    assert smi.exists()
    deployed.follow(deployed.up(recipe))
    end = time.monotonic() + WAIT_S
    names: tuple[str, ...] = ()
    while "engine.running" not in names and time.monotonic() < end:
        time.sleep(0.05)
        if series_path("d").exists():
            with open_series(series_path("d")) as store:
                names = store.names()
    host = watching.this_host()
    assert {f"gpu.{host}.7.memory_used_bytes", "host.memory_available_bytes"} <= set(names)
    kept = watching.history("d", figures=(f"gpu.{host}.7.memory",), span_s=3600)
    (figure,) = kept.figures
    assert figure.buckets[-1].last == 90_000 * MIB
    assert kept.period_s == LEVELS[0].period_s


def test_a_disk_that_fails_ends_no_supervision(deployed: Field, recipe: Path) -> None:
    """The store is a folder here: looks are lost, the engine serves on."""
    deployed.names.append("d")
    series_path("d").mkdir(parents=True)
    run = deployed.follow(deployed.up(recipe))
    assert run.phase is Phase.READY
    time.sleep(0.5)
    assert deployed.status().phase is Phase.READY


def test_memory_of_the_gpus_is_in_the_log_of_a_batch(
    deployed: Field, recipe: Path, smi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a deployment of ours serves the endpoint; each GPU by number."""
    monkeypatch.setattr("heavylift.batch.lane._MEMORY_S", 0.05)
    run = deployed.follow(deployed.up(recipe))
    log = _batch(tmp_path, run.url or "", "ours")
    assert log[-1]["gpu_memory_bytes"] == [held * MIB for held in HELD]
    smi.write_text("#!/bin/sh\nexit 1\n")
    assert "gpu_memory_bytes" not in _batch(tmp_path, run.url or "", "untold")[-1]
    assert watching.gpu_memory("http://192.0.2.1:8000") is None


def _batch(folder: Path, url: str, name: str) -> list[dict[str, object]]:
    """The log of a batch of sixty rows, three at a time."""
    source = folder / f"{name}.jsonl"
    with source.open("w") as file:
        for number in range(60):
            body = {"model": "scripted", "messages": [{"role": "user", "content": f"{number}"}]}
            line = {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions"}
            file.write(json.dumps({**line, "body": body}) + "\n")
    out = folder / f"{name}-out"
    ended = job.run_whole(
        out,
        Settings(endpoints=(url,), concurrency=3),
        intake.Source(path=str(source), shape=Shape()),
        key=None,
        memory_of=watching.gpu_memory,
    )
    assert ended.audit.ok == 60
    return [json.loads(line) for line in (out / "requests.jsonl").read_text().splitlines()]


def test_gpus_of_other_hosts_are_reached_as_their_processes_are(
    deployed: Field, recipe: Path, smi: Path, tmp_path: Path
) -> None:
    """The deployment's own ssh command; each host's GPUs under its name."""
    assert smi.exists()
    begun = deployed.up(recipe)
    deployed.follow(begun)
    status = deployed.status()
    folder = paths.deployment_dir("d") / "releases" / "1" / "launch.json"
    spec = msgspec.json.decode(folder.read_bytes(), type=LaunchSpec)
    here = spec.ranks[0]
    ranks = (here, replace(here, host="rack-8", name="serve-1"), replace(here, host="r", gpus=0))
    folder.write_bytes(msgspec.json.encode(replace(spec, ranks=ranks)))
    target = watching.of_deployment(status)
    assert list(target.reach) == [watching.this_host(), "rack-8"]
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift 2; exec "$@"\n')
    ssh.chmod(0o755)
    words = target.reach["rack-8"] or ()
    target = replace(target, reach={**target.reach, "rack-8": (str(ssh), *words)})
    look = watching.Watching(target).look()
    assert {gpu.host for gpu in look.gpus} == {watching.this_host(), "rack-8"}
    assert len(look.gpus) == 16


def test_the_key_of_a_deployment_is_its_own(deployed: Field, recipe: Path) -> None:
    """From its file of secrets, by the variable its engine reads; never from the command line."""
    deployed.follow(deployed.up(recipe))
    path = paths.deployment_dir("d") / "releases" / "1" / "launch.json"
    spec = msgspec.json.decode(path.read_bytes(), type=LaunchSpec)
    keyed = replace(spec.ranks[0], secrets={"VLLM_API_KEY": "api-key"})
    path.write_bytes(msgspec.json.encode(replace(spec, ranks=(keyed,))))
    write(paths.deployment_dir("d") / FILE, {"api-key": "s3cret"})
    target = watching.find("d")
    assert target.key == "s3cret"


def test_a_real_engine_is_seen_term_by_term(
    engine_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp: its own counters, and the memory its log tells beside the plan, to the byte."""
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "data" / "engines").symlink_to(engine_home / "data" / "engines")
    monkeypatch.setenv("HEAVYLIFT_HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    wish = EmbeddedWish(model="smollm2", slot_tokens=512, slots=2)
    with field_of_deployments() as there:
        there.names.append("d")
        begun = operations.up(UpWish(source=wish, name="d", verify=False))
        assert there.follow(begun).phase is Phase.READY
        look = watching.Watching(watching.find("d")).look()
    assert look.engine.sight is Sight.SEEN
    assert (look.engine.generation_tokens or 0) > 0
    terms = {each.term: each for each in look.terms}
    assert terms["weights"].is_inside
    assert terms["kv_cache"].observed_bytes == terms["kv_cache"].planned_low_bytes
    assert look.reserves is False
    assert [each.code for each in look.findings if each.code == "observe.term"] == []


def test_the_live_screen_is_drawn_again_and_q_ends_it(tmp_path: Path) -> None:
    """On a terminal of eighty columns, which is left as it was."""
    leader, follower = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {
        "HEAVYLIFT_HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TERM": "xterm",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "heavylift", "top", "--interval", "0.2"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        close_fds=True,
    ) as shown:
        os.close(follower)
        drawn = b""
        end = time.monotonic() + WAIT_S
        while drawn.count(b"engine unknown") < 2 and time.monotonic() < end:
            if select.select([leader], [], [], 0.1)[0]:
                drawn += os.read(leader, 65536)
        os.write(leader, b"q")
        while shown.poll() is None and time.monotonic() < end:
            if select.select([leader], [], [], 0.1)[0]:
                try:
                    drawn += os.read(leader, 65536)
                except OSError:
                    break
        assert shown.wait(WAIT_S) == 0
    os.close(leader)
    assert b"\x1b[?1049h" in drawn
    assert b"\x1b[?1049l" in drawn
    assert re.search(rb"Traceback", drawn) is None
