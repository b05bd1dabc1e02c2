"""Prometheus' text format, as engines serve it."""

from __future__ import annotations

from heavylift.telemetry.prometheus import samples

PAGE = """# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="a {b} \\"c\\""} 2.0
vllm:kv_cache_usage_perc 0.25 1700000000000
vllm:e2e_bucket{le="+Inf"} 7
broken line without value
llamacpp:requests_deferred NaN
"""


def test_a_value_for_each_set_of_labels_and_other_lines_passed_over() -> None:
    """Labels may hold anything in their quotes; what is no number is not there."""
    assert samples(PAGE) == {
        "vllm:num_requests_running": (3.0, 2.0),
        "vllm:kv_cache_usage_perc": (0.25,),
        "vllm:e2e_bucket": (7.0,),
    }
