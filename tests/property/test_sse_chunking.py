"""The rule of the SSE parser: how the bytes are cut makes no difference."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.wire.sse import Event, Parser

_LINES = st.one_of(
    st.sampled_from(
        ["", "", "data", "data:", ":", ": ping", "event: message_stop", "id: 1", "data: [DONE]"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20).map(
        lambda text: f"data: {text}"
    ),
)
_STREAMS = st.lists(st.tuples(_LINES, st.sampled_from(["\n", "\r\n", "\r"])), max_size=20).map(
    lambda lines: "".join(line + end for line, end in lines).encode()
)


def _run(chunks: list[bytes], limit_bytes: int) -> tuple[list[Event], bool, str | None]:
    parser = Parser(limit_bytes=limit_bytes)
    events: list[Event] = []
    try:
        for chunk in chunks:
            for event in parser.feed(chunk):
                events.append(event)  # noqa: PERF402 - events before an error count too
    except HeavyliftError as error:
        return events, True, error.code
    return events, parser.pending, None


@given(_STREAMS, st.data(), st.sampled_from([8, 24, 2**20]))
def test_any_split_gives_the_same_events(stream: bytes, data: st.DataObject, limit: int) -> None:
    """Events, the state at the end and the size error are the same for every cutting."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    places = [0, *cuts, len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(places)]
    single = [stream[place : place + 1] for place in range(len(stream))]
    assert _run(chunks, limit) == _run([stream], limit) == _run(single, limit)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))))
def test_what_was_framed_comes_back(texts: list[str]) -> None:
    """Any text framed as one data line is the data of one event."""
    stream = b"".join(b"data: %b\n\n" % text.encode() for text in texts)
    assert [event.data.decode() for event in Parser().feed(stream)] == texts
