"""Start-up logs as receipts: each engine's words, and the traps in them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.plan.receipts import compare, mismatch
from heavylift.records.plan import Agreement, Plan
from heavylift.telemetry.start_log import StartLog, read_start, receipt_of
from heavylift.units import GIB, MIB

Make = Callable[..., Plan]

LEDGER = (
    "Free memory on device (78.7/79.25 GiB) on startup. Desired GPU memory utilization is"
    " (0.92, 72.91 GiB). Actual usage is 15.26 GiB for consumed memory (weights + non-torch),"
    " 1.44 GiB for peak activation, and 0.23 GiB for CUDAGraph memory."
)
VLLM = (
    "(APIServer pid=1) INFO vLLM API server version 0.31.0",
    "(EngineCore_DP0 pid=12) INFO Model loading took 15.0 GiB memory and 3.2 seconds",
    "(EngineCore_DP0 pid=12) INFO Estimated CUDA graph memory: 0.23 GiB total",
    "(EngineCore_DP0 pid=12) INFO Available KV cache memory: 56.21 GiB",
    f"(EngineCore_DP0 pid=12) INFO {LEDGER}",
    "(EngineCore_DP0 pid=12) INFO GPU KV cache size: 460,496 tokens",
    "(EngineCore_DP0 pid=12) INFO Maximum concurrency for 131,072 tokens per request: 3.51x",
)


def log(*lines: str) -> StartLog:
    """The log of those lines."""
    return read_start(lines, Catalog().engine_logs())


def terms(*lines: str) -> dict[str, float]:
    """Its terms, GiB."""
    return {name: round(term.bytes / GIB, 3) for name, term in log(*lines).terms.items()}


def test_vllms_ledger_is_read(make_plan: Make) -> None:
    """The estimate of the graphs is inside the printed peak: 1.44 is 1.21 and 0.23."""
    start = log(*VLLM)
    assert (start.engine, start.version) == ("vllm", "0.31.0")
    assert start.settings == {"context_tokens": 131072, "gpu_memory_utilization": 0.92}
    plan = make_plan("llama-3.1-8b", "1xA100", engine="vllm", context_tokens=131072)
    found = {term.term: round(term.bytes / GIB, 2) for term in receipt_of(start, plan).terms}
    assert found == {
        "weights": 15.0,
        "pool": 56.21,
        "workspace.activations": 1.21,
        "outside_pool.graphs": 0.23,
        "outside_pool.unexplained": 0.26,
    }


def test_a_log_makes_intervals_of_a_plan_narrow(make_plan: Make) -> None:
    """With the log every term has a number; the tokens it printed lie in the planned interval."""
    given = {"engine": "vllm", "context_tokens": 131072, "gpu_memory_utilization": 0.92}
    plan = make_plan("llama-3.1-8b", "1xA100", **given)
    assert plan.per_gpu.high_total_bytes is None
    receipt = receipt_of(log(*VLLM), plan)
    measured = make_plan("llama-3.1-8b", "1xA100", receipt=receipt, **given)
    assert measured.per_gpu.high_total_bytes is not None
    tokens = measured.capacity.kv_tokens
    assert tokens.low <= 460_496 <= (tokens.high or 0)
    rows = {row.term: row.agreement for row in compare(plan, receipt)}
    assert rows["weights"] is Agreement.EQUAL
    assert rows["kv_bytes_per_token"] is Agreement.EQUAL
    assert rows["pool"] is Agreement.INSIDE
    assert rows["workspace.activations"] is Agreement.NEW


def test_v0_says_the_same_twice_and_it_counts_once() -> None:
    """The sentence of V0 repeats the weights that a line of their own told."""
    found = terms(
        "Loading model weights took 8.5107 GB",
        "model weights take 8.51GiB; non_torch_memory takes 0.26GiB; PyTorch activation peak memory"
        " takes 0.94GiB; the rest of the memory reserved for KV Cache is 2.18GiB.",
    )
    assert found == {
        "weights": 8.511,
        "non_torch": 0.26,
        "peak_activation": 0.94,
        "pool": 2.18,
    }


def test_a_negative_pool_is_a_number() -> None:
    """VLLM prints what is missing with a minus."""
    found = terms("Model loading took 168.89 GiB memory", "Available KV cache memory: -2.14 GiB")
    assert found["pool"] == -2.14


def test_ranks_repeat_and_replicas_add_up() -> None:
    """Terms are of the fullest rank, the pool of the fullest card's; tokens of replicas add up."""
    lines = [
        f"(Worker_DP{dp}_TP{rank} pid=7) Model loading took {30 + rank}.0 GiB"
        for dp in (0, 1)
        for rank in (0, 1)
    ]
    lines += [
        f"(Worker_DP{dp}_TP{rank} pid=7) Available KV cache memory: {20 - rank}.5 GiB"
        for dp in (0, 1)
        for rank in (0, 1)
    ]
    lines += [f"(EngineCore_DP{dp} pid=3) GPU KV cache size: 1,000 tokens" for dp in (0, 1)]
    start = log(*lines)
    assert start.ranks == 2
    assert start.terms["weights"].bytes == 31 * GIB
    assert start.terms["pool"].bytes == 19.5 * GIB
    assert start.figures["kv_tokens"] == 2000


