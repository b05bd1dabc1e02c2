"""The rest of what users of other planners reported wrong; see `test_user_reports`."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from heavylift.cli.screens import plan as screen
from heavylift.errors import HeavyliftError
from heavylift.plan.planner import Knowledge
from heavylift.plan.speed import forecaster
from heavylift.planning import Planning
from heavylift.recipe.job import Start
from heavylift.reciping import RecipeWish, Reciping
from heavylift.records.plan import Capacity, Kind, Plan, PlanRequest, Rack
from heavylift.records.recipe import Recipe
from heavylift.records.speed import Speed, SpeedWorkload
from heavylift.telemetry.rocm_smi import parse_csv
from heavylift.units import GB, GIB, MIB

Make = Callable[..., Plan]
ROOT = Path(__file__).parents[2]


def shown(plan: Plan) -> str:
    """The screen as one line of text."""
    return " ".join(" ".join(map(str, screen.lines(plan))).split())


@pytest.fixture
def speed(
    planning: Planning, make_plan: Make, knowledge_of: Callable[[str], Knowledge]
) -> Callable[..., Speed]:
    """`speed("kimi-k2.5", "8xB200", 384, 8192, 1024, engine="vllm", …)`."""

    def make(
        model: str, rack: str, clients: int, prompt: int, answer: int, **given: object
    ) -> Speed:
        lengths = {"context_tokens": prompt + answer, "output_tokens": answer}
        plan = make_plan(model, rack, **lengths, **given)
        found = forecaster(plan, knowledge_of(model), planning.catalog.speed(), ())
        return found.speed(
            SpeedWorkload(concurrency=clients, input_tokens=prompt, output_tokens=answer)
        )

    return make


# --- P05: different cards in one machine ---------------------------------------------------------


def test_p05_cards_of_two_kinds_are_judged_by_the_smaller(make_plan: Make) -> None:
    """A 5090 and a 5080 in one box: counted as one pool, or only one of them (llmfit#1018)."""
    plan = make_plan("qwen3-8b", "RTX 5090 + RTX 5080", engine="vllm", tensor=2)
    assert (plan.rack.gpu_count, plan.rack.gpu) == (2, "rtx-5080")
    assert plan.per_gpu.visible_bytes < 16 * GIB
    assert "Unlike cards: every rank takes an equal share" in shown(plan)


def test_p05_cards_of_several_makers_are_refused(planning: Planning) -> None:
    """No engine runs on both at once."""
    with pytest.raises(HeavyliftError) as raised:
        planning.rack("1xRTX 5090 + 1xRX 7900 XTX")
    assert raised.value.code == "PLAN008"


def test_p05_a_plus_in_a_name_is_a_name(planning: Planning) -> None:
    """Ryzen AI Max+ 395 is one card, and equal cards in two parts are one kind."""
    gpu, _ = planning.rack("Ryzen AI Max+ 395")
    assert gpu.id == "strix-halo"
    _, rack = planning.rack("1xRTX 4090 + 1xRTX 4090")
    assert rack is not None
    assert (rack.gpu_count, rack.reading) == (2, None)


# --- P07, P31, P33: speed and trust ---------------------------------------------------------------


def test_p07_speed_goes_by_what_is_read_and_is_a_band(speed: Callable[..., Speed]) -> None:
    """A mixture of experts was forecast at half its speed, to one decimal (llmfit#474)."""
    found = speed("qwen3.5-35b", "1xH100", 1, 1000, 500, engine="vllm")
    whole_s = 70 * GB / 3.35e12
    assert found.tpot_floor_s < whole_s / 5
    assert found.tpot_s.low < found.tpot_s.high


def test_p31_a_batch_beyond_the_room_is_refused_and_not_promised(
    speed: Callable[..., Speed],
) -> None:
    """883.70 tokens/s a GPU were forecast and 192.44 measured: Kimi-K2.5 in NVFP4 on 8 B200, 8,192
    in and 1,024 out, 384 clients (aiconfigurator#1396).
    """
    found = speed("kimi-k2.5", "8xB200", 384, 8192, 1024, engine="vllm", variant="nvfp4")
    band = found.output_tokens_per_s_per_gpu
    assert band.high < 883.70
    assert found.refusal is not None


def test_p33_how_accurate_it_is_is_measured_and_printed() -> None:
    """`How accurate is the output?` (aiconfigurator#95): the kept results are those of the code,
    with every case that is off.
    """
    paths = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "accuracy")]
    sys.path[:0] = paths
    try:
        benchmark = import_module("plan_accuracy")
        made = benchmark.report(benchmark.CASES)
    finally:
        for path in paths:
            sys.path.remove(path)
    kept = (ROOT / "benchmarks" / "accuracy_results.md").read_text()
    assert made == kept, "python benchmarks/plan_accuracy.py --write"
    assert "| weights | 26/29 |" in kept


# --- P09: an integrated GPU ----------------------------------------------------------------------


def test_p09_an_integrated_gpu_is_a_device_of_its_own_size() -> None:
    """A processor's GPU was taken for a second card of 24 GB (llmfit#271): its carve-out is 64 MiB,
    and no card is of that size.
    """
    rows = (
        "device,VRAM Total Memory (B),VRAM Total Used Memory (B),Card Series,GFX Version\n"
        "card0,17163091968,692142080,Navi 21 [Radeon RX 6800],gfx1030\n"
        "card1,67108864,26079232,Raphael,gfx1036\n"
    )
    cards = parse_csv(rows)
    assert [card.memory_total_bytes for card in cards] == [17163091968, 64 * MIB]


# --- P13, P21, P53: what keeps what ---------------------------------------------------------------


