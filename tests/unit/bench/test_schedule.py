"""Arrivals: their times, and traces as they are published."""

from __future__ import annotations

import random
from itertools import islice, pairwise

import pytest

from heavylift.bench.records import Load, LoadKind
from heavylift.bench.schedule import schedule, times
from heavylift.errors import HeavyliftError
from heavylift.stats import mean
from heavylift.traffic.trace import Arrival, read_arrivals

MOONCAKE = """
{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 2353]}
"""
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
SHAREGPT = (
    '{"id": "a", "conversations": [{"from": "human", "value": "Hello"},'
    ' {"from": "gpt", "value": "Hi"}, {"from": "human", "value": "And now?"}]}\n'
)


def parse_trace(text: str, path: str) -> tuple[Arrival, ...]:
    """All arrivals, in order."""
    return schedule(read_arrivals(text.splitlines(), path), path)


def test_poisson_arrivals_have_the_rate_and_the_spread_of_their_law() -> None:
    """20,000 gaps at 50 a second: mean 20 ms, standard deviation the same, seeded."""
    load = Load(kind=LoadKind.POISSON, requests=1, rate_per_s=50.0)
    first = list(islice(times(load, random.Random(1).random), 20_001))
    gaps = [later - earlier for earlier, later in pairwise(first)]
    assert mean(gaps) == pytest.approx(0.02, rel=0.03)
    variance = mean([(gap - 0.02) ** 2 for gap in gaps])
    assert variance**0.5 == pytest.approx(0.02, rel=0.05)
    again = list(islice(times(load, random.Random(1).random), 20_001))
    assert first == again


def test_constant_arrivals_are_equally_spaced() -> None:
    """At 4 a second: every 250 ms from 0."""
    load = Load(kind=LoadKind.CONSTANT, requests=1, rate_per_s=4.0)
    assert list(islice(times(load, lambda: 0.5), 4)) == [0, 0.25, 0.5, 0.75]
    with pytest.raises(ValueError, match="rate_per_s=None"):
        next(times(Load(kind=LoadKind.POISSON, requests=1), lambda: 0.5))


def test_a_trace_with_whole_timestamps_counts_milliseconds() -> None:
    """Times from the first row; lengths and names of shared blocks kept."""
    first, second = parse_trace(MOONCAKE, "trace.jsonl")
    assert first.at_s == 0.0
    assert second.at_s == pytest.approx(3.053)
    assert (first.input_tokens, first.output_tokens, first.blocks) == (6955, 52, (46, 47))


def test_a_trace_with_dates_and_other_names_is_read() -> None:
    """CSV with a header, seven digits of a second."""
    first, second = parse_trace(AZURE, "trace.csv")
    assert first.at_s == 0.0
    assert second.at_s == pytest.approx(4.314579, abs=1e-5)
    assert (second.input_tokens, second.output_tokens) == (396, 109)


def test_conversations_keep_the_users_turns() -> None:
    """What the model said then is not what it will say now."""
    (arrival,) = parse_trace(SHAREGPT, "chats.jsonl")
    assert arrival.turns == ("Hello", "And now?")


def test_a_list_of_conversations_is_read_like_lines_of_them() -> None:
    """As ShareGPT's own file is."""
    listed = parse_trace(f"[{SHAREGPT.strip()}]", "chats.json")
    assert listed == parse_trace(SHAREGPT, "chats.jsonl")
    with pytest.raises(HeavyliftError, match="USE061"):
        parse_trace("[1, 2]", "chats.json")


@pytest.mark.parametrize(
    ("text", "line"),
    [("{}", 1), ('{"timestamp": 1, "input_length": 5}\n{broken', 2), ("a,b\n1,2\n", 2)],
)
def test_a_row_that_is_no_request_is_named_by_its_line(text: str, line: int) -> None:
    """Nothing to send, or not to be read."""
    with pytest.raises(HeavyliftError, match=r"USE061|USE076") as caught:
        parse_trace(text, "trace")
    assert caught.value.params["line"] == line


def test_a_trace_without_requests_is_refused() -> None:
    """USE071: there is no line to name."""
    with pytest.raises(HeavyliftError, match="USE071"):
        parse_trace("", "trace")
