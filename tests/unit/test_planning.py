"""Planning with facts loaded: folders, this machine, the smallest rack."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from heavylift.cli.screens.plan import lines as screen
from heavylift.devserver.sparse_checkpoint import safetensors_variant, write_checkpoint
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.planning import THIS_MACHINE, Planning
from heavylift.records.plan import Kind, Plan, PlanRequest, PlanVerdict


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama-3.1-8B checkpoint without its weights."""
    catalog = Catalog()
    model = catalog.model("llama-3.1-8b")
    path = tmp_path_factory.mktemp("checkpoints") / "some-llama"
    write_checkpoint(model, catalog.family("llama"), safetensors_variant(model), path)
    return path


def plan_of(planning: Planning, model: str, on: str = "1xH100") -> Plan:
    """A plan of a model argument as typed."""
    _, rack = planning.rack(on)
    assert rack is not None
    return planning.plan(
        PlanRequest(model=model, rack=rack), planning.knowledge(model), with_fixes=False
    )


def test_a_folder_is_planned_from_its_headers(planning: Planning, folder: Path) -> None:
    """Weights are exact and from the files; a network the catalogue knows keeps its name."""
    plan = plan_of(planning, str(folder))
    assert plan.model == "llama-3.1-8b"
    assert plan.per_gpu.weights_bytes.low == 8_030_261_248 * 2
    assert plan.terms[0].kind is Kind.EXACT
    assert plan.terms[0].source == str(folder)


def test_a_network_nobody_named_is_planned_by_its_family(
    planning: Planning, tmp_path: Path
) -> None:
    """Other dimensions of a known family: the folder's name, every engine that splits tensors."""
    catalog = Catalog()
    known = catalog.model("llama-3.1-8b")
    dims = {**known.dims, "intermediate_size": replace(known.dims["intermediate_size"], value=8192)}
    path = tmp_path / "my-llama"
    write_checkpoint(
        replace(known, dims=dims), catalog.family("llama"), safetensors_variant(known), path
    )
    plan = plan_of(planning, str(path))
    assert plan.model == "my-llama"
    assert plan.verdict is PlanVerdict.FITS


def test_a_missing_tensor_is_no_smaller_model(planning: Planning, tmp_path: Path) -> None:
    """A config that speaks of more layers than the files hold is refused with the count."""
    catalog = Catalog()
    known = catalog.model("llama-3.1-8b")
    path = tmp_path / "short"
    write_checkpoint(known, catalog.family("llama"), safetensors_variant(known), path)
    config = json.loads((path / "config.json").read_text())
    config["num_hidden_layers"] = 33
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(HeavyliftError) as caught:
        planning.knowledge(str(path))
    assert (caught.value.code, caught.value.params["missing"]) == ("PLAN054", 9)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (None, "PLAN050"),
        ("{", "PLAN056"),
        ("[]", "PLAN056"),
        ("{}", "PLAN057"),
        ('{"model_type": NaN}', "PLAN057"),
        ("NaN", "PLAN056"),
        ('{"model_type": "nobody-knows"}', "PLAN051"),
        ("[" * 100_000, "PLAN056"),
    ],
)
def test_a_folder_without_a_usable_config_is_refused(
    planning: Planning, tmp_path: Path, config: str | None, code: str
) -> None:
    """Nothing, damage, another shape, an unknown type, nesting without end: a code each."""
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(HeavyliftError) as caught:
        planning.knowledge(str(tmp_path))
    assert caught.value.code == code


def test_this_machine_is_its_own_memory(planning: Planning) -> None:
    """Without a card the memory is the host's, measured."""
    gpu, rack = planning.rack(THIS_MACHINE)
    assert rack is not None
    assert rack.label == THIS_MACHINE
    assert gpu.memory_visible.value > 2**28


def test_this_machine_without_an_engine_takes_one_that_runs_on_it(
    make_plan: Callable[..., Plan],
) -> None:
    """SmolLM2 here is planned for the engine that a CPU can run and that was run."""
    plan = make_plan("smollm2-135m-instruct", THIS_MACHINE)
    assert (plan.engine, plan.support.status) == ("embedded", "verified")


def test_the_smallest_rack_is_the_first_that_has_the_room(make_plan: Callable[..., Plan]) -> None:
    """K3 needs 8 MI355X, 16 H200; Llama-3.1-8B one H100."""
    assert make_plan("kimi-k3", "MI355X").rack.gpu_count == 8
    assert make_plan("kimi-k3", "H200").rack.gpu_count == 16
    assert make_plan("llama-3.1-8b", "H100").rack.gpu_count == 1


