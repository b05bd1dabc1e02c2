"""The rules from sightings to ranked causes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import pytest

from heavylift.diagnose.match import diagnose
from heavylift.diagnose.scan import LogReading, Scanner
from heavylift.diagnose.symptoms import CompiledSymptoms
from heavylift.facts.decode import Decoder
from heavylift.facts.symptom_schema import (
    SymptomBook,
)
from heavylift.records.diagnosis import Diagnosis

Diagnosed = Callable[..., Diagnosis]

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB. GPU 3 has a total"
    " capacity of 139.81 GiB of which 1.02 GiB is free."
)
CORE_FAILED = "RuntimeError: Engine core initialization failed. See root cause above."


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        ('  File "gpu_model_runner.py", line 3, in load_model', "weights_do_not_fit"),
        ('  File "gpu_model_runner.py", line 3, in capture_model', "oom_graph_capture"),
        ('  File "gpu_model_runner.py", line 3, in execute_model', "oom_at_runtime"),
    ],
)
def test_the_phase_decides_what_out_of_memory_means(
    frame: str, cause: str, diagnosed: Diagnosed
) -> None:
    """One line has three causes; the frame of the traceback beside it tells which."""
    assert diagnosed(f"{frame}\n{OOM}").causes[0].cause_class == cause


def test_the_same_advice_is_opposite_at_start_and_at_run_time(diagnosed: Diagnosed) -> None:
    """SGLang's message at the start asks for a higher fraction, its OOM at run time for less."""
    at_start = diagnosed("Not enough memory. Please try to increase --mem-fraction-static.")
    serving = diagnosed(f'  File "scheduler.py", line 9, in event_loop_overlap\n{OOM}')
    assert at_start.causes[0].cause_class == "static_memory_fraction"
    assert "raise" in at_start.causes[0].fix
    assert serving.causes[0].cause_class == "oom_at_runtime"
    assert "lower" in serving.causes[0].fix


def test_consequences_are_told_apart_and_traced(diagnosed: Diagnosed) -> None:
    """What follows a failure is listed apart, with the cause it is of, wherever it stands."""
    diagnosis = diagnosed(
        f"{CORE_FAILED}\nOSError: [Errno 98] Address already in use\n{CORE_FAILED}"
    )
    assert [cause.cause_class for cause in diagnosis.causes] == ["port_in_use"]
    assert [(each.id, each.of) for each in diagnosis.consequences] == [
        ("engine_core_failed", "port_in_use")
    ]
    assert diagnosis.root is not None
    assert diagnosis.root.number == 2


def test_consequences_alone_are_no_diagnosis(diagnosed: Diagnosed) -> None:
    """Without a cause the answer is "not recognised", with the first lines of trouble."""
    diagnosis = diagnosed(f"{CORE_FAILED}\nEngineDeadError: the engine is dead")
    assert not diagnosis.recognised
    assert diagnosis.errors[0].line == CORE_FAILED
    assert {each.of for each in diagnosis.consequences} == {None}


def test_the_first_rank_that_failed_is_the_root(diagnosed: Diagnosed) -> None:
    """Of several ranks' logs the earliest time counts, not the order of the files."""
    late = "2026-11-30 10:00:09 ERROR OSError: [Errno 28] No space left on device"
    early = f"2026-11-30 10:00:01 ERROR {OOM}"
    diagnosis = diagnosed(late, early)
    assert diagnosis.root is not None
    assert diagnosis.root.file == "rank-1"


def test_the_cause_outranks_its_usual_effect(diagnosed: Diagnosed) -> None:
    """Where a cause is present that usually has another as its effect, the other is set back."""
    diagnosis = diagnosed(
        "unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)\n"
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)"
    )
    assert diagnosis.causes[0].cause_class == "shm_too_small"
    disk = next(each for each in diagnosis.causes if each.cause_class == "disk_full")
    assert "explained_by" in disk.rules


def test_lines_marked_as_information_are_no_diagnosis(diagnosed: Diagnosed) -> None:
    """A program that says INFO tells of no trouble: the words only hint."""
    line = "Auto-enabling VLLM_USE_BREAKABLE_CUDAGRAPH=1"
    informed = diagnosed(f"(APIServer pid=1) INFO 11-30 07:34:08 [vllm.py:818] {line}")
    assert not informed.recognised
    assert informed.causes[0].rules == ("names", "information")


def test_a_command_line_is_no_evidence(diagnosed: Diagnosed) -> None:
    """Options that were asked for are not what went wrong."""
    asked = (
        "vllm serve model --load-format fastsafetensors --tool-call-parser x --trust-remote-code"
    )
    assert diagnosed(asked).causes == ()


