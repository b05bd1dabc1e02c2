"""Server-sent events: what the specification says about lines, fields and dispatch."""

from __future__ import annotations

import pytest

from heavylift.errors import HeavyliftError
from heavylift.wire.sse import Event, Parser


def parsed(*chunks: bytes) -> list[Event]:
    """The events of these chunks."""
    parser = Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_a_blank_line_ends_an_event() -> None:
    """Each `data` line ended by a blank line is an event of the default name."""
    assert parsed(b"data: one\n\ndata: two\n\n") == [Event(b"one"), Event(b"two")]


def test_several_data_lines_join_with_a_newline() -> None:
    """The WHATWG example of YHOO, +2, 10 is one event of three lines."""
    assert parsed(b"data: YHOO\ndata: +2\ndata: 10\n\n") == [Event(b"YHOO\n+2\n10")]


def test_only_one_leading_space_is_taken_away() -> None:
    """`data:x` and `data: x` are equal; a second space belongs to the data."""
    assert parsed(b"data:x\n\ndata: x\n\ndata:  x\n\n") == [Event(b"x"), Event(b"x"), Event(b" x")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_three_line_ends_are_known(end: bytes) -> None:
    """LF, CRLF and CR end a line."""
    assert parsed(b"event: ping" + end + b"data: x" + end + end) == [Event(b"x", "ping")]


def test_a_cr_ends_its_line_before_the_lf_arrives() -> None:
    """An event is not held back until the byte after its CR is known."""
    parser = Parser()
    assert list(parser.feed(b"data: x\r\r")) == [Event(b"x")]
    assert list(parser.feed(b"\ndata: y\n\n")) == [Event(b"y")]


def test_comments_and_keep_alives_are_no_events() -> None:
    """Lines that begin with a colon are ignored, as are events without data."""
    assert parsed(b": keep-alive\n\n:\n\nevent: lonely\n\ndata: x\n\n") == [Event(b"x")]


def test_the_name_belongs_to_one_event_only() -> None:
    """The event name is forgotten after its event, even when that had no data."""
    assert parsed(b"event: a\n\ndata: x\n\nevent: b\ndata: y\n\ndata: z\n\n") == [
        Event(b"x"),
        Event(b"y", "b"),
        Event(b"z"),
    ]


def test_unknown_fields_and_ids_are_ignored() -> None:
    """`id`, `retry` and inventions do not disturb the event."""
    assert parsed(b"id: 7\nretry: 10\ndata: x\nfoo\n\n") == [Event(b"x")]


def test_data_without_a_colon_is_an_empty_line() -> None:
    """The field name alone counts as an empty value: two of them give one newline."""
    assert parsed(b"data\ndata\n\n") == [Event(b"\n")]


def test_a_byte_order_mark_is_taken_away_once() -> None:
    """A BOM before the first line is no part of it, also when it arrives in pieces."""
    assert parsed(b"\xef", b"\xbb\xbfda", b"ta: x\n\n") == [Event(b"x")]


def test_bytes_that_are_not_utf8_reach_the_decoder() -> None:
    """Data is not changed on its way: the JSON decoder must see what was sent."""
    assert parsed(b"data: \xff\xfe\n\n") == [Event(b"\xff\xfe")]


@pytest.mark.parametrize(
    ("stream", "pending"),
    [
        (b"", False),
        (b"data: x\n", True),
        (b"data: x\n\n", False),
        (b"data: x\n\nda", True),
        (b": ping\n", False),
    ],
)
def test_an_unfinished_event_is_pending(stream: bytes, *, pending: bool) -> None:
    """The end of the bytes inside an event, or inside a line, can be told from a good end."""
    parser = Parser()
    list(parser.feed(stream))
    list(parser.feed(b""))
    assert parser.pending is pending


def test_an_event_over_the_limit_is_an_error_after_the_good_ones() -> None:
    """WIRE001 names the limit, and the events before the large one are not lost."""
    parser = Parser(limit_bytes=16)
    events = parser.feed(b"data: small\n\ndata: 12345678\ndata: 12345678\n\n")
    assert next(events) == Event(b"small")
    with pytest.raises(HeavyliftError) as caught:
        next(events)
    assert caught.value.code == "WIRE001"
    assert caught.value.params == {"limit_bytes": 16}


def test_keep_alives_for_ever_are_no_large_event() -> None:
    """Comments do not add up to the limit."""
    parser = Parser(limit_bytes=16)
    for _ in range(100):
        assert list(parser.feed(b": ping\n")) == []
