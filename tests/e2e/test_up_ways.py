"""Starts by way of other programs: Docker, Ollama, llama-server; the doctor; logs with an end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.deployments import (
    QUICK,
    Field,
    field_of_deployments,
    free_port,
    gone,
    kill,
    write_recipe,
)
from tests.e2e.test_rehearse import heavylift

from heavylift.cli.text import text
from heavylift.errors import HeavyliftError
from heavylift.operate import doctoring, operations, recipes
from heavylift.planning import Planning
from heavylift.records.deployment import Phase
from heavylift.records.finding import Severity
from heavylift.records.launch import LaunchSpec, Mount, RankSpec
from heavylift.records.plan import PlanRequest

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the front of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    """A field of deployments with a home of its own."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with field_of_deployments() as there:
        yield there


def pretend(folder: Path, name: str) -> None:
    """A pretended program of that name."""
    program = folder / name
    script = HERE / f"pretend_{name}.py"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I {script} "$@"\n')
    program.chmod(0o755)


def changed(folder: Path, **changes: Any) -> LaunchSpec:
    """A recipe with another launch."""
    path = folder / "launch.json"
    spec = replace(msgspec.json.decode(path.read_bytes(), type=LaunchSpec), **changes)
    path.write_bytes(msgspec.json.encode(spec))
    return spec


# --- docker ------------------------------------------------------------------------------------