def test_numbers_of_the_failure_are_read(diagnosed: Diagnosed) -> None:
    """A memory failure carries what it needed and what there was, with the unit in the name."""
    (cause, *_) = diagnosed(
        "ValueError: To serve at least one request with the model's max seq len (131072), 27.00 GiB"
        " KV cache is needed, which is larger than the available KV cache memory (1.66 GiB)."
        " Based on the available memory, the estimated maximum model length is 8048."
    ).causes
    assert cause.cause_class == "kv_cache_smaller_than_context"
    assert cause.numbers == {
        "need_gib": 27.0,
        "have_gib": 1.66,
        "longest_tokens": 8048,
        "asked_tokens": 131072,
    }


def test_a_symptom_may_need_another_beside_it(diagnosed: Diagnosed) -> None:
    """A dump of a long context says nothing alone; with a GPU exception it names the kernel."""
    dump = "num_computed_tokens=[337128]"
    assert diagnosed(dump).causes == ()
    both = diagnosed(f"{dump}\nHSA_STATUS_ERROR_EXCEPTION: An HSAIL operation")
    assert both.causes[0].cause_class == "aiter_kernel_unsupported_shape"


def test_the_log_tells_what_was_started(diagnosed: Diagnosed) -> None:
    """Engine, version, model and layout are read from the start lines."""
    context = diagnosed(
        "INFO [core.py:1] Initializing a V1 LLM engine (v0.29.0) with config:"
        " model='moonshotai/Kimi-K3', max_seq_len=131072, tensor_parallel_size=8"
    ).context
    assert (context.engine, context.engine_version, context.phase) == ("vllm", "0.29.0", "start")
    assert context.settings == {"model": "moonshotai/Kimi-K3", "context": "131072", "tensor": "8"}


def test_no_logs_are_no_diagnosis(diagnosed: Diagnosed) -> None:
    """Nothing read, nothing recognised."""
    assert not diagnosed().recognised
    assert diagnosed("").causes == ()


SINCE_2 = """
provenance = { kind = "spec", source = "recalled-wording", as_of = 2026-01-01 }

[[causes]]
id = "odd"
area = "x"
title = { en = "Odd.", zh_Hans = "怪。" }
fix = { en = "Even it." }
hint_command = "heavylift plan MODEL --on RACK"

[[causes.symptoms]]
id = "odd_line"
anchors = ["wobble"]
weight = "names"
engines = ["vllm"]
since = "0.28.0"
until = "0.30"

[[marks]]
id = "engine"
engine = "vllm"
anchors = ["engine (v", "model="]
version = 'engine \\(v(?P<version>[\\w.]+)'
settings = { model = 'model=(?P<value>\\S+)' }
"""


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("engine (v0.28.0)", True),
        ("engine (v0.29.1rc1)", True),
        ("engine (v0.30.0)", False),
        ("engine (v0.9.2)", False),
        ("engine (vdev)", False),
        ("model=k3", True),
        ("no engine at all", False),
    ],
)
def test_versions_and_engines_bound_a_symptom(start: str, found: bool) -> None:
    """Where the log tells the version it must be in the bounds; where it tells none any will do;
    a symptom of one engine is none of an unknown one.
    """
    diagnosis = diagnose([_read(f"{start}\nit will wobble")])
    assert bool(diagnosis.causes) is found


def test_the_language_of_an_answer_is_chosen() -> None:
    """Texts come in the language asked for, in English where they have none."""
    (cause,) = diagnose([_read("model=k3\nit will wobble")], "zh_Hans").causes
    assert (cause.title, cause.fix) == ("怪。", "Even it.")


def test_the_next_command_names_the_model_of_the_log() -> None:
    """Where the log names the model, nobody has to fill it in; odd names are left alone."""
    (cause,) = diagnose([_read("model=k3\nit will wobble")]).causes
    assert cause.next_command == "heavylift plan k3 --on RACK"
    (cause,) = diagnose([_read("model=$(x)\nit will wobble")]).causes
    assert cause.next_command == "heavylift plan MODEL --on RACK"


def _read(log: str) -> LogReading:
    decoder = Decoder("book.toml", frozenset({"recalled-wording"}))
    book = decoder.record(SymptomBook, tomllib.loads(SINCE_2), given={"id": "book"})
    assert book is not None, decoder.defects
    scanner = Scanner(CompiledSymptoms([book]), "log")
    scanner.feed(log.encode())
    return scanner.reading()
