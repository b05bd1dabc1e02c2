"""Which recipe is written, which is refused, and what is said beside it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from heavylift.errors import HeavyliftError
from heavylift.recipe.differ import difference
from heavylift.recipe.job import Start
from heavylift.reciping import EmbeddedPlace, RecipeWish, Reciping
from heavylift.records.launch import LaunchSpec, RankSpec, resolve
from heavylift.records.plan import PlanRequest, Rack, Status
from heavylift.records.recipe import Recipe

Make = Callable[..., Recipe]


def _notes(recipe: Recipe, code: str) -> list[dict[str, object]]:
    assert recipe.launch is not None
    return [dict(note.params) for note in recipe.launch.notes if note.code == code]


def _value(recipe: Recipe, flag: str, rank: int = 0) -> str:
    assert recipe.launch is not None
    words = recipe.launch.ranks[rank].argv
    return words[words.index(flag) + 1]


# --- status --------------------------------------------------------------------------------------


def test_a_form_nobody_ran_is_not_called_verified(make_recipe: Make) -> None:
    """B300 at tp8 was signed off with the native weights; their NVFP4 form was only published."""
    native = make_recipe("kimi-k3", "8xB300", "vllm")
    nvfp4 = make_recipe("kimi-k3", "8xB300", "vllm", variant="nvfp4")
    assert native.status is Status.VERIFIED
    assert nvfp4.status is Status.UNVERIFIED
    assert nvfp4.launch is not None
    assert "RedHatAI/Kimi-K3-NVFP4" in nvfp4.launch.ranks[0].argv
    assert native.plan is not None
    assert nvfp4.plan is not None
    more = nvfp4.plan.per_gpu.weights_bytes.low - native.plan.per_gpu.weights_bytes.low
    # A second byte of scale for each 32 weights of 92 × 896 experts, an eighth of them here.
    assert more == 92 * 896 * 3 * 3072 * 3584 // 32 // 8


# --- refused -------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_with_the_nearest_that_does(make_recipe: Make) -> None:
    """8 H200 hold 140.4 GiB each and K3 needs 191; two machines hold it, as it was signed off."""
    recipe = make_recipe("kimi-k3", "8xH200", "vllm")
    assert recipe.launch is None
    assert recipe.refused is not None
    assert recipe.refused.code == "does_not_fit"
    assert recipe.status is Status.UNSUPPORTED
    near = recipe.refused.nearest[0]
    assert (near.rack, near.layout, near.status) == ("2x8xH200", "tp8·dp2", Status.VERIFIED)
    assert near.command.startswith("heavylift recipe kimi-k3 --on 2x8xH200")


def test_a_refusal_far_from_any_rack_that_works_still_names_one(make_recipe: Make) -> None:
    """ATOM runs on AMD only and one small card holds nothing of this: no small change helps."""
    recipe = make_recipe("qwen3.5-397b", "1xRTX 4090", "atom-vllm")
    assert recipe.refused is not None
    assert [near.engine for near in recipe.refused.nearest] == ["atom-vllm"]
    assert "--engine atom-vllm" in recipe.refused.nearest[0].command


@pytest.mark.parametrize("engine", ["atom", "ollama"])
def test_an_engine_that_does_not_serve_there_names_one_that_does(
    make_recipe: Make, engine: str
) -> None:
    """The nearest of all is the same rack: the best record on it, not other cards to buy."""
    recipe = make_recipe("kimi-k3", "8xB300", engine, tensor=8)
    assert recipe.refused is not None
    near = recipe.refused.nearest[0]
    assert (near.rack, near.engine, near.status) == ("8xB300", "vllm", Status.VERIFIED)
    assert near.command == "heavylift recipe kimi-k3 --on 8xB300 --engine vllm"


def test_eight_gb200_are_two_trays_and_too_small(make_recipe: Make) -> None:
    """The vLLM page offers the layout of GB300 for them; 191 GiB do not go into 185."""
    recipe = make_recipe("kimi-k3", "8xGB200", "vllm")
    assert recipe.refused is not None
    assert recipe.refused.code == "does_not_fit"
    assert recipe.plan.rack.nodes == 2


def test_what_was_reported_broken_is_refused_and_both_words_are_shown(make_recipe: Make) -> None:
    """TP8·PP2 on H200 failed with the launch image; a later log says that it ran."""
    recipe = make_recipe("kimi-k3", "2x8xH200", "vllm", tensor=8, pipeline=2)
    assert recipe.refused is not None
    assert recipe.refused.code == "reported_broken"
    assert recipe.status is Status.BROKEN
    assert recipe.refused.source == "vllm-recipes-698"
    assert recipe.refused.params["other"] == "vllm-h200-tp8pp2-humming-logged"
    assert "--tp 8 --dp 2" in recipe.refused.nearest[0].command


def test_a_broken_layout_is_written_for_who_insists(make_recipe: Make) -> None:
    """`--despite-report`: the launch is there, with two stages."""
    recipe = make_recipe("kimi-k3", "2x8xH200", "vllm", tensor=8, pipeline=2, despite=True)
    assert recipe.launch is not None
    assert _value(recipe, "--pipeline-parallel-size") == "2"


def test_no_broken_layout_is_chosen_unasked(make_recipe: Make) -> None:
    """The plan's best is the broken one; the recipe takes the one that was signed off."""
    recipe = make_recipe("kimi-k3", "2x8xH200", "vllm")
    assert recipe.layout == "tp8·dp2"
    assert recipe.status is Status.VERIFIED
    (conflict,) = _notes(recipe, "plan_disagrees")
    assert conflict["recipe"] == "vllm-h200-tp8dp2"


