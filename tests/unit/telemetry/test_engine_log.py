"""Engines' logs: phases, progress, address, memory terms, in the engines' own words."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.facts.catalog import Catalog
from heavylift.records.deployment import Phase
from heavylift.telemetry.engine_log import EngineWords, LogReader, read
from heavylift.units import GIB

BOOK = Catalog().engine_logs()
FIXTURES = Path(__file__).parents[2] / "logs" / "fixtures"

# Lines as vLLM's releases of 2026 print them, two ranks of tensor parallelism.
VLLM = """\
(APIServer pid=1) INFO 11-30 07:34:38 [api_utils.py:286] non-default args: {'model_tag': 'm'}
(Worker_TP0 pid=3) INFO 11-30 07:34:52 [gpu_model_runner.py:68] Starting to load model m...
Loading safetensors checkpoint shards:   0% Completed | 0/96 [00:00<?, ?it/s]\rLoading safetensors \
checkpoint shards:  25% Completed | 24/96 [02:00<06:00,  5.00s/it]
(Worker_TP0 pid=3) INFO [gpu_model_runner.py:100] Model loading took 168.89 GiB memory and 232.8 s
(Worker_TP1 pid=4) INFO [gpu_model_runner.py:100] Model loading took 170.02 GiB memory and 233.1 s
(Worker_TP0 pid=3) INFO [gpu_worker.py:300] Available KV cache memory: 57.57 GiB
(Worker_TP1 pid=4) INFO [gpu_worker.py:300] Available KV cache memory: 56.44 GiB
(EngineCore_DP0 pid=2) INFO [kv_cache_utils.py:2327] GPU KV cache size: 394,633 tokens, Maximum \
concurrency for 10,240 tokens per request: 38.54x
Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|#####     | 2/4 [00:01<00:01]
(Worker_TP0 pid=3) INFO [gpu_model_runner.py:6582] Graph capturing finished in 33 secs, \
took 1.22 GiB
(APIServer pid=1) INFO 11-30 07:36:38 [entry.py:140] Starting vLLM server on http://0.0.0.0:18081
"""
SGLANG = """\
[2026-02-27 17:10:20 TP0] Load weight begin. avail mem=175.34 GB
[2026-02-27 17:10:27 TP0] Load weight end. elapsed=653.47 s, type=K, avail mem=19.08 GB, \
mem usage=3.76 GB.
[2026-02-27 17:10:28 TP0] KV Cache is allocated. dtype: f8, #tokens: 19644177, K size: 14.05 GB, \
V size: 14.05 GB
[2026-02-27 17:10:28 TP0] KV Cache is allocated. #tokens: 19644177, K size: 0.51 GB, \
V size: 0.51 GB
[2026-02-27 17:10:30 TP0] Capture target verify CUDA graph end. elapsed=6.90 s, mem usage=6.13 GB, \
avail mem=4.72 GB.
[2026-02-27 17:10:31 TP0] max_total_num_tokens=580364, chunked_prefill_size=2048, \
max_prefill_tokens=16384, max_running_requests=1, context_len=8192
INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)
"""


def phases(engine: str, log: str) -> tuple[LogReader, list[str]]:
    """A log read line by line, and the phases it passed."""
    reader = LogReader(EngineWords(BOOK, engine))
    seen: list[str] = []
    for line in log.splitlines(keepends=True):
        reader.feed(line.encode())
        if reader.phase is not None and (not seen or seen[-1] != reader.phase):
            seen.append(reader.phase)
    return reader, seen


def test_a_start_of_vllm_passes_its_phases_with_shards_and_terms_per_card() -> None:
    """Weights and pool of each rank, tokens, graphs; a progress bar counts within its line."""
    reader, seen = phases("vllm", VLLM)
    assert seen == ["process", "weights", "memory", "graphs", "warm_up", "api"]
    terms = {
        (term.term, term.device): round(term.bytes / GIB, 2) for term in reader.measured_terms()
    }
    assert terms == {
        ("weights", "tp0"): 168.89,
        ("weights", "tp1"): 170.02,
        ("pool", "tp0"): 57.57,
        ("pool", "tp1"): 56.44,
        ("graphs", "tp0"): 1.22,
    }
    assert reader.figures == {
        "kv_tokens": 394633.0,
        "most_sequences": 38.54,
        "context_tokens": 10240.0,
    }
    assert reader.address == "http://127.0.0.1:18081"


def test_shards_are_counted_while_they_load() -> None:
    """Also from a bar that rewrites its line."""
    reader, _ = phases("vllm", "".join(VLLM.splitlines(keepends=True)[:4]))
    assert (reader.phase, reader.done, reader.total, reader.unit) == ("weights", 24, 96, "shards")


def test_sglang_s_model_pool_counts_and_a_drafter_s_does_not() -> None:
    """Both print the same words; the model's come first, K and V add up."""
    reader, seen = phases("sglang", SGLANG)
    assert seen == ["weights", "memory", "warm_up", "api"]
    terms = {term.term: round(term.bytes / GIB, 2) for term in reader.measured_terms()}
    assert terms["weights"] == 3.76
    assert terms["graphs"] == 6.13
    assert terms["pool"] == 28.10
    assert reader.figures["kv_tokens"] == 580364
    assert reader.address == "http://127.0.0.1:30000"


