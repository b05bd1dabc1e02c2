"""An engine's metrics page over time: rates, quantiles, hits, an engine that began anew."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.facts.catalog import Catalog
from heavylift.records.watch import EngineNow, LengthBin, Sight
from heavylift.telemetry.engine_metrics import EnginePage, bucket_quantile, now, read
from heavylift.telemetry.prometheus import histogram

NAMES = Catalog().metric_names()

# Names and labels as vLLM 0.32 prints them; values made up.
VLLM = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} 44.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} 3.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.61
vllm:num_preemptions_total{{engine="0",model_name="m"}} {preempted}
vllm:prompt_tokens_total{{engine="0",model_name="m"}} {prompt}
vllm:generation_tokens_total{{engine="0",model_name="m"}} {output}
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {queries}
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {hits}
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m"}} {stopped}
vllm:request_success_total{{engine="0",finished_reason="length",model_name="m"}} 2.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.5",model_name="m"}} {fast}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="2.5",model_name="m"}} {all}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} {all}
vllm:time_to_first_token_seconds_count{{engine="0",model_name="m"}} {all}
vllm:time_to_first_token_seconds_created{{engine="0",model_name="m"}} 1.7e9
"""
SGLANG = """\
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 7.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 2.0
sglang:token_usage{engine_type="unified",model_name="m",tp_rank="0"} 0.28
sglang:cache_hit_rate{engine_type="unified",model_name="m",tp_rank="0"} 0.25
sglang:num_retracted_requests_total{model_name="m"} 5.0
sglang:prompt_tokens_total{model_name="m"} 8128902.0
sglang:generation_tokens_total{model_name="m"} 7557572.0
sglang:num_requests_total{model_name="m"} 7653.0
sglang:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 10.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 10.0
"""
LLAMACPP = """\
llamacpp:prompt_tokens_total 1200
llamacpp:tokens_predicted_total 640
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
llamacpp:n_decode_total 640
"""
TOKENSPEED = """\
tokenspeed:num_requests_running{model_name="m"} 3
tokenspeed:num_requests_waiting{model_name="m"} 1
tokenspeed:kv_cache_usage_perc{model_name="m"} 0.5
tokenspeed:iteration_tokens_total_count{model_name="m"} 812
tokenspeed:prompt_tokens_total{model_name="m"} 400
tokenspeed:generation_tokens_total{model_name="m"} 99
tokenspeed:prefix_cache_hits_total{model_name="m"} 100
tokenspeed:num_requests_total{model_name="m"} 12
"""
ATOM = """\
atom:num_requests_running{model_name="m"} 3
atom:num_requests_waiting{model_name="m"} 1
atom:kv_cache_usage_perc{model_name="m"} 0.5
atom:generation_tokens_total{model_name="m"} 99
"""


def vllm(at_s: float, **figures: float) -> EnginePage:
    """A look at vLLM."""
    plain = {
        "preempted": 0.0,
        "prompt": 1000.0,
        "output": 500.0,
        "queries": 1000.0,
        "hits": 100.0,
        "stopped": 8.0,
        "fast": 9.0,
        "all": 10.0,
    }
    return read(VLLM.format(**(plain | figures)), NAMES, at_s)


def test_two_looks_make_rates_and_quantiles_of_what_lies_between() -> None:
    """Ten seconds: 12,000 tokens read, 3,000 made; four first tokens, all of them slow."""
    first = vllm(100.0)
    last = vllm(
        110.0,
        prompt=13_000.0,
        output=3_500.0,
        preempted=2.0,
        queries=3_000.0,
        hits=1_100.0,
        all=14.0,
    )
    engine = now([first, last])
    assert engine.sight is Sight.SEEN
    assert (engine.running, engine.waiting, engine.kv_use_ratio) == (44.0, 3.0, 0.61)
    assert (engine.prompt_tokens_per_s, engine.output_tokens_per_s) == (1200.0, 300.0)
    assert (engine.preemptions, engine.preemptions_in_window) == (2.0, 2.0)
    assert engine.prefix_hit_ratio == 0.5
    assert engine.requests == 10.0
    assert engine.window_s == 10.0
    assert engine.ttft is not None
    assert (engine.ttft.basis, engine.ttft.count) == ("window", 4)
    assert engine.ttft.p50_s == pytest.approx(1.5)


HISTOGRAMS = """\
vllm:num_requests_running 1
vllm:e2e_request_latency_seconds_bucket{{le="10.0"}} {fast}
vllm:e2e_request_latency_seconds_bucket{{le="+Inf"}} {fast}
vllm:request_prompt_tokens_bucket{{le="100.0"}} {short}
vllm:request_prompt_tokens_bucket{{le="1000.0"}} {short}
vllm:request_prompt_tokens_bucket{{le="+Inf"}} {all}
vllm:request_generation_tokens_bucket{{le="+Inf"}} 0.0
"""