def test_a_version_nobody_read_is_not_written(make_recipe: Make) -> None:
    """No flag of it is known, so none can be emitted."""
    with pytest.raises(HeavyliftError) as caught:
        make_recipe("kimi-k3", "8xB300", "vllm", engine_version="0.35.0")
    assert caught.value.code == "REC016"


@pytest.mark.parametrize(
    ("rack", "engine", "given", "code"),
    [
        ("2x8xH200", "vllm", {"kv_cache_dtype": "fp8"}, "REC012"),
        ("2x8xB200", "vllm", {"start": {"draft": "redhat-dspark"}}, "REC012"),
        ("8xB300", "sglang", {"start": {"draft": "redhat-dspark"}}, "REC029"),
        ("4x8xH100", "vllm", {"tensor": 16, "data": 2}, "REC013"),
        ("3x8xB300", "vllm", {"split": (1, 1)}, "REC021"),
        ("2x8xMI355X", "atom", {"split": (1, 1)}, "REC023"),
        ("8xB300", "nemo", {}, "REC020"),
        ("8xB300", "embedded", {}, "REC024"),
        ("8xGB300", "vllm", {"start": {"hosts": ("10.0.0.1",)}}, "REC019"),
    ],
)
def test_what_cannot_be_emitted_says_so(
    make_recipe: Make, rack: str, engine: str, given: dict[str, object], code: str
) -> None:
    """8 bit KV on Hopper, a draft over stages, a split that does not add up, and others."""
    with pytest.raises(HeavyliftError) as caught:
        make_recipe("kimi-k3", rack, engine, **given)
    assert caught.value.code == code


def test_a_form_without_a_repository_must_be_named(make_recipe: Make) -> None:
    """An engine is never told of weights that nobody published under a name."""
    with pytest.raises(HeavyliftError) as caught:
        make_recipe("qwen3.5-27b", "1xB200", "vllm", variant="nvfp4")
    assert caught.value.code == "REC015"
    path = {"model_path": "/weights/own"}
    recipe = make_recipe("qwen3.5-27b", "1xB200", "vllm", variant="nvfp4", start=path)
    assert recipe.launch is not None
    assert "/weights/own" in recipe.launch.ranks[0].argv


def test_release_images_are_pinned_where_their_digest_is_known(make_recipe: Make) -> None:
    """A digest is of one release: the release after it is named by its tag, and that is said."""
    pinned = make_recipe("kimi-k3", "8xB300", "vllm", engine_version="0.31.0")
    assert pinned.launch is not None
    assert (pinned.launch.image_digest or "").startswith("sha256:c1c9f6fd")
    newest = make_recipe("kimi-k3", "8xB300", "vllm", engine_version="0.32.0")
    assert newest.launch is not None
    assert newest.launch.image_digest is None


def test_ollama_does_not_serve_k3_and_says_why(make_recipe: Make) -> None:
    """Only a hosted tag is published; what works instead is named."""
    recipe = make_recipe("kimi-k3", "8xB300", "ollama")
    assert recipe.launch is None
    assert recipe.refused is not None
    assert (recipe.refused.code, recipe.refused.source) == ("unsupported", "ollama-17235")
    assert recipe.refused.nearest