def test_p13_windowed_layers_keep_the_window_and_global_ones_everything(make_plan: Make) -> None:
    """gemma-4-31B was charged for its global layers alone (hf-mem#60): 50 layers keep 1,024 tokens
    of 16 heads, 10 keep all of 4.
    """
    given = {"engine": "sglang", "kv_cache_dtype": "bf16"}
    plans = [
        make_plan("gemma-4-31b", "1xH200", context_tokens=tokens, **given)
        for tokens in (512, 8192, 16384)
    ]
    short, middle, long = (plan.per_gpu.kv_cache_bytes.low for plan in plans)
    window, each = 50 * 2 * 16 * 256 * 2, 10 * 2 * 4 * 512 * 2
    assert short == 512 * (window + each)
    assert middle == 1024 * window + 8192 * each
    assert long - middle == 8192 * each


def test_p21_a_windowed_cache_is_near_what_the_engine_printed(make_plan: Make) -> None:
    """Gemma-3-27B was put at 139 GB for 128,000 tokens (gpustack#2101). Ollama printed 1.6 GiB of
    KV for two slots of 4,096 and 8,192 in all.
    """
    name = "gemma-3-27b gguf-f16"
    log = make_plan(
        name, "1xH100", engine="ollama", context_tokens=8192, concurrency=2, kv_cache_dtype="f16"
    )
    assert abs(log.per_gpu.kv_cache_bytes.low / (1.6 * GIB) - 1) < 0.1
    long = make_plan(name, "1xH200", engine="llamacpp", context_tokens=128_000)
    assert long.per_gpu.kv_cache_bytes.low < 14 * GIB


def test_p53_a_hybrid_at_262k_has_16_gib_of_kv_and_its_state_apart(make_plan: Make) -> None:
    """The window said 75 GB, the engine took 16 of KV and 0.6 of state (lmstudio#1862)."""
    plan = make_plan(
        "qwen3.6-27b q8_0",
        "1xH200",
        engine="llamacpp",
        context_tokens=262144,
        concurrency=4,
        kv_cache_dtype="f16",
        vision=False,
    )
    assert plan.per_gpu.kv_cache_bytes.low == 16 * GIB
    assert abs(plan.per_gpu.recurrent_state_bytes.low / (598.5 * MIB) - 1) < 0.01
    assert 25 * GIB < plan.per_gpu.weights_bytes.low < 28.5 * GIB


# --- P29: encoders -------------------------------------------------------------------------------


def test_p29_an_encoder_keeps_nothing_and_weighs_what_it_weighs(tmp_path: Path) -> None:
    """A reranker of 568 M parameters was put at 13.8 GiB; 926 MiB were used (gpustack#2412)."""
    config = {
        "model_type": "xlm-roberta",
        "architectures": ["XLMRobertaForSequenceClassification"],
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "vocab_size": 250002,
        "max_position_embeddings": 8194,
        "type_vocab_size": 1,
        "torch_dtype": "float16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    planning = Planning()
    knowledge = planning.knowledge(str(tmp_path))
    _, rack = planning.rack("1xRTX 4090")
    assert rack is not None
    request = PlanRequest(model=str(tmp_path), rack=rack, engine="vllm")
    plan = planning.plan(request, knowledge, with_fixes=False)
    assert plan.kv_bytes_per_token == 0
    assert plan.per_gpu.kv_cache_bytes.low == 0
    assert plan.per_gpu.weights_bytes.low < 1.1 * GIB
    assert plan.capacity_verdict is not Capacity.DOES_NOT_FIT


# --- P47: manifests ------------------------------------------------------------------------------


def test_p47_no_manifest_is_made_of_what_does_not_fit_and_names_are_short() -> None:
    """Candidates that ran out of memory were written, with names that were too long
    (dynamo#8469).
    """

    def recipe(rack: str) -> Recipe:
        def ask(each: Rack) -> PlanRequest:
            return PlanRequest(model="kimi-k3", rack=each, engine="vllm")

        return Reciping().recipe(
            RecipeWish(model="kimi-k3", rack=rack, ask=ask, engine="vllm", start=Start())
        )

    refused = recipe("8xH200")
    assert refused.launch is None
    assert refused.refused is not None
    written = recipe("2x8xH200")
    assert written.launch is not None
    # Every rank has its machine, and no machine more cards than it has.
    cards: Counter[int] = Counter()
    for rank in written.launch.ranks:
        assert rank.node is not None
        assert rank.gpus is not None
        cards[rank.node] += rank.gpus
    assert cards == {0: 8, 1: 8}
    assert all(len(rank.name) <= 45 for rank in written.launch.ranks)


# --- P59: buffers --------------------------------------------------------------------------------


def test_p59_a_compute_buffer_that_is_not_known_is_shown_and_not_taken_for_nothing(
    make_plan: Make,
) -> None:
    """2.4 GB of compute buffer were left out, and a layer went to the processor (ollama#17201)."""
    given = {"engine": "llamacpp", "vision": False, "context_tokens": 65536}
    plan = make_plan("qwen3.6-27b q8_0", "1xRTX 5090", **given)
    buffer = next(term for term in plan.terms if term.id == "workspace.compute_buffer")
    assert (buffer.kind, buffer.bytes.high) == (Kind.UNKNOWN, None)
    assert "compute_buffer" in shown(plan)
    assert plan.capacity_verdict is Capacity.TIGHT


def test_p59_activations_grow_with_the_batch(make_plan: Make) -> None:
    """Where sources say how, the workspace follows the batch, not the context."""
    small, wide = (
        make_plan("qwen3-32b", "2xH100", engine="vllm", tensor=2, max_num_batched_tokens=tokens)
        for tokens in (4096, 16384)
    )
    assert wide.per_gpu.workspace_bytes.low == 4 * small.per_gpu.workspace_bytes.low
    assert re.search(r"workspace .*unknown", shown(small))
