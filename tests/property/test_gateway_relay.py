"""The relay does not depend on how the bytes are cut, and never lets half an event out."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.gateway.relay import Relay
from heavylift.gateway.request import ROUTES, Dialect, Policy, read
from heavylift.wire.failures import Failure

EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"caf\xc3\xa9"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"\\"error\\""},"usage":null}]}\n\n',
    b": comment\n\n",
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n',
    b'data: {"error":{"message":"no"}}\n\n',
    b"data: [DONE]\n\n",
)


@settings(deadline=None)
@given(
    events=st.lists(st.sampled_from(EVENTS), max_size=20),
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=60),
    wants_usage=st.booleans(),
)
def test_cuts_change_nothing(events: list[bytes], cuts: list[int], wants_usage: bool) -> None:
    """Any chunking gives the same bytes, the same count and the same verdict as none."""
    stream = b"".join(events)
    whole = Relay(Dialect.CHAT, wants_usage=wants_usage)
    expected = b"".join(whole.feed(event) for event in events)
    pieces = Relay(Dialect.CHAT, wants_usage=wants_usage)
    out, at, turn = b"", 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        part = pieces.feed(stream[at : at + size])
        assert part == b"" or part.endswith(b"\n\n")
        out += part
        at, turn = at + size, turn + 1
    assert out == expected
    assert (pieces.usage, pieces.failure()) == (whole.usage, whole.failure())
    assert pieces.tokens >= 0


@settings(deadline=None)
@given(events=st.lists(st.sampled_from(EVENTS), max_size=20))
def test_done_is_the_seal_of_a_good_stream(events: list[bytes]) -> None:
    """`[DONE]` passes only when a reason was given before it and no error was."""
    reading = Relay(Dialect.CHAT, wants_usage=True)
    for event in events:
        before = reading.finished and not reading.failed
        out = reading.feed(event)
        assert (out == event) is (b"[DONE]" not in event or before)


@settings(deadline=None)
@given(data=st.binary(max_size=400))
def test_any_bytes_give_events_or_a_verdict(data: bytes) -> None:
    """Nothing an engine sends makes the relay itself fail."""
    for dialect in (Dialect.CHAT, Dialect.COMPLETIONS, Dialect.MESSAGES, Dialect.RESPONSES):
        reading = Relay(dialect, wants_usage=False)
        for at in range(0, len(data), 7):
            reading.feed(data[at : at + 7])
        assert reading.failure() in (None, *Failure)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.text('aé🏋"\\:/.', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["url", "type", "text", "content", "role", "data", "image_url"]), inner
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    fields=st.dictionaries(
        st.sampled_from(
            ["model", "messages", "prompt", "input", "stream", "n", "max_tokens", "stream_options"]
        ),
        json_values,
    ),
    path=st.sampled_from(sorted(ROUTES)),
    junk=st.binary(max_size=20),
)
def test_any_body_is_read_or_refused(fields: dict[str, object], path: str, junk: bytes) -> None:
    """A request is a bounded one or a known refusal; never an exception of another kind."""
    for body in (json.dumps(fields).encode(), junk, json.dumps(fields).encode() + junk):
        try:
            asked = read(ROUTES[path], body, max_output_tokens=100, policy=Policy())
        except HeavyliftError as error:
            if error.code not in ("GW030", "GW031", "GW032"):
                raise
            continue
        assert asked.bound.prompt_tokens >= 0
        assert 0 <= asked.bound.output_tokens <= 100 * 128
        assert json.loads(asked.body("m", asked.bound))["model"] == "m"