def test_comparison_has_a_row_per_rack_in_order(planning: Planning) -> None:
    """A count, a card alone and two nodes: each a row with its card's speeds."""
    knowledge = planning.knowledge("kimi-k3")
    found = planning.compare(
        ("16xB200", "MI355X", "8xMI300X"),
        lambda rack: PlanRequest(model="kimi-k3", rack=rack),
        knowledge,
    )
    assert [row.plan.rack.label for row in found.rows] == ["2x8xB200", "8xMI355X", "8xMI300X"]
    assert [row.plan.verdict for row in found.rows] == ["fits", "fits", "does_not_fit"]
    assert found.rows[1].memory_bandwidth_tb_per_s == 8.0
    assert found.rows[2].vendor == "amd"


def test_an_unknown_machine_is_no_key(planning: Planning) -> None:
    """The loaded mappings know their ids and nothing else."""
    machines = planning.knowledge("kimi-k3").machines
    assert len(machines) == len(list(machines)) == len(planning.catalog.ids("gpus")) + 1
    with pytest.raises(KeyError):
        machines["h100-none"]


def test_a_config_that_contradicts_the_headers_is_refused(
    planning: Planning, folder: Path, tmp_path: Path
) -> None:
    """A cache width the weights do not have would be planned wrong without a word."""
    path = tmp_path / "lying"
    path.mkdir()
    for file in folder.iterdir():
        if file.name != "config.json":
            (path / file.name).hardlink_to(file)
    config = json.loads((folder / "config.json").read_text())
    config["num_key_value_heads"] = 4
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(HeavyliftError) as caught:
        planning.knowledge(str(path))
    assert caught.value.code == "PLAN055"
    assert "k_proj" in str(caught.value.params["tensor"])


def test_a_known_name_is_a_name_even_where_a_folder_is_called_so(
    planning: Planning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in the way does not hide a model; a path says that it is one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kimi-k3").mkdir()
    assert planning.knowledge("kimi-k3").model.model.id == "kimi-k3"
    with pytest.raises(HeavyliftError):
        planning.knowledge("./kimi-k3")


def test_an_architecture_nobody_described_has_exact_weights_and_unknown_rest(
    planning: Planning, tmp_path: Path
) -> None:
    """Its bytes on one card are exact; over two nobody said how they are cut; KV is unknown."""
    catalog = Catalog()
    known = catalog.model("llama-3.1-8b")
    path = tmp_path / "novel"
    write_checkpoint(known, catalog.family("llama"), safetensors_variant(known), path)
    (path / "config.json").write_text('{"model_type": "novel", "max_position_embeddings": 4096}')
    one, two = plan_of(planning, str(path)), plan_of(planning, str(path), "2xH100")
    exact = 8_030_261_248 * 2
    assert (one.per_gpu.weights_bytes.low, one.per_gpu.weights_bytes.high) == (exact, exact)
    assert two.per_gpu.weights_bytes.low < exact < (two.per_gpu.weights_bytes.high or 0) + 1
    assert (one.terms[0].kind, two.terms[0].kind) == (Kind.EXACT, Kind.DERIVED)
    assert {term.id: term.kind for term in one.terms}["kv_cache"] is Kind.UNKNOWN
    drawn = "\n".join(map(str, screen(one)))
    assert "nobody described this architecture" in drawn
    assert one.per_gpu.kv_cache_bytes.high is None
    assert one.verdict is PlanVerdict.UNKNOWN
    assert one.capacity.max_sequences.high is None


def test_a_config_without_weights_is_planned_by_its_dimensions(
    planning: Planning, folder: Path, tmp_path: Path
) -> None:
    """The folder or the file itself; the weights are derived, not exact."""
    document = json.loads((folder / "config.json").read_text())
    document["num_hidden_layers"] = 16
    (tmp_path / "config.json").write_text(json.dumps(document))
    for name in (str(tmp_path), str(tmp_path / "config.json")):
        plan = plan_of(planning, name)
        assert plan.terms[0].kind is Kind.DERIVED
        assert plan.model == tmp_path.name


@pytest.mark.parametrize(
    "model",
    ["kimi-k2.5", "glm-5.1", "qwen3.5-35b", "gpt-oss-20b", "gemma-4-26b-a4b", "deepseek-v4-flash"],
)
def test_files_of_a_model_give_the_plan_of_its_facts(
    planning: Planning, tmp_path: Path, model: str
) -> None:
    """A folder with a model's headers is that model, with its bytes on every rank."""
    catalog = Catalog()
    facts = catalog.model(model)
    path = tmp_path / model
    write_checkpoint(facts, catalog.family(facts.family), safetensors_variant(facts), path)
    by_files, by_facts = plan_of(planning, str(path), "8xB200"), plan_of(planning, model, "8xB200")
    assert by_files.model == model
    assert by_files.checkpoint_bytes == by_facts.checkpoint_bytes
    assert by_files.per_gpu.weights_bytes.low == by_facts.per_gpu.weights_bytes.low
    assert by_files.terms[0].kind is Kind.EXACT
