"""Rehearsals of a recipe whose engine takes vLLM's words: nothing of the weights is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.e2e.deployments import QUICK, Field, field_of_deployments, free_port

from heavylift.cli.text import text
from heavylift.records.launch import LaunchSpec, RankSpec
from heavylift.records.plan import Agreement, Kind, Plan
from heavylift.records.ranges import Interval
from heavylift.records.rehearsal import Rehearsal
from heavylift.units import GIB

pytestmark = pytest.mark.e2e

BREAKS_OFF = """
[[rule]]
match = { first = 2 }
fault = { kind = "break_stream", after_tokens = 1 }
"""
ACTIVATIONS = "workspace.activations"
PRETEND = Path(__file__).with_name("pretend_vllm.py")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    """A field of deployments with a home of its own."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with field_of_deployments() as there:
        yield there


def heavylift(*words: str) -> tuple[int, str, str]:
    """Status, output and errors of a command."""
    result = subprocess.run(
        [sys.executable, "-m", "heavylift", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return result.returncode, result.stdout, result.stderr


def write_model(folder: Path) -> Path:
    """A model whose text part is nested and has a list with an entry per layer."""
    folder.mkdir()
    layers = 12
    config = {
        "model_type": "pretend",
        "text_config": {"num_hidden_layers": layers, "layer_types": ["full"] * layers},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "weights").write_bytes(b"weights")
    return folder


def write_recipe(folder: Path, model: Path, engine: str = "vllm", extra: str = "") -> Path:
    """A recipe of the pretended engine."""
    folder.mkdir()
    port = free_port()
    rank = RankSpec(
        rank=0,
        host="127.0.0.1",
        argv=(sys.executable, str(PRETEND), "serve", str(model), "--port", str(port)),
        env={"PRETEND_EXTRA": extra} if extra else {},
        ports={"api": port},
        name="serve-0",
        serves=True,
    )
    spec = LaunchSpec(
        engine=engine,
        engine_version="0.32.0",
        image_digest=None,
        model="pretended",
        model_path=str(model),
        served_name="scripted",
        model_revision=None,
        ranks=(rank,),
        expected_phases=(),
        deadline_s=60,
        plan_digest="",
    )
    (folder / "launch.json").write_bytes(msgspec.json.encode(spec))
    (folder / "supervision.json").write_bytes(msgspec.json.encode(replace(QUICK, look_s=0.5)))
    return folder


def commands(model: Path) -> list[list[str]]:
    """The commands that were started."""
    return [json.loads(line) for line in (model / "commands.jsonl").read_text().splitlines()]


def test_two_rungs_come_up_without_a_byte_of_weights(deployed: Field, tmp_path: Path) -> None:
    """Four layers, then all: the recipe's own words, with invented weights; each has its record,
    and the process is gone afterwards.
    """
    model = write_model(tmp_path / "model")
    recipe = write_recipe(tmp_path / "recipe", model)
    code, out, err = heavylift("rehearse", str(recipe), "--json")
    assert code == 0, err
    first = msgspec.json.decode(out, type=Rehearsal)
    assert (first.passed, first.layers, first.figures["kv_tokens"]) == (True, 4, 30_000)
    assert {"quality", "routing", "load_time", "full_memory"} <= set(first.untold)
    code, out, err = heavylift("rehearse", str(recipe), "--full")
    assert code == 0, err
    assert "10,000" in out
    assert text("rehearsal.untold.quality") in out
    assert text("rehearsal.untold.kv_tokens") not in out
    assert out.splitlines()[-1].endswith(f"heavylift up {recipe}")
    cut, full = commands(model)
    over = json.loads(cut[cut.index("--hf-overrides") + 1])
    assert over == {"text_config": {"num_hidden_layers": 4, "layer_types": ["full"] * 4}}
    assert "--hf-overrides" not in full
    assert not (model / "read-weights").exists()
    assert cut[:4] == full[:4] == ["serve", str(model), "--port", full[3]]
    # The recipe itself reads them.
    run = deployed.follow(deployed.up(recipe, "d"))
    assert (run.phase, (model / "read-weights").exists()) == ("ready", True)


def test_a_rehearsal_that_fails_says_why(deployed: Field, tmp_path: Path) -> None:
    """What the engine ended with is in the record, and the next command looks into its log."""
    del deployed
    model = write_model(tmp_path / "model")
    recipe = write_recipe(tmp_path / "recipe", model)
    config = {"text_config": {"num_hidden_layers": 12, "layer_types": ["full"] * 11}}
    (model / "config.json").write_text(json.dumps(config))
    code, out, _ = heavylift("rehearse", str(recipe), "--full", "--json")
    found = msgspec.json.decode(out, type=Rehearsal)
    assert (code, found.passed, found.ready_s) == (1, False, None)
    assert found.failure is not None
    assert "layer_types" in str(found.failure.params["lines"])


def test_answers_that_break_off_do_not_pass(deployed: Field, tmp_path: Path) -> None:
    """It comes up and gives its first token; the stream after it is not well-formed."""
    del deployed
    model = write_model(tmp_path / "model")
    recipe = write_recipe(tmp_path / "recipe", model, extra=BREAKS_OFF)
    code, out, _ = heavylift("rehearse", str(recipe), "--json")
    found = msgspec.json.decode(out, type=Rehearsal)
    assert (code, found.passed, found.ready_s is None) == (1, False, False)
    assert str(found.reason).startswith("stream:")


def test_an_engine_without_invented_weights_is_told_in_a_sentence(
    deployed: Field, tmp_path: Path
) -> None:
    """No start is tried; the engines that can are named."""
    del deployed
    model = write_model(tmp_path / "model")
    recipe = write_recipe(tmp_path / "recipe", model, engine="llamacpp")
    code, _, err = heavylift("rehearse", str(recipe))
    assert code == 3
    assert "REC052" in err
    assert "vllm" in err
    assert not (model / "commands.jsonl").exists()


def test_each_rung_writes_a_receipt_that_the_plan_takes_in(deployed: Field, tmp_path: Path) -> None:
    """Four layers raise what the plan did not know to what those took; the whole puts measured
    bytes in its place. The file goes by `--receipt`, and the one that is kept goes by itself.
    """
    del deployed
    asked = ("plan", "llama-3.1-8b", "--on", "1xH100", "--engine", "vllm", "--json")
    code, out, err = heavylift(*asked)
    assert code == 0, err
    before = msgspec.json.decode(out, type=Plan)
    model = tmp_path / "model"
    model.mkdir()
    layers = 32
    config = {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "gib_per_layer": before.per_gpu.weights_bytes.low / layers / GIB,
    }
    (model / "config.json").write_text(json.dumps(config))
    recipe = write_recipe(tmp_path / "recipe", model)
    (recipe / "plan.json").write_bytes(msgspec.json.encode(before))

    code, out, err = heavylift("rehearse", str(recipe), "--json")
    assert code == 0, err
    cut = msgspec.json.decode(out, type=Rehearsal)
    assert cut.receipt_file is not None
    code, out, err = heavylift(*asked, "--receipt", cut.receipt_file)
    floors = msgspec.json.decode(out, type=Plan)
    assert [note.params for note in floors.notes if note.code == "receipt_of_layers"] == [
        {"layers": 4}
    ]
    terms = {term.id: term for term in floors.terms}
    assert terms[ACTIVATIONS].bytes.low == round(1.25 * GIB)
    assert terms[ACTIVATIONS].bytes.high is None
    assert terms["weights"] == {term.id: term for term in before.terms}["weights"]
    assert floors.per_gpu.known_total_bytes > before.per_gpu.known_total_bytes

    code, out, err = heavylift("rehearse", str(recipe), "--full", "--json")
    assert code == 0, err
    full = msgspec.json.decode(out, type=Rehearsal)
    assert full.receipt_file is not None
    for words in (("--receipt", full.receipt_file), ()):
        code, out, err = heavylift(*asked, *words)
        measured = msgspec.json.decode(out, type=Plan)
        assert measured.receipt == full.receipt.taken_at if full.receipt else False
        terms = {term.id: term for term in measured.terms}
        assert terms[ACTIVATIONS].kind is Kind.MEASURED
        assert terms[ACTIVATIONS].bytes == Interval.exactly(round(1.25 * GIB))
        assert terms["outside_pool.unexplained"].kind is Kind.MEASURED
        assert measured.per_gpu.high_total_bytes is not None
        rows = {row.term: row for row in measured.measured}
        assert rows["weights"].agreement is Agreement.EQUAL