def test_lengths_are_those_of_requests_that_ended_in_the_window() -> None:
    """Two short prompts and one beyond the last bound since the look before; none without one."""
    first = read(HISTOGRAMS.format(fast=1.0, short=4.0, all=9.0), NAMES, 0.0)
    last = read(HISTOGRAMS.format(fast=3.0, short=6.0, all=12.0), NAMES, 10.0)
    engine = now([first, last])
    assert engine.prompt_lengths == (
        LengthBin(most_tokens=100, requests=2),
        LengthBin(most_tokens=None, requests=1),
    )
    assert engine.output_lengths == ()
    assert engine.e2e is not None
    assert (engine.e2e.basis, engine.e2e.count) == ("window", 2)
    assert now([last]).prompt_lengths == ()


def test_one_look_has_no_rates_and_says_what_its_quantiles_are_of() -> None:
    """Counters since the start are no rate; quantiles are those since the start."""
    engine = now([vllm(100.0)])
    assert (engine.output_tokens_per_s, engine.preemptions_in_window) == (None, None)
    assert engine.window_s is None
    assert engine.ttft is not None
    assert (engine.ttft.basis, engine.ttft.count) == ("since_start", 10)
    idle = now([vllm(100.0), vllm(110.0)])
    assert idle.ttft is not None
    assert (idle.ttft.basis, idle.output_tokens_per_s) == ("since_start", 0.0)


def test_hits_of_the_prefix_cache_are_those_of_the_window_else_of_the_life() -> None:
    """An idle engine has none in the window; one that was never asked has none at all."""
    idle = now([vllm(100.0), vllm(110.0)])
    assert idle.prefix_hit_ratio == 0.1
    assert now([vllm(100.0, queries=0.0, hits=0.0)]).prefix_hit_ratio is None


def test_an_engine_that_began_anew_is_counted_from_there() -> None:
    """A counter that fell: what was before is another life."""
    looks = [vllm(100.0, output=9000.0), vllm(110.0, output=10.0), vllm(120.0, output=110.0)]
    engine = now(looks)
    assert (engine.output_tokens_per_s, engine.window_s) == (10.0, 10.0)
    alone = now(looks[:2])
    assert alone.output_tokens_per_s is None


@pytest.mark.parametrize(
    ("page", "figures"),
    [
        (
            SGLANG,
            {
                "running": 7.0,
                "waiting": 2.0,
                "kv_use_ratio": 0.28,
                "prefix_hit_ratio": 0.25,
                "preemptions": 5.0,
                "generation_tokens": 7_557_572.0,
                "requests": 7653.0,
            },
        ),
        (LLAMACPP, {"running": 2.0, "waiting": 1.0, "generation_tokens": 640.0, "ttft": None}),
        (
            TOKENSPEED,
            {"running": 3.0, "steps": 812.0, "prefix_hit_ratio": 0.25, "requests": 12.0},
        ),
        (ATOM, {"running": 3.0, "waiting": 1.0, "kv_use_ratio": 0.5, "generation_tokens": 99.0}),
    ],
)
def test_every_engine_goes_by_its_own_names(page: str, figures: dict[str, float | None]) -> None:
    """What an engine does not tell stays unknown."""
    engine = now([read(page, NAMES, 0.0)])
    assert {name: getattr(engine, name) for name in figures} == figures


def test_a_page_of_something_else_is_no_engine() -> None:
    """Answered, and nothing on it that is known; no page at all is another thing."""
    assert now([read("go_goroutines 7\n", NAMES, 0.0)]) == EngineNow(sight=Sight.NO_KNOWN_METRICS)
    assert now([]).sight is Sight.NO_METRICS


def test_a_histogram_without_its_last_bucket_is_none() -> None:
    """How many there are would be unknown."""
    page = 'x_bucket{le="1.0"} 4\nx_bucket{le="nonsense"} 4\n'
    assert histogram(page, "x") is None
    assert histogram(page + 'x_bucket{a="{,",le="+Inf"} 5\n', "x") == ((1.0, 4.0), (math.inf, 5.0))


def test_the_last_bucket_gives_its_lower_bound() -> None:
    """As Prometheus does: the true value is above it."""
    assert bucket_quantile(((1.0, 0.0), (2.0, 0.0), (math.inf, 4.0)), 0.5) == 2.0


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any),
    st.floats(0.01, 0.99),
    st.floats(0.01, 0.99),
)
def test_quantiles_rise_with_the_share_and_stay_in_their_bucket(
    counts: list[int], one: float, other: float
) -> None:
    """Between the bounds of the bucket that holds the rank."""
    total, buckets = 0, []
    for bound, count in enumerate(counts, start=1):
        total += count
        buckets.append((float(bound), float(total)))
    buckets.append((math.inf, float(total)))
    low, high = sorted((one, other))
    assert bucket_quantile(tuple(buckets), low) <= bucket_quantile(tuple(buckets), high)
    value = bucket_quantile(tuple(buckets), low)
    holder = next(bound for bound, count in buckets if count >= low * total and count > 0)
    assert holder - 1 <= value <= holder