def test_sglangs_first_pool_is_the_models(make_plan: Make) -> None:
    """The drafter's pool is printed in the same words after it; GB are GiB."""
    plan = make_plan("qwen3-235b", "4xH100", engine="sglang", tensor=4)
    start = log(
        "[2026-02-27 17:10:27 TP0] Load weight end. type=Qwen3MoeForCausalLM, dtype=torch.bfloat16,"
        " avail mem=23.10 GB, mem usage=55.20 GB.",
        "[2026-02-27 17:10:30 TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB,"
        " V size: 8.23 GB",
        "[2026-02-27 17:10:31 TP0] KV Cache is allocated. #tokens: 367404, K size: 0.09 GB,"
        " V size: 0.09 GB",
        "[2026-02-27 17:10:40 TP0] max_total_num_tokens=367404, chunked_prefill_size=8192,"
        " max_prefill_tokens=16384, max_running_requests=64, context_len=32768",
    )
    assert start.engine == "sglang"
    assert round(start.terms["pool"].bytes / GIB, 2) == 16.46
    rows = {row.term: row for row in compare(plan, receipt_of(start, plan))}
    assert rows["kv_bytes_per_token"].agreement is Agreement.EQUAL


def test_tensorrt_llm_and_ollama_are_read() -> None:
    """The last line of TensorRT-LLM's pool counts; Ollama's units are those it prints."""
    trt = log(
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache"
        " (16384)",
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache"
        " (263008)",
    )
    assert (trt.engine, trt.figures["kv_tokens"]) == ("tensorrt-llm", 263008)
    assert round(trt.terms["pool"].bytes / GIB, 2) == 16.05
    ollama = log(
        'memory.required.full="62.4 GiB" memory.required.kv="450.0 MiB"'
        ' memory.weights.total="59.7 GiB" memory.graph.full="122.0 MiB"'
    )
    assert ollama.engine == "ollama"
    assert ollama.terms["kv_cache"].bytes == 450 * MIB
    assert ollama.terms["workspace.compute_buffer"].bytes == 122 * MIB
    assert round(ollama.terms["weights"].bytes / GIB, 1) == 59.7


def test_a_log_of_another_model_is_not_taken(make_plan: Make) -> None:
    """Weights of half or twice the size are no start of this plan."""
    plan = make_plan("llama-3.1-8b", "1xA100", engine="vllm")
    other = receipt_of(log("Model loading took 30.5 GiB", "Available KV cache memory: 9 GiB"), plan)
    assert mismatch(other, plan) == "weights"


def test_a_log_of_more_ranks_is_of_another_layout(make_plan: Make) -> None:
    """Eight ranks are not the plan's one."""
    plan = make_plan("llama-3.1-8b", "1xA100", engine="vllm")
    start = log(*(f"(Worker_TP{n} pid=7) Model loading took 15.0 GiB" for n in range(8)))
    assert mismatch(receipt_of(start, plan), plan) == "layout"


def test_a_text_without_memory_lines_is_no_log() -> None:
    """It says so."""
    with pytest.raises(HeavyliftError) as raised:
        log("hello", "world")
    assert raised.value.code == "RUN020"


@pytest.mark.parametrize(
    "size", ["47.47.4", "", ".", "9" * 5000, "1,,2.", "٤٧"], ids=lambda size: size[:9]
)
def test_a_damaged_line_measures_nothing(size: str) -> None:
    """Two points in a number, none at all, more digits than any engine prints."""
    damaged = [line.replace("56.21 GiB", f"{size} GiB") for line in VLLM[:4]]
    assert log(*damaged).terms == log(*VLLM[:3]).terms


def test_host_buffers_of_llama_cpp_are_no_card_s(make_plan: Make) -> None:
    """The embedding stays in host memory, in the plan as in the log: what is compared is the card,
    and of several cards the fullest.
    """
    plan = make_plan("llama-3.1-8b", "1xH100", engine="llamacpp")
    card = round(plan.per_gpu.weights_bytes.low / MIB, 2)
    lines = (
        f"load_tensors:        CUDA0 model buffer size = {card:.2f} MiB",
        "load_tensors:   CPU_Mapped model buffer size =   281.81 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =  2048.00 MiB",
        (
            "llama_kv_cache: size = 2048.00 MiB ( 16384 cells,  32 layers,  1/1 seqs),"
            " K (f16): 1024.00 MiB, V (f16): 1024.00 MiB"
        ),
        "sched_reserve:      CUDA0 compute buffer size =   258.50 MiB",
        "sched_reserve:  CUDA_Host compute buffer size =    20.01 MiB",
    )
    start = log(*lines)
    assert start.settings == {"context_tokens": 16384, "concurrency": 1, "kv_cache_dtype": "f16"}
    found = receipt_of(start, plan)
    assert {(term.term, term.device) for term in found.terms} == {
        ("weights", "CUDA0"),
        ("kv_cache", "CUDA0"),
        ("workspace.compute_buffer", "CUDA0"),
    }
    assert mismatch(found, plan) is None
    rows = {row.term: row for row in compare(plan, found)}
    assert abs(rows["weights"].measured_bytes - plan.per_gpu.weights_bytes.low) <= 0.01 * MIB
    assert rows["workspace.compute_buffer"].measured_bytes == 258.5 * MIB
    two = (*lines, "sched_reserve:      CUDA1 compute buffer size =   300.00 MiB")
    fullest = {term.term: term.bytes for term in receipt_of(log(*two), plan).terms}
    assert fullest["workspace.compute_buffer"] == 300 * MIB
