"""From a memory failure to the plan that answers it."""

from __future__ import annotations

from collections.abc import Callable

from heavylift.diagnose.replan import PlanQuestion, question
from heavylift.facts.catalog import Catalog
from heavylift.records.diagnosis import Diagnosis

START = (
    "INFO Initializing a V1 LLM engine (v0.29.0) with config: model='moonshotai/Kimi-K3',"
    " max_seq_len=131072, tensor_parallel_size=8\n"
)
OOM = (
    '  File "x.py", line 3, in load_model\n'
    "CUDA out of memory. Tried to allocate 1.31 GiB. GPU 3 has a total capacity of 139.81 GiB"
)


def test_model_and_rack_are_read_from_the_log(diagnosed: Callable[..., Diagnosis]) -> None:
    """The capacity a failure prints tells the card, the layout how many of them."""
    asked = question(diagnosed(START + OOM), Catalog().gpus())
    assert asked == PlanQuestion(
        model="moonshotai/Kimi-K3",
        rack="8xH200",
        options={"tp": 8, "context": 131072, "engine": "vllm"},
    )


def test_what_the_caller_knows_comes_first(diagnosed: Callable[..., Diagnosis]) -> None:
    """A model and a rack given by hand are taken where the log tells none."""
    diagnosis = diagnosed(OOM)
    assert question(diagnosis, Catalog().gpus()) is None
    asked = question(diagnosis, Catalog().gpus(), model="kimi-k3", rack="8xB300")
    assert asked == PlanQuestion(model="kimi-k3", rack="8xB300")


def test_a_capacity_of_no_known_card_is_no_rack(diagnosed: Callable[..., Diagnosis]) -> None:
    """A card outside the catalogue is not taken for a near one."""
    other = OOM.replace("139.81", "23.57")
    assert question(diagnosed(START + other), Catalog().gpus()) is None


def test_other_failures_are_not_planned(diagnosed: Callable[..., Diagnosis]) -> None:
    """A taken port is no matter of memory."""
    diagnosis = diagnosed(START + "OSError: [Errno 98] Address already in use")
    assert question(diagnosis, Catalog().gpus(), rack="8xB300") is None
