"""The real llama.cpp through up, kill, restart, rollback, down: SmolLM2, and the tiny K3."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from tests.e2e.deployments import (
    QUICK,
    Command,
    Field,
    compared,
    free_port,
    gone,
    kill,
    status_of,
)

from heavylift.cli.text import text
from heavylift.devserver import tiny_k3 as tiny
from heavylift.launch import engine_env
from heavylift.launch.embedded import launch
from heavylift.operate import recipes
from heavylift.planning import THIS_MACHINE, Planning
from heavylift.recipe.engines.embedded import ENGINE, EmbeddedSettings
from heavylift.records.deployment import Alive, Phase
from heavylift.records.plan import Agreement, PlanRequest
from heavylift.state.deployments import deployments_path, open_deployments

pytestmark = pytest.mark.e2e


@pytest.fixture
def deployed(deployed_embedded: Field) -> Field:
    """A field of deployments with the embedded engine."""
    return deployed_embedded


def test_a_model_is_served_verified_killed_restarted_rolled_back_and_stopped(
    deployed: Field, heavylift: Command
) -> None:
    """The whole life of a deployment by the commands that a person types."""
    deployed.names.append("d")
    code, out, err = heavylift(
        "up", "smollm2", "--name", "d", "--context", "2048", "--concurrency", "2"
    )
    assert code == 0, err
    assert text("phase.ready") in err
    assert text("status.verdict.pass") in out
    first = status_of(heavylift)
    assert {"name", "phase", "pid", "url", "ready", "alive", "release"} <= first.keys()
    assert (first["name"], first["phase"], first["ready"]) == ("d", "ready", True)
    assert (first["alive"], first["release"], first["verdict"]) == ("alive", 1, "pass")
    assert [each["severity"] for each in first["findings"]] == []

    kill(first["pid"])
    second = deployed.until(lambda now: now.ready and now.attempt == 2)
    assert second.restarts == 1

    code, out, err = heavylift(
        "up",
        "smollm2",
        "--name",
        "d",
        "--context",
        "1024",
        "--replace",
        "--concurrency",
        "2",
        "--no-verify",
        "--no-doctor",
    )
    assert (code, status_of(heavylift)["release"]) == (0, 2), err
    _, out, _ = heavylift("releases", "d", "--diff", "1", "2")
    assert "setting.context_tokens\n  - 2048\n  + 1024" in out

    code, out, err = heavylift("rollback", "d")
    # Verified again: the words of this start are those of the first, for it is the same recipe.
    status = status_of(heavylift)
    assert (code, status["release"], status["verdict"]) == (0, 1, "pass"), err
    _, out, _ = heavylift("releases", "d", "--json")
    listed = json.loads(out)["releases"]
    assert [
        (each["release"]["number"], each["is_current"], each["is_verified"]) for each in listed
    ] == [
        (2, False, False),
        (1, True, True),
    ]
    assert listed[1]["release"]["receipt_digest"] is not None
    _, out, _ = heavylift("logs", "d", "-n", "5")
    assert len(out.splitlines()) == 5

    family = deployed.everything()
    code, out, _ = heavylift("down", "d")
    assert (code, text("status.stopped") in out) == (0, True)
    assert gone(family)
    assert status_of(heavylift)["phase"] == "stopped"
    assert heavylift("status", "d")[0] == 1


def test_the_tiny_k3_takes_the_bytes_that_were_planned(
    deployed: Field, tiny_k3: Path, tmp_path: Path
) -> None:
    """KV and state of K3's own architecture: no finding about memory, and a receipt is kept. A
    planned byte count that is wrong is a finding with its term.
    """
    planning = Planning()
    facts = tiny.tiny_model(planning.catalog.model(tiny.MODEL_ID))
    _, rack = planning.rack(THIS_MACHINE)
    assert rack is not None
    request = PlanRequest(
        model=facts.id, rack=rack, engine=ENGINE, context_tokens=2048, concurrency=2
    )
    plan = planning.plan(request, planning.knowledge_of(facts))
    settings = EmbeddedSettings(model_path=str(tiny_k3), model=facts.id, slot_tokens=1024, slots=2)
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "launch.json").write_bytes(msgspec.json.encode(launch(settings, plan_digest="")))
    (recipe / "plan.json").write_bytes(msgspec.json.encode(plan))
    (recipe / "supervision.json").write_bytes(msgspec.json.encode(QUICK))
    run = deployed.follow(deployed.up(recipe))
    assert run.phase is Phase.READY
    # Random weights may well repeat themselves; memory is what is looked at here.
    assert not [each for each in run.findings if each.code.startswith("run.memory")]
    with open_deployments(deployments_path()) as store:
        assert store.release("d", 1).receipt_digest == run.receipt_digest is not None
    # Four slots where two were planned: twice the state, and more KV.
    wider = EmbeddedSettings(model_path=str(tiny_k3), model=facts.id, slot_tokens=1024, slots=4)
    (recipe / "launch.json").write_bytes(msgspec.json.encode(launch(wider, plan_digest="")))
    run = deployed.follow(deployed.up(recipe, replace=True))
    named = {finding.subject for finding in run.findings if finding.code == "run.memory.term"}
    assert {"kv_cache", "recurrent_state.kda_recurrent"} <= named
    assert deployed.status().alive is Alive.ALIVE


def test_a_written_recipe_takes_the_memory_of_its_plan_term_by_term(
    deployed: Field, heavylift: Command, tmp_path: Path
) -> None:
    """The folder that `recipe` writes, started as it is: each term that llama.cpp prints is the
    planned one, to its last digit or inside its interval; slots share the planned context.
    """
    deployed.names.append("d")
    recipe = tmp_path / "recipe"
    code, _, err = heavylift(
        *("recipe", "smollm2-135m-instruct", "--on", "this-machine", "--engine", "embedded"),
        *("--context", "2048", "--concurrency", "2", "--port", str(free_port())),
        *("-o", str(recipe)),
    )
    assert code == 0, err
    code, _, err = heavylift("up", str(recipe), "--name", "d", "--no-verify")
    assert code == 0, err
    assert deployed.run().findings == ()
    terms = compared(deployed, recipe)
    assert terms["kv_cache"].measured_bytes == 2048 * 30 * 3 * 64 * 2 * 2
    assert terms["kv_cache"].agreement is Agreement.EQUAL
    assert {each.agreement for each in terms.values()} <= {
        *(Agreement.EQUAL, Agreement.INSIDE, Agreement.NEW)
    }
    assert len(terms) > 2


def test_a_model_is_served_by_llama_server_from_its_name_alone(
    deployed: Field, heavylift: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up MODEL --engine llamacpp`: planned, written, started by the program on PATH, answered."""
    python = engine_env.engine_python(engine_env.require_installed())
    program = tmp_path / "bin" / "llama-server"
    program.parent.mkdir()
    script = Path(__file__).with_name("pretend_llama_server.py")
    program.write_text(f'#!/bin/sh\nexec {python} -I {script} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    deployed.names.append("d")
    code, _, err = heavylift(
        *("up", "smollm2", "--engine", "llamacpp", "--name", "d", "--no-verify"),
        *("--context", "1024", "--concurrency", "2"),
    )
    assert code == 0, err
    status = status_of(heavylift)
    assert (status["engine"], status["ready"]) == ("llamacpp", True)
    spec = recipes.read(recipes.release_dir("d", 1)).spec
    argv = spec.ranks[0].argv
    assert (argv[0], argv[argv.index("--ctx-size") + 1]) == ("llama-server", "1024")
    assert [each for each in status["findings"] if each["code"].startswith("run.memory")] == []


def test_a_file_that_is_no_model_is_explained(deployed: Field, tmp_path: Path) -> None:
    """The engine's own words are in the failure."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(60))
    settings = EmbeddedSettings(model_path=str(broken), model="broken", slot_tokens=256)
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "launch.json").write_bytes(msgspec.json.encode(launch(settings, plan_digest="")))
    run = deployed.follow(deployed.up(recipe))
    assert run.phase is Phase.FAILED
    assert run.failure is not None
    assert "GGUF" in str(run.failure.params["lines"])
