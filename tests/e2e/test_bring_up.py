"""Bring-ups: a scripted engine with vLLM's words rung by rung, and the real llama.cpp."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.e2e.deployments import Field
from tests.e2e.test_rehearse import commands, deployed, heavylift, write_model, write_recipe

from heavylift.cli.text import text
from heavylift.records.bring_up import BringUp, Rung, RungKind, RungStatus
from heavylift.records.deployment import Phase

pytestmark = pytest.mark.e2e

__all__ = ["deployed"]  # a fixture of another module

OBLIGING = '[server]\ncontext_tokens = 2048\n\n[reply]\nmind = "obliging"\n'


def record(out: str) -> BringUp:
    """The record that a command printed."""
    return msgspec.json.decode(out, type=BringUp)


def by_kind(found: BringUp, kind: RungKind) -> list[Rung]:
    """Its rungs of a kind."""
    return [rung for rung in found.rungs if rung.kind is kind]


def test_every_rung_leaves_its_record_and_the_first_that_fails_stops(
    deployed: Field, tmp_path: Path
) -> None:
    """Rehearsed twice, loaded, asked; a rung over the server's limit stops it with the reason.
    Begun again it goes on there, and what passed is not done twice.
    """
    deployed.names.append("d")
    model = write_model(tmp_path / "model")
    recipe = write_recipe(tmp_path / "recipe", model, extra=OBLIGING)
    words = ("--no-doctor", "--concurrency", "1,2", "--answer-tokens", "64")
    code, out, err = heavylift(
        "bring-up", str(recipe), "--name", "d", *words, "--contexts", "1024,4096"
    )
    assert code == 1, err
    assert text("bring_up.reason.over_limit", limit=2048, tokens=4096) in out
    assert len(commands(model)) == 3  # two rehearsals and the load
    code, out, err = heavylift("bring-up", "d", *words, "--contexts", "1024,1536", "--json")
    assert code == 0, err
    found = record(out)
    assert found.is_up
    assert len(commands(model)) == 3
    assert [rung.id for rung in found.rungs] == [
        *("rehearsal.4", "rehearsal.full", "load", "smoke"),
        *("context.1024", "context.1536", "concurrency.1", "concurrency.2"),
    ]
    assert {rung.status for rung in found.rungs} == {RungStatus.PASSED}
    assert by_kind(found, RungKind.REHEARSAL)[0].layers == 4
    for rung in found.rungs[3:]:
        assert rung.tool_calls == "well_formed"
        assert (rung.requests > 0, rung.errors, rung.error_ratio) == (True, 0, 0.0)
        assert rung.peak_memory_bytes is not None
        assert rung.report is not None
        assert Path(rung.report).is_file()
    assert by_kind(found, RungKind.CONCURRENCY)[1].requests == 4


def test_an_engine_that_fails_under_load_stops_there(deployed: Field, tmp_path: Path) -> None:
    """From some request on the server answers 500: the rung of that load failed, by its class."""
    deployed.names.append("d")
    model = write_model(tmp_path / "model")
    extra = f'{OBLIGING}\n[[rule]]\nmatch = {{ prompt_contains = "harbour" }}\n'
    extra += 'fault = { kind = "reject", status = 500 }\n'
    recipe = write_recipe(tmp_path / "recipe", model, extra=extra)
    code, out, err = heavylift(
        *("bring-up", str(recipe), "--name", "d", "--no-doctor", "--no-rehearse", "--json"),
        *("--contexts", "1024", "--concurrency", "2", "--answer-tokens", "64"),
    )
    found = record(out)
    assert (code, found.is_up) == (1, False), err
    stopped = next(rung for rung in found.rungs if rung.id == found.stopped_at)
    assert stopped.kind in (RungKind.LOAD, RungKind.SMOKE)
    after = found.rungs[found.rungs.index(stopped) + 1 :]
    assert {rung.status for rung in after} == {RungStatus.PENDING}


@pytest.fixture
def embedded(deployed_embedded: Field) -> Field:
    """A field of deployments with the embedded engine."""
    return deployed_embedded


def test_the_real_engine_is_brought_up(embedded: Field) -> None:
    """The doctor, then llama.cpp: it invents no weights, which is said; the rungs above pass."""
    embedded.names.append("b")
    code, out, err = heavylift(
        *("bring-up", "smollm2", "--name", "b", "--contexts", "256", "--concurrency", "1"),
        *("--answer-tokens", "16", "--json"),
    )
    assert code == 0, err
    found = record(out)
    skipped = [rung.reason for rung in found.rungs if rung.status is RungStatus.SKIPPED]
    assert skipped == ["no_dummy_weights", "no_dummy_weights"]
    load = by_kind(found, RungKind.LOAD)[0]
    assert (load.receipt_digest is None, load.memory_of) == (False, "host")
    assert by_kind(found, RungKind.CONCURRENCY)[0].output_tokens_per_s


def test_a_small_model_goes_first(deployed: Field, tmp_path: Path) -> None:
    """It is loaded, asked and stopped before anything of the large one starts; where it fails,
    nothing of the large one does, and the reason is the small one's.
    """
    deployed.names += ["d", "d-small"]
    large = write_model(tmp_path / "large")
    small = write_model(tmp_path / "small")
    recipe = write_recipe(tmp_path / "recipe", large, extra=OBLIGING)
    dies = write_recipe(tmp_path / "dies", small)
    broken = {"text_config": {"num_hidden_layers": 1, "layer_types": []}}
    (small / "config.json").write_text(json.dumps(broken))
    words = [
        *("bring-up", str(recipe), "--name", "d", "--no-doctor", "--no-rehearse", "--json"),
        *("--contexts", "1024", "--concurrency", "1", "--answer-tokens", "64"),
    ]
    code, out, err = heavylift(*words, "--small", str(dies))
    found = record(out)
    assert (code, found.stopped_at) == (1, "small_model"), err
    assert found.rungs[0].reason is not None
    assert not (large / "commands.jsonl").exists()
    assert deployed.status("d-small").phase.is_over

    runs = write_recipe(tmp_path / "runs", write_model(tmp_path / "runs-model"), extra=OBLIGING)
    code, out, err = heavylift(*words, "--small", str(runs))
    found = record(out)
    assert (code, found.is_up) == (0, True), err
    assert found.rungs[0].kind is RungKind.SMALL_MODEL
    assert {rung.status for rung in found.rungs} == {RungStatus.PASSED}
    assert deployed.status("d-small").phase is Phase.STOPPED
    assert deployed.status("d").ready
    assert deployed.everything("d-small") == ()
    code, out, err = heavylift(*words, "--small", str(runs))
    assert (code, len(commands(tmp_path / "runs-model"))) == (0, 1), err
