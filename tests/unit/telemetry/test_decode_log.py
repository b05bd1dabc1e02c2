"""What lines of an engine about its speed say of decoding."""

from __future__ import annotations

import pytest

from heavylift.facts.catalog import Catalog
from heavylift.records.speed import AnchorPoint
from heavylift.telemetry.decode_log import decode_points

VLLM = (
    "(APIServer pid=7) INFO 11-30 13:00:10 [loggers.py:259] Engine 000: "
    "Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: {rate} tokens/s, "
    "Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {usage}%, "
    "Prefix cache hit rate: 0.0%"
)
SGLANG = (
    "[2026-11-30 13:00:10 TP0] Decode batch. #running-req: 4, #token: {tokens}, "
    "token usage: 0.01, cuda graph: True, gen throughput (token/s): {rate}, #queue-req: {queue}"
)


def vllm(
    *, prompt: float = 0.0, rate: float, running: int = 8, waiting: int = 0, usage: float = 10.0
) -> str:
    """A line of vLLM."""
    return VLLM.format(prompt=prompt, rate=rate, running=running, waiting=waiting, usage=usage)


def points(*lines: str, engine: str = "vllm") -> tuple[AnchorPoint, ...]:
    """What is read of lines, with a pool of 100,000 tokens."""
    return decode_points(lines, Catalog().engine_logs(), engine, kv_tokens=100_000)


def test_steady_decoding_is_a_point() -> None:
    """8 sequences at 320 tokens/s: 25 ms a token; 10 % of the pool over 8: 1,250 tokens each."""
    (point,) = points(*(vllm(rate=320.0) for _ in range(3)))
    assert point == AnchorPoint(
        concurrency=8, input_tokens=1250, output_tokens=1, cached_ratio=1.0, tpot_s=0.025
    )


def test_lines_in_which_a_run_began_or_ended_do_not_count() -> None:
    """Their averages are of more than what ran when they were written."""
    (point,) = points(vllm(rate=9.0), vllm(rate=320.0), vllm(rate=400.0), vllm(rate=7.0))
    assert point.tpot_s == pytest.approx((8 / 320 + 8 / 400) / 2)


@pytest.mark.parametrize(
    "disturbed",
    [
        vllm(rate=320.0, prompt=50.0),
        vllm(rate=320.0, waiting=1),
        vllm(rate=320.0, running=7),
        vllm(rate=0.0),
        vllm(rate=0.0, running=0),
    ],
)
def test_what_is_disturbed_is_no_point(disturbed: str) -> None:
    """Prompts between the steps, a queue, or another number of sequences."""
    assert points(vllm(rate=320.0), disturbed, vllm(rate=320.0), vllm(rate=320.0)) == ()


def test_each_batch_has_its_own_point() -> None:
    """In the order of their sizes."""
    lines = [vllm(rate=320.0)] * 3 + [vllm(rate=100.0, running=1)] * 3
    assert [(p.concurrency, p.tpot_s) for p in points(*lines)] == [(1, 0.01), (8, 0.025)]


def test_sglang_tells_the_tokens_it_holds() -> None:
    """9,071 tokens in 4 sequences."""
    lines = [SGLANG.format(tokens=9071, rate=200.0, queue=0)] * 3
    (point,) = points(*lines, engine="sglang")
    assert (point.concurrency, point.input_tokens, point.tpot_s) == (4, 2268, 0.02)
    assert points(*(SGLANG.format(tokens=9, rate=2.0, queue=3),) * 3, engine="sglang") == ()


def test_without_a_pool_a_share_says_nothing() -> None:
    """And an engine whose words are not known says nothing at all."""
    lines, book = [vllm(rate=320.0)] * 3, Catalog().engine_logs()
    assert decode_points(lines, book, "vllm", kv_tokens=None) == ()
    assert decode_points(lines, book, "nobody", kv_tokens=1.0) == ()