# --- written -------------------------------------------------------------------------------------


def test_an_engine_is_recommended_with_what_else_was_weighed(make_recipe: Make) -> None:
    """VLLM is verified on B300, SGLang reported; the others come after, each with its reason."""
    recipe = make_recipe("kimi-k3", "8xB300")
    assert recipe.engine == "vllm"
    chosen = [each for each in recipe.choices if each.chosen]
    assert [each.engine for each in chosen] == ["vllm"]
    others = {each.engine for each in recipe.choices} - {"vllm"}
    assert others >= {"sglang", "atom", "tokenspeed"}
    assert all(each.support or each.code for each in recipe.choices)


def test_a_published_value_that_differs_is_named(make_recipe: Make) -> None:
    """The page runs B300 with 1,048,576 tokens; a recipe for 16,384 says so."""
    recipe = make_recipe("kimi-k3", "8xB300", "vllm")
    (conflict,) = _notes(recipe, "conflict")
    assert (conflict["name"], conflict["theirs"]) == ("--max-model-len", "1048576")
    agreed = make_recipe("kimi-k3", "8xB300", "vllm", context_tokens=1_048_576)
    assert not _notes(agreed, "conflict")


@pytest.mark.parametrize(
    ("version", "there", "gone"),
    [
        ("0.27.1", "AITER_SITUV2_A8W4", "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4"),
        ("0.29.0", "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4", "VLLM_ROCM_USE_AITER_MOE_SITUV2"),
        ("0.32.0", "VLLM_ROCM_USE_AITER_MOE_SITUV2", "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4"),
    ],
)
def test_variables_follow_the_version(
    make_recipe: Make, version: str, there: str, gone: str
) -> None:
    """The A8W4 switch had three names, and two of them together from 0.28 to 0.30."""
    env = make_recipe("kimi-k3", "8xMI355X", "vllm", engine_version=version).env
    assert there in env
    assert gone not in env
    assert env["VLLM_USE_BREAKABLE_CUDAGRAPH"] == "0"


def test_a_flag_that_was_renamed_is_written_under_its_new_name(make_recipe: Make) -> None:
    """--cuda-graph-max-bs of the published recipe went in SGLang 0.5.20."""
    recipe = make_recipe("kimi-k3", "8xMI355X", "sglang")
    assert _value(recipe, "--cuda-graph-max-bs-decode") == "256"
    (dropped,) = _notes(recipe, "dropped_flag")
    assert (dropped["presence"], dropped["instead"]) == ("gone", "--cuda-graph-max-bs-decode")


def test_the_deadline_follows_bytes_and_bandwidth(make_recipe: Make) -> None:
    """1.56 TB at 0.43 GB/s and 1,200 s are 81 minutes; at 5 GB/s 26 minutes."""
    slow = make_recipe("kimi-k3", "8xB300", "vllm")
    fast = make_recipe("kimi-k3", "8xB300", "vllm", start={"read_gb_per_s": 5.0})
    assert slow.env["VLLM_ENGINE_READY_TIMEOUT_S"] == "4860"
    assert fast.env["VLLM_ENGINE_READY_TIMEOUT_S"] == "1560"


def test_no_more_sequences_than_are_held(make_recipe: Make) -> None:
    """VLLM's default of 1,024 is more than B300 holds; the emitted number is what the plan says."""
    recipe = make_recipe("kimi-k3", "8xB300", "vllm")
    assert int(_value(recipe, "--max-num-seqs")) == recipe.plan.max_num_seqs
    assert recipe.plan.max_num_seqs is not None
    assert recipe.plan.max_num_seqs <= (recipe.plan.capacity.max_sequences.high or 0)


def test_foreign_code_is_pinned_where_a_revision_is_stated(make_recipe: Make) -> None:
    """Weights and code by the same commit; without one the recipe says that nothing is pinned."""
    pinned = make_recipe("kimi-k3", "8xB300", "vllm", start={"revision": "0123abc"})
    assert _value(pinned, "--revision") == _value(pinned, "--code-revision") == "0123abc"
    assert not _notes(pinned, "pin_revision")
    assert _notes(make_recipe("kimi-k3", "8xB300", "vllm"), "pin_revision")


