"""What users of other planners reported wrong, each as a test of the right answer here.

The ids are those of the list of reports that the tests were written from; each docstring says what
was reported, with its source.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heavylift.checkpoint.inventory import from_facts
from heavylift.cli.screens import plan as screen
from heavylift.devserver.sparse_checkpoint import SparseTensor, write_file
from heavylift.facts.catalog import Catalog
from heavylift.inspecting import inspect
from heavylift.records.plan import Capacity, Plan, PlanVerdict, Term
from heavylift.units import GB, format_gib

Make = Callable[..., Plan]
CATALOG = Catalog()


def term(plan: Plan, identifier: str) -> Term:
    """The term of that id."""
    return next(each for each in plan.terms if each.id == identifier)


def names(plan: Plan) -> list[str]:
    """Ids of all terms."""
    return [each.id for each in plan.terms]


def test_p01_memory_is_of_all_parameters_not_of_the_active_ones(make_plan: Make) -> None:
    """A mixture of experts was rated by its active part (llmfit#230). K2.5 has 1,026 B in all and
    32 B active: one card of 288 GB does not hold it.
    """
    plan = make_plan("kimi-k2.5", "1xB300")
    assert plan.capacity_verdict is Capacity.DOES_NOT_FIT
    assert plan.active_parameters is not None
    assert plan.active_parameters * 2 < 288 * GB
    assert plan.per_gpu.weights_bytes.low > 500 * GB


def test_p03_memory_of_several_cards_is_no_pool(make_plan: Make) -> None:
    """Cards were added up (llmfit#45): a copy per card needs the whole model on each."""
    copies = make_plan("llama-3.1-70b", "2xH100", tensor=1, pipeline=1, data=2, engine="vllm")
    split = make_plan("llama-3.1-70b", "2xH100", tensor=2, pipeline=1, data=1, engine="vllm")
    assert copies.capacity_verdict is Capacity.DOES_NOT_FIT
    assert copies.per_gpu.weights_bytes.low == copies.checkpoint_bytes
    assert split.per_gpu.weights_bytes.low < copies.per_gpu.weights_bytes.low


def test_p11_an_engine_that_does_not_take_the_card_is_refused_with_a_reason(
    make_plan: Make,
) -> None:
    """Engines are an input (llmfit#191); ATOM is AMD's and takes no B300."""
    plan = make_plan("kimi-k3", "8xB300", engine="atom")
    assert (plan.verdict, plan.support.status) == (PlanVerdict.UNSUPPORTED, "unsupported")


def test_p15_a_folder_of_gguf_only_is_read(tmp_path: Path) -> None:
    """A repository without safetensors failed (hf-mem#55): its headers say all there is."""
    from heavylift.checkpoint.gguf_writer import (  # noqa: PLC0415 - only here
        TensorSpec,
        build,
        write_gguf,
    )

    layout = build({}, [TensorSpec(name="output.weight", dims=(256, 8), dtype="Q4_K")])
    write_gguf(tmp_path / "some-Q4_K_M.gguf", layout, None)
    found = inspect(str(tmp_path), CATALOG, None)
    assert (found.file_format, found.total_params, found.tensor_bytes) == ("gguf", 2048, 1152)


def test_p17_a_latent_cache_is_as_small_as_its_latent(make_plan: Make) -> None:
    """DeepSeek-V3 was given a cache of 321 GiB for 65,536 tokens (gguf-parser-go#8). A layer of
    such a model keeps 512 + 64 numbers a token, whole on every rank.
    """
    plan = make_plan("kimi-k2.5", "8xB300", engine="vllm", kv_cache_dtype="bf16")
    assert plan.kv_bytes_per_token == 61 * (512 + 64) * 2


def test_p19_p53_only_layers_with_a_cache_are_charged_and_the_state_has_a_line(
    make_plan: Make,
) -> None:
    """Hybrids were charged on all layers (lilbee#721, LM Studio#1862). K3 has 24 of 93."""
    plan = make_plan("kimi-k3", "8xB300", engine="vllm", kv_cache_dtype="bf16")
    assert plan.kv_bytes_per_token == 24 * 576 * 2
    assert any(name.startswith("recurrent_state") for name in names(plan))


def test_p23_a_share_of_memory_below_the_weights_is_refused(make_plan: Make) -> None:
    """--gpu-memory-utilization 0.1 passed a check and died at start (gpustack#2118)."""
    plan = make_plan("llama-3.1-8b", "1xH100", engine="vllm", gpu_memory_utilization=0.1)
    assert plan.capacity_verdict is Capacity.DOES_NOT_FIT
    binding = next(limit for limit in plan.limits if limit.binds)
    assert binding.id == "gpu_memory_utilization"


def test_p25_a_shortfall_states_need_have_and_difference(make_plan: Make) -> None:
    """Warnings did not say how much was missing, nor of which card (gpustack#1613)."""
    plan = make_plan("kimi-k3", "8xH200", engine="vllm")
    binding = next(limit for limit in plan.limits if limit.binds)
    assert binding.short_bytes == binding.need_bytes - binding.have_bytes > 0
    assert plan.rack.gpu_count == 8


def test_p27_p35_what_does_not_fit_is_called_so_with_what_would(make_plan: Make) -> None:
    """A model too large for the cards stayed pending, or was to relax its latency
    (gpustack#3498, aiconfigurator#437).
    """
    plan = make_plan("kimi-k3", "8xH200", engine="vllm", fixes=True)
    assert plan.verdict is PlanVerdict.DOES_NOT_FIT
    assert any("--on" in fix.command for fix in plan.fixes)
    assert make_plan("kimi-k3", "H200", engine="vllm").rack.gpu_count == 16


def test_p37_tokens_bytes_and_bytes_a_token_agree(make_plan: Make) -> None:
    """A pool of 75 GiB and 972,134 tokens did not go together (configiq#112)."""
    plan = make_plan("llama-3.1-8b", "1xH100", engine="vllm")
    high = plan.capacity.kv_tokens.high
    assert high is not None
    budget = next(limit for limit in plan.limits if limit.id == "gpu_memory_utilization")
    fixed = plan.per_gpu.weights_bytes.low + plan.per_gpu.workspace_bytes.low
    room = budget.have_bytes - fixed
    per_token = plan.kv_bytes_per_token
    # Whole blocks only, and one that is never given out.
    assert 0 <= room - high * per_token < 4 * 16 * per_token


def test_p39_p51_p59_workspace_goes_with_batched_tokens_and_cache_with_context(
    make_plan: Make,
) -> None:
    """Activations were left out, or could not be told from the cache (llm-d-benchmark#621,
    vllm#28228, ollama#17201).
    """

    def plan(batched: int, context: int) -> Plan:
        return make_plan(
            "kimi-k3",
            "8xMI355X",
            engine="atom",
            max_num_batched_tokens=batched,
            context_tokens=context,
        )

    small, wide, long = plan(8192, 32768), plan(16384, 32768), plan(8192, 65536)
    assert wide.per_gpu.workspace_bytes.low > small.per_gpu.workspace_bytes.low
    assert wide.per_gpu.kv_cache_bytes == small.per_gpu.kv_cache_bytes
    assert long.per_gpu.kv_cache_bytes.low > small.per_gpu.kv_cache_bytes.low
    assert long.per_gpu.workspace_bytes.low == small.per_gpu.workspace_bytes.low


def test_p41_p49_every_setting_taken_says_where_from_and_the_engine_has_its_version(
    make_plan: Make,
) -> None:
    """Settings came without a reason, results without the version they held for
    (llm-d-planner#13, vidur#60).
    """
    plan = make_plan("kimi-k3", "8xB300")
    assert plan.engine_version
    assert plan.defaults
    assert all(each.origin and each.source for each in plan.defaults)


def test_p43_eight_gb200_do_not_hold_k3(make_plan: Make) -> None:
    """A recipe offered two trays of four although they are too small (vllm recipes#934)."""
    assert make_plan("kimi-k3", "8xGB200", engine="vllm").verdict is PlanVerdict.DOES_NOT_FIT


@pytest.mark.parametrize("name", CATALOG.ids("models"))
def test_p45_sizes_are_summed_from_tensors(name: str) -> None:
    """A minimum was typed by hand (vllm recipes#403): here it is the sum of what is stored."""
    model = CATALOG.model(name)
    for variant in model.variants:
        if variant.bytes_total is None and model.totals is not None:
            inventory = from_facts(model, CATALOG.family(model.family), variant)
            if variant is model.variants[0]:
                assert inventory.bytes_total == model.totals.bytes
            assert inventory.params_total > 0


def test_p55_grouped_heads_are_counted_once(make_plan: Make) -> None:
    """A cache was eight times too large (vllm-fit#2): 2 × 32 layers × 8 KV heads × 128 × 2 B."""
    plan = make_plan("llama-3.1-8b", "1xH100", engine="vllm", kv_cache_dtype="bf16")
    assert plan.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2


def test_p57_words_of_packed_weights_are_bytes_not_weights(tmp_path: Path) -> None:
    """4-bit weights in U32 were counted as 4 bytes each (omlx#3489)."""
    shape = (1024, 1024 // 8)
    write_file(
        tmp_path / "model.safetensors",
        [
            SparseTensor(name="model.layers.0.mlp.up_proj.weight", dtype="U32", shape=shape),
            SparseTensor(
                name="model.layers.0.mlp.up_proj.scales", dtype="BF16", shape=(1024, 1024 // 64)
            ),
            SparseTensor(
                name="model.layers.0.mlp.up_proj.biases", dtype="BF16", shape=(1024, 1024 // 64)
            ),
        ],
    )
    (tmp_path / "config.json").write_text(
        json.dumps({"quantization": {"group_size": 64, "bits": 4}})
    )
    found = inspect(str(tmp_path), CATALOG, None)
    assert found.total_params == 1024 * 1024
    assert found.tensor_bytes == 1024 * 1024 // 2 + 2 * 1024 * 16 * 2


def test_p61_the_screen_shows_the_numbers_of_the_record(make_plan: Make) -> None:
    """Three places of one program gave three numbers (unsloth#10489)."""
    plan = make_plan("kimi-k3", "8xMI355X", engine="atom")
    shown = "\n".join(map(str, screen.lines(plan)))
    parts: tuple[Any, ...] = (plan.per_gpu.weights_bytes, plan.per_gpu.kv_cache_bytes)
    for part in parts:
        assert format_gib(part.low) in shown
