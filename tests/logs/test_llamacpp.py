"""llama.cpp's memory lines, as measured with xllamacpp 2026.10.11549 on a 2-core machine.

The fixtures are the memory lines of logs taken by running that engine; other lines are left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.records.plan import Layout
from heavylift.records.receipt import MeasuredTerm
from heavylift.telemetry import llamacpp
from heavylift.units import MIB

FIXTURES = Path(__file__).parent / "fixtures"
SMOLLM2 = "llamacpp_smollm2_4x1024.log"
TINY_K3 = "llamacpp_k3_tiny_4x1024.log"
FULL_K3_FIT = "llamacpp_k3_fit_8x131072.log"


def lines(name: str) -> list[str]:
    """The lines of a fixture."""
    return (FIXTURES / name).read_text("utf-8").splitlines()


def terms(name: str) -> dict[str, MeasuredTerm]:
    """The measured terms of a fixture, by id."""
    return {term.term: term for term in llamacpp.measured_terms(llamacpp.parse(lines(name)))}


def printed(term: MeasuredTerm) -> str:
    """Bytes as llama.cpp prints them."""
    return f"{term.bytes / MIB:.2f}"


def test_a_dense_model_has_weights_cache_and_buffers() -> None:
    """SmolLM2, four slots of 1024 tokens: every number is the one in the log."""
    assert {name: printed(term) for name, term in terms(SMOLLM2).items()} == {
        "weights": "92.10",
        "kv_cache": "90.00",
        "workspace.compute_buffer": "15.64",
        "workspace.output_buffer": "0.75",
    }


def test_a_hybrid_model_has_both_kinds_of_state() -> None:
    """The tiny K3: S are the matrices, R the convolutions; weights are two lines summed."""
    found = terms(TINY_K3)
    assert {name: printed(term) for name, term in found.items()} == {
        "weights": "66.86",
        "kv_cache": "13.50",
        "recurrent_state.kda_recurrent": "6.00",
        "recurrent_state.kda_conv": "0.42",
        "workspace.compute_buffer": "14.51",
        "workspace.output_buffer": "0.75",
    }
    assert found["weights"].line.count("model buffer size") == 2
    assert found["kv_cache"].device == "host"


def test_cache_and_state_equal_their_formulas_to_the_printed_digit() -> None:
    """KV = layers × 576 × 2 B × tokens; S = layers × sequences × heads × 128 × 128 × 4 B;
    R = layers × sequences × 3 × heads × 128 × (4 - 1) × 4 B.
    """
    found = terms(TINY_K3)
    for name, formula in (
        ("kv_cache", 3 * 576 * 2 * 4096),
        ("recurrent_state.kda_recurrent", 6 * 4 * 4 * 128 * 128 * 4),
        ("recurrent_state.kda_conv", 6 * 4 * 3 * 512 * 3 * 4),
    ):
        assert abs(found[name].bytes - formula) < found[name].resolution_bytes, name


def test_resolution_is_the_last_printed_digit() -> None:
    """Two decimals of a MiB; a sum of two lines knows half as well."""
    found = terms(TINY_K3)
    assert found["kv_cache"].resolution_bytes == round(MIB / 100)
    assert found["weights"].resolution_bytes == 2 * round(MIB / 100)


def test_slots_cells_and_types_are_read() -> None:
    """The settings that the terms depend on."""
    memory = llamacpp.parse(lines(TINY_K3))
    assert (memory.slots, memory.context_tokens, memory.slot_tokens) == (4, 4096, 1024)
    assert (memory.batch_tokens, memory.ubatch_tokens) == (2048, 512)
    assert memory.kv is not None
    assert memory.recurrent is not None
    assert (memory.kv.cells, memory.kv.layers, memory.kv.k_dtype) == (1024, 3, "f16")
    assert (memory.kv.k.bytes, memory.kv.v.bytes) == (13.5 * MIB, 0)
    assert (memory.recurrent.cells, memory.recurrent.s_dtype) == (4, "f32")


def test_the_last_pass_counts() -> None:
    """A fit pass before the real one prints the same lines with other numbers."""
    memory = llamacpp.parse([*lines(FULL_K3_FIT), *lines(SMOLLM2)])
    assert memory == llamacpp.parse(lines(SMOLLM2))
    assert memory.recurrent is None


def test_the_fit_pass_has_the_engine_s_own_forecast() -> None:
    """The whole K3, eight slots of 131,072 tokens, none of whose weights were read."""
    fit = llamacpp.parse_fit(lines(FULL_K3_FIT))
    assert fit.memory.kv is not None
    assert fit.memory.recurrent is not None
    assert fit.memory.kv.size.bytes == 27648 * MIB
    assert f"{fit.memory.recurrent.size.bytes / MIB:.2f}" == "3544.88"
    assert (fit.model_mib, fit.context_mib, fit.compute_mib) == (109381 + 1379448, 31192, 656)


def test_a_receipt_says_what_it_answers_for() -> None:
    """Its workload is that of a plan with the same slots, context and batch."""
    receipt = llamacpp.receipt(
        llamacpp.parse(lines(TINY_K3)),
        model="kimi-k3-tiny-random",
        variant="mxfp4-gguf",
        engine="embedded",
        engine_version="2026.10.11549",
        rack="this-machine",
        taken_at="2026-11-30T09:00:00Z",
    )
    assert (receipt.backend, receipt.layout) == ("cpu", Layout())
    assert receipt.workload == {
        "context_tokens": 4096,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 512,
        "kv_cache_dtype": "f16",
    }
    assert len(receipt.terms) == 6


def test_gpu_buffers_are_kept_apart_from_host_buffers() -> None:
    """Buffers are named after the runtime; pinned host memory is host memory."""
    log = [
        line.replace("CPU_Mapped model", "CUDA0 model").replace("CPU KV", "CUDA0 KV")
        for line in lines(SMOLLM2)
    ]
    log.append("load_tensors:    CUDA_Host model buffer size =     1.00 MiB")
    memory = llamacpp.parse(log)
    assert {key: value.bytes for key, value in memory.buffers.items() if key[0] != "compute"} == {
        ("model", "CUDA0"): round(92.1 * MIB),
        ("KV", "CUDA0"): 90 * MIB,
        ("model", "host"): MIB,
        ("output", "host"): round(0.75 * MIB),
    }
    receipt = llamacpp.receipt(
        memory,
        model="m",
        variant="v",
        engine="llamacpp",
        engine_version="1",
        rack="1xH200",
        taken_at="",
    )
    assert (receipt.backend, receipt.layout) == ("cuda", Layout())


@pytest.mark.parametrize("missing", ["model buffer", "n_ctx_seq ", "KV", "compute buffer"])
def test_a_log_without_a_line_says_which(missing: str) -> None:
    """Half a log is no receipt: nothing is taken for zero."""
    log = [line for line in lines(SMOLLM2) if missing not in line]
    log = [line for line in log if missing != "KV" or "llama_kv_cache" not in line]
    with pytest.raises(HeavyliftError) as caught:
        llamacpp.parse(log)
    assert caught.value.code == "RUN020"
    assert str(caught.value.params["what"]) in missing


def test_the_memory_lines_alone_tell_slots_and_tokens() -> None:
    """An excerpt without the settings: the line of the cache has cells, sequences and streams; the
    batch it does not tell is not made up.
    """
    whole = llamacpp.parse(lines(SMOLLM2))
    kept = [line for line in lines(SMOLLM2) if "buffer size" in line or "_cache: size" in line]
    excerpt = llamacpp.parse(line for line in kept if "output" not in line)
    assert (excerpt.slots, excerpt.context_tokens) == (whole.slots, whole.context_tokens)
    assert excerpt.slot_tokens == whole.slot_tokens
    assert (excerpt.batch_tokens, excerpt.ubatch_tokens) == (None, None)
    assert excerpt.kv == whole.kv
    told = {term.term: term.bytes for term in llamacpp.measured_terms(whole)}
    assert {term.term: term.bytes for term in llamacpp.measured_terms(excerpt)} == {
        name: size for name, size in told.items() if name != "workspace.output_buffer"
    }


def test_of_windowed_caches_the_widest_tells_the_tokens() -> None:
    """A window's cache is printed after the whole one and holds fewer cells; unified, the cells
    are those of all slots; a cache printed in the old way tells neither.
    """
    size = "{} MiB ({} cells, 16 layers, {} seqs), K (f16): 1.00 MiB, V (f16): 1.00 MiB"
    rest = [
        "load_tensors:        CUDA0 model buffer size = 15843.20 MiB",
        "sched_reserve:      CUDA0 compute buffer size =   495.00 MiB",
    ]
    caches = [
        f"llama_kv_cache: size = {size.format('4352.00', 131072, '4/1')}",
        f"llama_kv_cache: size = {size.format('96.00', 1536, '4/1')}",
    ]
    memory = llamacpp.parse([*caches, *rest])
    assert (memory.slots, memory.context_tokens) == (4, 131072)
    old = llamacpp.parse([caches[0].replace("4/1", "4"), *rest])
    assert (old.slots, old.context_tokens) == (None, None)


def test_a_log_without_a_fit_table_has_no_forecast() -> None:
    """An engine that ended before its table forecasts nothing."""
    with pytest.raises(HeavyliftError, match="RUN020"):
        llamacpp.parse_fit(["", "error: no such file"])