def test_a_real_llama_cpp_start_passes_its_phases_in_order() -> None:
    """The log of SmolLM2's start; its fixture begins at the fit pass."""
    _, seen = phases("embedded", (FIXTURES / "llamacpp_smollm2_4x1024.log").read_text())
    assert seen == ["fit", "weights", "memory", "warm_up", "api"]
    _, same = phases("llamacpp", (FIXTURES / "llamacpp_smollm2_4x1024.log").read_text())
    assert same == seen


def test_an_unknown_engine_has_no_phases() -> None:
    """A line means nothing without its engine."""
    reader, seen = phases("other", VLLM)
    assert (seen, reader.measured_terms(), reader.figures) == ([], (), {})


def test_every_phase_in_the_facts_is_one() -> None:
    """What a log tells can be shown."""
    assert {each.phase for each in BOOK.phases} <= set(Phase)
    assert {each.unit for each in BOOK.phases if each.unit} <= {"shards", "graphs"}


def test_repeating_that_one_waits_is_no_news() -> None:
    """The sixty-second line of a hung engine differs in its time only."""
    line = (
        "(EngineCore pid=2) INFO 11-30 07:36:26 No available shared memory broadcast block in 60 s"
    )
    lines = [line.replace("07:36", f"07:{minute}") for minute in range(10, 60)]
    assert read(lines, EngineWords(BOOK, "vllm")).news == 1


@given(cuts=st.lists(st.integers(min_value=0, max_value=len(VLLM.encode())), max_size=30))
def test_where_a_log_is_cut_into_blocks_makes_no_difference(cuts: list[int]) -> None:
    """Lines come in pieces."""
    whole = VLLM.encode()
    reader = LogReader(EngineWords(BOOK, "vllm"))
    edges = [0, *sorted(cuts), len(whole)]
    for begin, end in pairwise(edges):
        reader.feed(whole[begin:end])
    expected, _ = phases("vllm", VLLM)
    assert reader.measured_terms() == expected.measured_terms()
    assert (reader.phase, reader.figures, reader.news) == (
        expected.phase,
        expected.figures,
        expected.news,
    )


@pytest.mark.shared
def test_recorded_starts_of_vllm_are_read(shared: Path) -> None:
    """Three starts on a CPU: tokens as printed, the whole way to the API."""
    folder = shared / "data" / "samples" / "engine-logs"
    expected = {"smollm2_eager": 46592, "deepseekv3_mla_tiny": 310688, "qwen3next_tiny": 838860}
    for name, tokens in expected.items():
        lines = (folder / f"vllm_cpu_{name}.log").read_text("utf-8", "replace").splitlines()
        reader = read(lines, EngineWords(BOOK, "vllm"))
        assert (reader.phase, reader.figures["kv_tokens"]) == ("api", tokens), name
