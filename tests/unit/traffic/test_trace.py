"""Traces of each published form, read by one reader, and the units of their times."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.traffic.trace import Arrival, block_tokens, read_arrivals

SIZE = st.integers(1, 10**6)
TIMES = st.lists(st.integers(0, 10**9), min_size=1, max_size=20)


def read(text: str) -> list[Arrival]:
    """All arrivals."""
    return list(read_arrivals(text.splitlines(keepends=True), "trace"))


def figures(found: list[Arrival]) -> list[tuple[float | None, int | None, int | None]]:
    """Times and sizes."""
    return [(each.at_s, each.input_tokens, each.output_tokens) for each in found]


@given(TIMES, SIZE, SIZE)
def test_mooncake_counts_milliseconds(times: list[int], given_tokens: int, made: int) -> None:
    """Whole or not; names of blocks are kept as they are."""
    rows = [
        {"timestamp": at, "input_length": given_tokens, "output_length": made, "hash_ids": [at, 7]}
        for at in times
    ]
    found = read("".join(json.dumps(row) + "\n" for row in rows))
    assert figures(found) == [(at / 1000, given_tokens, made) for at in times]
    assert [each.blocks for each in found] == [(at, 7) for at in times]


@given(TIMES, SIZE, SIZE)
def test_burstgpt_counts_seconds_whole_as_they_are(
    times: list[int], given_tokens: int, made: int
) -> None:
    """Its column is called like Mooncake's and holds whole numbers too; the unit is another."""
    head = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens\n"
    rows = "".join(f"{at},,1,ChatGPT,{given_tokens},{made},1\r\n" for at in times)
    assert figures(read(head + rows)) == [(float(at), given_tokens, made) for at in times]


@given(st.datetimes(datetime(2023, 1, 1), datetime(2026, 1, 1)), SIZE, SIZE)  # noqa: DTZ001
def test_azure_gives_dates_with_seven_digits_of_a_second(
    at: datetime, given_tokens: int, made: int
) -> None:
    """Without a zone they are UTC, with one they are of it: summer time moves no request."""
    whole = at.replace(tzinfo=UTC).timestamp()
    for zone, later in (("", 0), ("+00:00", 0), ("Z", 0), ("+02:00", 7200)):
        said = f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond:06}0{zone}"
        text = f"TIMESTAMP,ContextTokens,GeneratedTokens\n{said},{given_tokens},{made}\n"
        (found,) = read(text)
        assert found.at_s == pytest.approx(whole - later, abs=1e-5)
        assert (found.input_tokens, found.output_tokens) == (given_tokens, made)


@given(TIMES, SIZE, SIZE)
def test_servegen_says_the_same_in_both_of_its_forms(
    times: list[int], given_tokens: int, made: int
) -> None:
    """As CSV, and as JSON with the sizes apart."""
    table = "request_id,timestamp,input_tokens,output_tokens\n" + "".join(
        f"0,{at / 8},{given_tokens},{made}\n" for at in times
    )
    lines = "".join(
        json.dumps(
            {"timestamp": at / 8, "data": {"input_tokens": given_tokens, "output_tokens": made}}
        )
        + "\n"
        for at in times
    )
    assert figures(read(table)) == figures(read(lines))
    assert read(table)[0].at_s == times[0] / 8


@given(st.lists(st.text(st.characters(codec="utf-8")).filter(str.strip), min_size=1))
def test_a_conversation_keeps_what_the_user_said(turns: list[str]) -> None:
    """In both usual forms, a line each or all in one list."""
    old = {"conversations": [{"from": "human", "value": turn} for turn in turns]}
    new = {"messages": [{"role": "user", "content": turn} for turn in turns]}
    assert [each.turns for each in read(json.dumps([old, new]))] == [tuple(turns)] * 2
    assert read(json.dumps(old))[0].turns == tuple(turns)


@given(st.text())
def test_no_text_is_read_without_requests_or_an_error_with_a_code(text: str) -> None:
    """Whatever it holds."""
    try:
        assert read(text)
    except HeavyliftError as error:
        assert error.code in {"USE061", "USE071"}  # noqa: PT017 - either end is right


def test_milliseconds_since_1970_are_told_from_seconds() -> None:
    """No trace has seconds of the year 5138."""
    head = "timestamp,prompt_tokens,completion_tokens\n"
    first, second = read(f"{head}1700000000000,5,5\n1700000001500,5,5\n")
    assert first.at_s is not None
    assert second.at_s is not None
    assert second.at_s - first.at_s == pytest.approx(1.5)


def test_lines_are_counted_with_empty_ones_and_quoted_breaks() -> None:
    """So that an error names the line an editor shows."""
    text = '\n\ntimestamp,note,input_tokens,output_tokens\n0,"a\nb",5,5\n\n1,x,oops,5\n'
    with pytest.raises(HeavyliftError) as caught:
        read(text)
    assert (caught.value.code, caught.value.params["line"]) == ("USE061", 7)


@pytest.mark.parametrize("at", ["nan", "inf", "yesterday", "2023-13-01 00:00:00"])
def test_a_time_that_is_none_is_refused(at: str) -> None:
    """Not taken as 0."""
    with pytest.raises(HeavyliftError, match="USE061"):
        read(f"timestamp,input_tokens,output_tokens\n{at},5,5\n")


@given(SIZE, st.integers(1, 5000))
def test_blocks_hold_the_prompt(tokens: int, names: int) -> None:
    """And half of one would not."""
    block = block_tokens(tokens, names)
    assert block * names >= tokens
    assert block == 1 or block // 2 * names < tokens
