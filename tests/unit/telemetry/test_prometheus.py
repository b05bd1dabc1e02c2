"""Prometheus' text format, as engines serve it."""

from __future__ import annotations

from heavylift.telemetry.prometheus import first_of, totals

PAGE = """# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:kv_cache_usage_perc 0.25 1700000000000
vllm:e2e_bucket{le="+Inf"} 7
broken line without value
llamacpp:requests_deferred NaN
"""


def test_values_are_summed_over_labels_and_other_lines_passed_over() -> None:
    """Two engines of one server count together; what is no number is not there."""
    values = totals(PAGE)
    assert values["vllm:num_requests_running"] == 5
    assert values["vllm:kv_cache_usage_perc"] == 0.25
    assert "llamacpp:requests_deferred" not in values


def test_the_first_known_name_counts() -> None:
    """Engines call the same figure by several names."""
    values = {"b": 2.0, "c": 3.0}
    assert first_of(values, ("a", "b", "c")) == 2
    assert first_of(values, ("a",)) is None