def test_a_recipe_with_an_image_runs_in_a_container_where_docker_is(
    deployed: Field, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words, never a line for a shell; the image is fetched first and seen to be; secrets go by
    name; what a killed client leaves is taken away before each start and at the end.
    """
    asked = tmp_path / "docker.log"
    monkeypatch.setenv("PRETEND_DOCKER_LOG", str(asked))
    pretend(programs, "docker")
    recipe = write_recipe(tmp_path / "r", "healthy")
    (tmp_path / "weights of a model").mkdir()
    mount = Mount(source=str(tmp_path / "weights of a model"), target="/models")
    spec = changed(
        recipe,
        image="example/engine:1.0",
        host_network=True,
        model_mount=mount,
        files={"talk.jinja": "{{ it }}"},
    )
    rank = replace(
        spec.ranks[0],
        env={"OWN": "a b", "TALK": "{file:talk.jinja}"},
        secrets={"ENGINE_KEY": "api-key"},
    )
    changed(recipe, ranks=(rank,))
    begun = deployed.up(recipe)
    assert begun.runs_by == "docker"
    loading = deployed.until(lambda now: now.phase is Phase.IMAGE and now.progress.total == 2)
    assert loading.progress.unit == "layers"
    run = deployed.follow(begun)
    assert run.phase is Phase.READY, run.failure
    first = deployed.status()
    kill(first.pid)
    deployed.until(lambda now: now.ready and now.attempt == 2)
    operations.down("d")
    words = [json.loads(line) for line in asked.read_text().splitlines()]
    verbs = [each[0] for each in words]
    assert verbs.count("pull") == 1
    assert verbs.count("run") == 2
    assert verbs[0] == "rm"
    assert verbs[-1] == "rm"
    start = words[verbs.index("run")]
    assert "--name=heavylift-d-serve-0" in start
    assert f"--mount=type=bind,source={mount.source},target=/models,readonly" in start
    assert "--env=OWN=a b" in start
    assert "--env=TALK=/heavylift/talk.jinja" in start
    assert "--env=ENGINE_KEY" in start
    assert not any(word.startswith("--env=ENGINE_KEY=") for word in start)
    place = start.index("example/engine:1.0")
    assert start[place + 1 :] == list(rank.argv[1:])
    assert f"--entrypoint={rank.argv[0]}" in start[:place]


def test_docker_is_left_alone_where_processes_are_wanted(
    deployed: Field, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--target processes` calls no client; without it one is, and what nobody tried is said."""
    monkeypatch.setenv("PRETEND_DOCKER_LOG", str(tmp_path / "docker.log"))
    pretend(programs, "docker")
    recipe = write_recipe(tmp_path / "r", "healthy")
    changed(recipe, image="example/engine:1.0", host_network=True)
    assert deployed.follow(deployed.up(recipe, target="processes")).phase is Phase.READY
    assert not (tmp_path / "docker.log").exists()
    code, _, err = heavylift(
        *("up", str(recipe), "--name", "d", "--no-verify", "--no-doctor", "--replace", "--detach")
    )
    assert code == 8, err
    assert text("up.not_run_here", what="docker") in err


def test_an_image_that_cannot_be_fetched_is_the_failure(
    deployed: Field, programs: Path, tmp_path: Path
) -> None:
    """Its client's own words, and no engine is started."""
    (programs / "docker").write_text(
        '#!/bin/sh\n[ "$1" = rm ] || echo "Error: no such manifest"\nexit 1\n'
    )
    (programs / "docker").chmod(0o755)
    recipe = write_recipe(tmp_path / "r", "healthy")
    spec = changed(recipe, image="example/engine:1.0", host_network=True)
    (recipe / "supervision.json").write_bytes(msgspec.json.encode(replace(QUICK, restart_limit=0)))
    run = deployed.follow(deployed.up(recipe))
    assert (run.phase, run.processes[0].pid) == (Phase.FAILED, None)
    assert run.failure is not None
    assert (run.failure.code, run.failure.phase) == ("RUN043", "image")
    assert "no such manifest" in str(run.failure.params["lines"])
    assert spec.image == "example/engine:1.0"


# --- ollama ------------------------------------------------------------------------------------


def test_a_model_is_made_once_its_server_listens_and_said_to_be_partly_on_cards(
    deployed: Field, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file it is made from is the user's alone; a quarter of it on a card is a remark."""
    made = tmp_path / "made.json"
    monkeypatch.setenv("PRETEND_OLLAMA_LOG", str(made))
    pretend(programs, "ollama")
    port = free_port()
    rank = RankSpec(
        rank=0,
        host="serve-0",
        name="serve-0",
        argv=("ollama", "serve"),
        env={"OLLAMA_HOST": f"127.0.0.1:{port}"},
        ports={"api": port},
        serves=True,
    )
    recipe = write_recipe(tmp_path / "r", "healthy", engine="ollama")
    changed(
        recipe,
        ranks=(rank,),
        model="m",
        served_name="m",
        files={"Modelfile": "FROM ./model.gguf\n"},
        prepare=(("ollama", "create", "m", "-f", "{file:Modelfile}"),),
    )
    run = deployed.follow(deployed.up(recipe))
    assert run.phase is Phase.READY, run.failure
    order = json.loads(made.read_text())
    assert (order["name"], order["modelfile"], order["mode"]) == ("m", "FROM ./model.gguf\n", 0o600)
    (found,) = [each for each in run.findings if each.id == "run.placement"]
    assert (found.code, found.severity) == ("run.placement.part", Severity.WARN)
    assert found.params["percent"] == 25


# --- the doctor --------------------------------------------------------------------------------


def test_what_the_doctor_finds_stops_a_start_unless_it_is_taken_on(
    deployed: Field, tmp_path: Path
) -> None:
    """A recipe for cards on a machine without: named, with the way on; taken on, it starts. The
    licence, which has conditions, is acknowledged once.
    """
    recipe = write_recipe(tmp_path / "r", "healthy")
    planning = Planning()
    _, rack = planning.rack("8xMI355X")
    assert rack is not None
    request = PlanRequest(model="kimi-k3", rack=rack, engine="atom")
    plan = planning.plan(request, planning.knowledge("kimi-k3"), with_fixes=False)
    (recipe / "plan.json").write_bytes(msgspec.json.encode(plan))
    words = ("up", str(recipe), "--name", "d", "--no-verify", "--json")
    code, out, err = heavylift(*words, "--accept-licence")
    assert code == 4, err
    stopping = [each["id"] for each in json.loads(out)["findings"]]
    assert stopping
    assert all(each["severity"] == "fail" for each in json.loads(out)["findings"])
    assert f"--despite {min(stopping)}" in err
    deployed.names.append("d")
    taken = [word for name in stopping for word in ("--despite", name)]
    code, _, err = heavylift("up", str(recipe), "--name", "d", "--no-verify", *taken)
    assert code == 0, err
    with pytest.raises(HeavyliftError) as caught:
        doctoring.examine(recipes.read(recipe), ["no.such.check"])
    assert caught.value.code == "USE087"


# --- logs, restart -------------------------------------------------------------------------------


def test_the_log_of_a_talkative_engine_has_an_end(deployed: Field, tmp_path: Path) -> None:
    """Its start and its last part are kept, and it is started again in place."""
    rules = replace(QUICK, log_limit_bytes=600, heartbeat_s=0.2)
    scenario = (
        '[[start]]\nline = "starting"\n\n'
        + '[[start]]\nline = "a long line of words, and more of them"\n\n' * 40
    )
    scenario += (
        '[[start]]\nline = "api"\nthen = "listen"\n\n[[start]]\nthen = "ready"\nline = "ready"\n'
    )
    deployed.follow(deployed.up(write_recipe(tmp_path / "r", scenario, rules=rules)))
    log = Path(str(deployed.status().log))
    start = log.with_name(f"{log.name}.start")
    deployed.until(lambda _now: start.exists())
    assert start.read_text().startswith("starting")
    assert start.stat().st_mode & 0o777 == 0o600
    assert log.stat().st_size <= 600
    before = deployed.status()
    family = deployed.everything()
    again = operations.restart("d")
    assert (again.release, again.was_running) == (before.release, False)
    run = deployed.follow(again)
    assert (run.phase, deployed.status().pid == before.pid) == (Phase.READY, False)
    assert gone(family)