def test_a_key_is_a_secret_by_name(make_recipe: Make) -> None:
    """VLLM reads it from a variable; SGLang only from its command line, so it is not given one."""
    vllm = make_recipe("kimi-k3", "8xB300", "vllm", start={"key": True})
    assert vllm.launch is not None
    assert vllm.launch.ranks[0].secrets == {"VLLM_API_KEY": "api-key"}
    sglang = make_recipe("kimi-k3", "8xB300", "sglang", start={"key": True})
    assert sglang.launch is not None
    assert not sglang.launch.ranks[0].secrets
    assert _notes(sglang, "key_needs_gateway")


def test_an_open_door_without_a_key_is_said(make_recipe: Make) -> None:
    """0.0.0.0 without a key is written, with a warning."""
    start = {"bind_host": "0.0.0.0"}  # noqa: S104 - what is tested
    assert _notes(make_recipe("kimi-k3", "8xB300", "vllm", start=start), "open_without_key")
    start |= {"key": True}  # type: ignore[dict-item]
    assert not _notes(make_recipe("kimi-k3", "8xB300", "vllm", start=start), "open_without_key")


# --- several machines ----------------------------------------------------------------------------


def test_tensor_ranks_over_machines_meet_by_nnodes(make_recipe: Make) -> None:
    """Two trays of GB300: the second is headless and knows the first."""
    recipe = make_recipe("kimi-k3", "8xGB300", "vllm")
    assert [_value(recipe, "--node-rank", rank) for rank in (0, 1)] == ["0", "1"]
    assert _value(recipe, "--master-addr", 1) == "{host:serve-0}"
    assert "--headless" in recipe.argv[1]
    assert "--headless" not in recipe.argv[0]


def test_data_parallel_replicas_meet_by_their_own_address(make_recipe: Make) -> None:
    """Four trays of GB200, a replica each: no --nnodes, which vLLM refuses beside it."""
    recipe = make_recipe("kimi-k3", "16xGB200", "vllm")
    starts = [_value(recipe, "--data-parallel-start-rank", rank) for rank in range(4)]
    assert starts == ["0", "1", "2", "3"]
    assert not any("--nnodes" in words for words in recipe.argv)


def test_prefill_and_decode_are_planned_apart(make_recipe: Make) -> None:
    """TEP8 for prefill, DEP16 for decode, NIXL between, a router in front."""
    recipe = make_recipe("kimi-k3", "3x8xB300", "vllm", split=(1, 2))
    assert set(recipe.plans) == {"prefill", "decode"}
    assert recipe.plans["prefill"].layout.label == "tp8·ep8"
    assert recipe.plans["decode"].layout.label == "tp1·dp16·ep16"
    assert recipe.launch is not None
    assert recipe.launch.topology == "prefill_decode"
    assert '"kv_role":"kv_producer"' in _value(recipe, "--kv-transfer-config", 0)
    assert '"kv_role":"kv_consumer"' in _value(recipe, "--kv-transfer-config", 1)
    router = recipe.launch.ranks[-1]
    assert (router.role, router.gpus) == ("router", 0)
    assert router.argv.count("--decode") == 2  # each machine of the decode pool answers
    assert _notes(recipe, "split_must_be_checked")


def test_replicas_have_names_and_addresses_of_their_own(make_recipe: Make) -> None:
    """Two replicas of two trays: the second pair meets at its own head."""
    recipe = make_recipe("kimi-k3", "8xGB300", "vllm", replicas=2)
    assert recipe.launch is not None
    assert [rank.name for rank in recipe.launch.ranks] == [
        "serve-0",
        "serve-1",
        "serve-2",
        "serve-3",
        "router-0",
    ]
    assert _value(recipe, "--master-addr", 3) == "{host:serve-2}"
    assert [each.head for each in recipe.launch.rendezvous] == ["serve-0", "serve-2"]


def test_addresses_are_filled_in_where_they_are_known(make_recipe: Make) -> None:
    """With hosts stated no token is left, and each rank stands on its own."""
    start = {"hosts": ("10.0.0.1", "10.0.0.2")}
    recipe = make_recipe("kimi-k3", "8xGB300", "vllm", start=start)
    assert recipe.launch is not None
    assert [rank.host for rank in recipe.launch.ranks] == ["10.0.0.1", "10.0.0.2"]
    assert "{host" not in repr(recipe.argv)
    assert recipe.launch.ranks[1].env["VLLM_HOST_IP"] == "10.0.0.2"


