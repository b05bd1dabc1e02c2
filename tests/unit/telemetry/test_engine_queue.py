"""An engine's queue: read from the metrics pages of several engines."""

from __future__ import annotations

import pytest

from heavylift.facts.catalog import Catalog
from heavylift.telemetry.engine_queue import EngineQueue, read

# Names as the engines' own documentation lists them; values made up.
VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 12.0
vllm:num_requests_running{engine="1",model_name="m"} 10.0
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
"""
SGLANG = """\
sglang:num_running_reqs{model_name="m"} 7
sglang:num_queue_reqs{model_name="m"} 2826
sglang:token_usage{model_name="m"} 0.28
"""
LLAMACPP = """\
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
"""


@pytest.mark.parametrize(
    ("page", "queue"),
    [
        (VLLM, EngineQueue(running=22, waiting=3, kv_use_ratio=0.75)),
        (SGLANG, EngineQueue(running=7, waiting=2826, kv_use_ratio=0.28)),
        (LLAMACPP, EngineQueue(running=2, waiting=1)),
        ("", EngineQueue()),
        ("vllm:num_requests_running 3\n", EngineQueue(running=3)),
        ("<html>", EngineQueue()),
    ],
)
def test_a_queue_is_read_by_the_names_of_its_engine(page: str, queue: EngineQueue) -> None:
    """Replicas are summed, the fullest cache counts; what a page does not tell is None."""
    assert read(page, Catalog().metric_names()) == queue
