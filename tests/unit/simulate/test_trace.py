"""Recorded traffic of each published format, and what is said of broken lines."""

from __future__ import annotations

import itertools

import pytest

from heavylift.errors import HeavyliftError
from heavylift.simulate.request import Request
from heavylift.simulate.trace import Replay, figures_of, requests_of
from heavylift.traffic.trace import read_arrivals

MOONCAKE = """\
{"timestamp": 0, "input_length": 1200, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 3000, "input_length": 1500, "output_length": 490, "hash_ids": [0, 1, 5]}
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:06.9799600,3180,8
"""
BURSTGPT = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,,,ChatGPT,472,18,490,Conversation log
7,,,GPT-4,417,0,417,API log
8,,,GPT-4,360,30,390,API log
"""
SERVEGEN = """\
{"request_id": 0, "timestamp": 10.5, "data": {"input_tokens": 472, "output_tokens": 18}}
{"request_id": 1, "timestamp": 13.5, "data": {"input_tokens": 360, "output_tokens": 30}}
"""
SERVEGEN_CSV = "request_id,timestamp,input_tokens,output_tokens\n0,10.5,472,18\n1,13.5,360,30\n"


def read(text: str) -> list[Request]:
    """All requests."""
    return list(requests_of(read_arrivals(text.splitlines(), "trace"), "trace"))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (MOONCAKE, [(1200, 500), (1500, 490)]),
        (AZURE, [(4808, 10), (3180, 8)]),
        (BURSTGPT, [(472, 18), (360, 30)]),
        (SERVEGEN, [(472, 18), (360, 30)]),
        (SERVEGEN_CSV, [(472, 18), (360, 30)]),
    ],
    ids=["mooncake", "azure", "burstgpt", "servegen", "servegen-csv"],
)
def test_every_format_is_read(text: str, sizes: list[tuple[int, int]]) -> None:
    """Sizes are those of the file; the second comes three seconds after the first."""
    found = read(text)
    assert [(r.input_tokens, r.output_tokens) for r in found] == sizes
    assert [r.arrival_s for r in found] == pytest.approx([0.0, 3.0], abs=1e-3)


def test_names_of_blocks_are_kept_with_their_size() -> None:
    """1,200 tokens in three blocks are blocks of 512; the last one is not whole and not shared."""
    first, second = read(MOONCAKE)
    assert first.segments == ((0, 512), (1, 512))
    assert second.segments == ((0, 512), (1, 512))


def test_a_line_out_of_order_counts_with_the_one_before() -> None:
    """Time does not run backwards."""
    found = read("timestamp,input_tokens,output_tokens\n5,1,1\n9,1,1\n7,1,1\n")
    assert [r.arrival_s for r in found] == [0, 4, 4]


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("", "USE071", None),
        ("a,b,c\n1,2,3\n", "USE090", None),
        ('{"timestamp": 0, "input_length": 5}\n', "USE090", None),
        (MOONCAKE + "{oops\n", "USE061", 3),
        (AZURE + "2023-11-16 18:17:07,x,8\n", "USE061", 4),
        (AZURE + "2023-11-16 18:17:07\n", "USE061", 4),
        (MOONCAKE.splitlines()[0] + "\n" + '{"timestamp": 1}\n', "USE061", 2),
        ("timestamp,input_tokens,output_tokens\n", "USE071", None),
        ('{"messages": [{"role": "user", "content": "Hello"}]}\n', "USE076", 1),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text: str, code: str, line: int | None) -> None:
    """No line is skipped in silence."""
    with pytest.raises(HeavyliftError) as caught:
        read(text)
    assert caught.value.code == code
    assert caught.value.params.get("line") == line


def test_a_replay_is_faster_goes_on_and_shares_nothing_with_itself() -> None:
    """Twice as fast; the second time round has other names."""
    figures = figures_of(read(MOONCAKE))
    assert figures.rate_per_s == pytest.approx(1 / 3)
    replay = Replay(lambda: read(MOONCAKE), figures, 2.0)
    four = list(itertools.islice(replay.arrivals(), 4))
    assert [r.arrival_s for r in four] == pytest.approx([0, 1.5, 3.0, 4.5])
    assert four[2].segments[0] != four[0].segments[0]
    assert replay.follow(four[0], 9.0) is None