def test_tokens_are_resolved_by_name() -> None:
    """`self` is the rank's own address; files lie in the folder; a missing address is an error."""
    rank = RankSpec(
        rank=0,
        name="serve-1",
        host="",
        argv=("{host:serve-0}:1", "{file:a.yaml}"),
        env={"OWN": "{host:self}"},
    )
    placed = resolve(rank, {"serve-0": "a", "serve-1": "b"}, "/x")
    assert placed.argv == ("a:1", "/x/a.yaml")
    assert placed.env == {"OWN": "b"}
    with pytest.raises(KeyError):
        resolve(rank, {"serve-1": "b"})


# --- other engines -------------------------------------------------------------------------------


def test_ollama_is_a_modelfile_and_variables(make_recipe: Make) -> None:
    """The override of the card's architecture is named and not set."""
    recipe = make_recipe(
        "smollm2-135m-instruct", "1xMI355X", "ollama", start={"model_path": "/models/a.gguf"}
    )
    assert recipe.launch is not None
    assert recipe.launch.files["Modelfile"] == "FROM /models/a.gguf\nPARAMETER num_ctx 8192\n"
    assert recipe.launch.prepare[0][:2] == ("ollama", "create")
    assert "HSA_OVERRIDE_GFX_VERSION" not in recipe.launch.ranks[0].env
    assert _notes(recipe, "gfx_override")


def test_llamacpp_shares_one_pot_of_context(make_recipe: Make) -> None:
    """--ctx-size is the context of every slot together; layers lie evenly on the cards."""
    recipe = make_recipe(
        "kimi-k3", "8xH100", "llamacpp", variant="ud-iq1-s", concurrency=2, context_tokens=8192
    )
    assert _value(recipe, "--ctx-size") == "8192"
    assert _value(recipe, "--tensor-split") == "1,1,1,1,1,1,1,1"
    assert _value(recipe, "--hf-repo") == "unsloth/Kimi-K3-GGUF:UD-IQ1_S"


def test_tensorrt_has_its_settings_in_a_file(make_recipe: Make) -> None:
    """As its guide for the layout has them, with the sequences and blocks of the plan; MPI starts a
    task per card.
    """
    recipe = make_recipe("kimi-k3", "16xGB300", "tensorrt-llm", tensor=1, data=16, expert=16)
    assert recipe.launch is not None
    assert json.loads(recipe.launch.files["trtllm.yaml"]) == {
        "enable_attention_dp": True,
        "disable_overlap_scheduler": False,
        "enable_chunked_prefill": True,
        "cuda_graph_config": {"enable_padding": True, "max_batch_size": 32},
        "moe_config": {"max_num_tokens": 33024, "use_low_precision_moe_combine": True},
        "kv_cache_config": {"enable_block_reuse": False, "tokens_per_block": 64},
    }
    assert _value(recipe, "--config") == "{file:trtllm.yaml}"
    assert _value(recipe, "--tensor_parallel_size") == "16"
    assert recipe.launch.rendezvous[0].kind == "mpi"
    assert {rank.tasks for rank in recipe.launch.ranks} == {4}
    assert _notes(recipe, "source_build")
    explained = {setting.name: setting.origin for setting in recipe.launch.settings}
    assert explained["moe_config.max_num_tokens"] == "published"
    assert explained["kv_cache_config.tokens_per_block"] == "computed"


@pytest.mark.parametrize(
    ("rack", "layout", "identifier", "sequences"),
    [
        ("16xGB300", {"tensor": 1, "data": 16, "expert": 16}, "trtllm-gb300-dep16", 32),
        ("16xGB300", {"tensor": 16, "expert": 16}, "trtllm-gb300-tep16", 32),
        ("8xGB300", {"tensor": 8, "expert": 8}, "trtllm-gb300-tep8", 16),
        ("16xGB200", {"tensor": 16, "expert": 16}, "trtllm-gb200-tep16", 128),
    ],
)
def test_each_published_layout_of_tensorrt_is_derived_again(
    make_recipe: Make, rack: str, layout: dict[str, int], identifier: str, sequences: int
) -> None:
    """For the version that has the model, verified, with keys and share as its source states."""
    recipe = make_recipe("kimi-k3", rack, "tensorrt-llm", **layout)
    assert recipe.launch is not None
    assert recipe.launch.engine_version == "1.3.0rc27"
    assert recipe.launch.support is not None
    assert (recipe.launch.support.status, recipe.launch.support.recipe) == ("verified", identifier)
    assert _value(recipe, "--free_gpu_memory_fraction") == "0.25"
    assert _value(recipe, "--max_batch_size") == str(sequences)
    assert _value(recipe, "--reasoning_parser") == _value(recipe, "--tool_parser") == "kimi_k3"
    keys = json.loads(recipe.launch.files["trtllm.yaml"])
    assert keys["enable_chunked_prefill"] is True
    assert keys["kv_cache_config"]["tokens_per_block"] == 64
    assert keys["cuda_graph_config"]["max_batch_size"] == sequences
    assert ("enable_attention_dp" in keys) == ("data" in layout)


def test_the_release_of_tensorrt_has_the_kv_dtype_in_its_file(make_recipe: Make) -> None:
    """1.2.1 has no flag for it; the image is the project's of that version."""
    recipe = make_recipe("qwen3-32b", "2xH200", "tensorrt-llm", kv_cache_dtype="fp8")
    assert recipe.launch is not None
    assert recipe.launch.engine_version == "1.2.1"
    assert recipe.launch.image == "nvcr.io/nvidia/tensorrt-llm/release:1.2.1"
    assert "--kv_cache_dtype" not in recipe.launch.ranks[0].argv
    keys = json.loads(recipe.launch.files["trtllm.yaml"])
    assert keys == {"kv_cache_config": {"dtype": "fp8", "tokens_per_block": 32}}
    assert recipe.launch.ranks[0].tasks == 1


@pytest.mark.parametrize("version", ["0.20.0", "1.1.0", "1.3.0rc26"])
def test_no_recipe_for_a_tensorrt_that_was_not_read_whole(make_recipe: Make, version: str) -> None:
    """Its flags, or the keys of its file, are unknown; the versions that were read are named."""
    with pytest.raises(HeavyliftError) as caught:
        make_recipe("qwen3-32b", "2xH200", "tensorrt-llm", engine_version=version)
    assert caught.value.code == "REC016"
    assert caught.value.params["read"] == "1.2.1, 1.3.0rc27"


def test_kimi_k3_on_tensorrt_keeps_its_kv_in_16_bit(make_recipe: Make) -> None:
    """8 bit KV is on the project's list of what is not there yet."""
    with pytest.raises(HeavyliftError) as caught:
        make_recipe("kimi-k3", "16xGB300", "tensorrt-llm", kv_cache_dtype="fp8")
    assert caught.value.code == "REC012"


def test_the_embedded_engine_runs_where_it_is_installed(reciping: Reciping) -> None:
    """Paths of this machine are handed in; the launch is the embedded engine's own."""

    def ask(rack: Rack) -> PlanRequest:
        return PlanRequest(model="smollm2-135m-instruct", rack=rack, context_tokens=2048)

    place = EmbeddedPlace(python="/e/python", child="/e/child.py", model_path="/e/model.gguf")
    recipe = reciping.recipe(
        RecipeWish(
            model="smollm2-135m-instruct",
            rack="this-machine",
            ask=ask,
            engine="embedded",
            start=Start(port=8123),
            embedded=place,
        )
    )
    assert recipe.argv[0][:3] == ("/e/python", "-I", "/e/child.py")
    assert recipe.launch is not None
    assert recipe.launch.health is not None
    assert recipe.launch.deadline_s == recipe.launch.health.start_period_s


# --- differences ---------------------------------------------------------------------------------


def _launch(recipe: Recipe) -> LaunchSpec:
    assert recipe.launch is not None
    return recipe.launch


def test_two_versions_differ_in_names_that_came_and_went(make_recipe: Make) -> None:
    """Between 0.29.0 and 0.32.0 the A8W4 switch and the image change, and nothing else of note."""
    old, new = (
        _launch(make_recipe("kimi-k3", "8xMI355X", "vllm", engine_version=version))
        for version in ("0.29.0", "0.32.0")
    )
    found = {
        each.name: (each.old, each.new) for each in difference(old, new, ("a", "b")).differences
    }
    assert found["VLLM_ROCM_USE_AITER_MOE_SITUV2"] == (None, "a8w4")
    assert found["AITER_SITUV2_A8W4"] == ("1", None)
    assert not difference(old, old, ("a", "a")).differences


def test_racks_differ_in_ranks(make_recipe: Make) -> None:
    """One machine against two: a rank more, and the rendezvous flags."""
    old = _launch(make_recipe("kimi-k3", "8xB300", "vllm"))
    new = _launch(make_recipe("kimi-k3", "8xGB300", "vllm"))
    found = {each.name for each in difference(old, new, ("a", "b")).differences}
    assert found >= {"serve-1", "--nnodes", "nodes"}
