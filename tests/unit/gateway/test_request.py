"""Requests: what they may contain, what they cost at most, and the body that goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from heavylift.errors import HeavyliftError
from heavylift.gateway.quota import Bound
from heavylift.gateway.request import IMAGE_TOKENS, ROUTES, TEMPLATE_TOKENS, Asked, Policy, read

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


def asked(body: Any, path: str = CHAT, *, cap: int = 1000, policy: Policy | None = None) -> Asked:
    """The request in a document."""
    raw = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return read(ROUTES[path], raw, max_output_tokens=cap, policy=policy or Policy())


def sent(request: Asked, *, model: str = "m", output_tokens: int | None = None) -> Any:
    """The document that goes to the engine."""
    bound = request.bound
    if output_tokens is not None:
        bound = replace(bound, output_tokens=output_tokens)
    return json.loads(request.body(model, bound))


def part(**fields: Any) -> list[dict[str, Any]]:
    """Messages with one part of content beside a text."""
    return [{"role": "user", "content": [{"type": "text", "text": "look"}, fields]}]


def test_the_bound_is_the_prompt_s_bytes_and_the_stated_length() -> None:
    """A byte-level tokenizer makes no more tokens than bytes; the template gets an allowance."""
    request = asked({"model": "m", "messages": HELLO, "max_tokens": 20})
    prompt = len(json.dumps(HELLO, separators=(",", ":")))
    assert request.bound == Bound(prompt_tokens=prompt + TEMPLATE_TOKENS, output_tokens=20)


@pytest.mark.parametrize("text", ["hello", "größe", "重い", "🏋" * 40, '"\\\n\t\x01'])
def test_the_bound_is_never_less_than_the_utf_8_bytes(text: str) -> None:
    """Whether the client escapes or not."""
    for ascii_only in (True, False):
        body = json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": text}]},
            ensure_ascii=ascii_only,
        )
        assert asked(body.encode()).bound.prompt_tokens >= len(text.encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"\x80"}',
        b'{"model":"m","messages":[{"content":"\xff"}]}',
        b'{"model":"m","user":"\xc3"}',
        b'{"model":"m","stream_options":"\xed\xa0\x80","stream":true}',
    ],
)
def test_what_is_no_utf_8_is_refused(body: bytes) -> None:
    """Wherever it stands: also in fields that are passed on as they are."""
    with pytest.raises(HeavyliftError, match="GW030"):
        asked(body)


def test_tools_are_part_of_the_prompt() -> None:
    """They are rendered into it."""
    plain = asked({"model": "m", "messages": HELLO})
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 500}}]
    assert asked({"model": "m", "messages": HELLO, "tools": tools}).bound.prompt_tokens > (
        plain.bound.prompt_tokens + 500
    )


def test_an_open_length_becomes_the_cap() -> None:
    """It is stated to the engine, so that the bound holds."""
    request = asked({"model": "m", "messages": HELLO}, cap=77)
    assert request.bound.output_tokens == 77
    assert request.bound.elastic
    assert sent(request)["max_tokens"] == 77
    assert sent(request, output_tokens=30)["max_tokens"] == 30


def test_a_stated_length_is_cut_to_the_cap() -> None:
    """Under the name the client used; of two names both."""
    one = asked({"model": "m", "messages": HELLO, "max_completion_tokens": 5000}, cap=100)
    assert not one.bound.elastic
    assert sent(one)["max_completion_tokens"] == 100
    assert "max_tokens" not in sent(one)
    both = asked(
        {"model": "m", "messages": HELLO, "max_completion_tokens": 50, "max_tokens": 5000}, cap=100
    )
    document = sent(both)
    assert (document["max_tokens"], document["max_completion_tokens"]) == (50, 50)


def test_several_answers_cost_several_times() -> None:
    """`n` answers, or a batch of prompts, are reserved together and stated one by one."""
    request = asked({"model": "m", "messages": HELLO, "n": 3, "max_tokens": 10})
    assert request.bound.output_tokens == 30
    assert sent(request)["max_tokens"] == 10
    batch = asked({"model": "m", "prompt": ["a", "b"], "max_tokens": 10}, "/v1/completions")
    assert batch.bound.output_tokens == 20
    tokens = asked({"model": "m", "prompt": [1, 2, 3], "max_tokens": 10}, "/v1/completions")
    assert tokens.bound.output_tokens == 10


def test_a_stream_is_asked_for_its_usage() -> None:
    """The client's other wishes for the stream stay."""
    body = {"model": "m", "messages": HELLO, "stream": True, "stream_options": {"x": 1}}
    request = asked(body)
    assert request.stream
    assert not request.wants_usage
    assert sent(request)["stream_options"] == {"x": 1, "include_usage": True}
    wanting = asked(body | {"stream_options": {"include_usage": True}})
    assert wanting.wants_usage


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_protocols_that_always_state_usage_are_not_asked(path: str) -> None:
    """They do not know the field."""
    body = {"model": "m", "messages": HELLO, "input": "x", "stream": True, "max_tokens": 5}
    assert "stream_options" not in sent(asked(body, path))


def test_what_the_gateway_does_not_change_goes_on_byte_by_byte() -> None:
    """Numbers that no parser would keep, and fields nobody knows."""
    odd = b'{"seed":123456789012345678901234567890,"temperature":1.0E-7,"x_new":{"a" : 1}'
    request = asked(odd + b',"model":"nick","messages":[ {"role":"user","content":"\\u00e9"} ]}')
    body = request.body("m", request.bound)
    assert b"123456789012345678901234567890" in body
    assert b'"temperature":1.0E-7' in body
    assert b'{"a" : 1}' in body
    assert b'[ {"role":"user","content":"\\u00e9"} ]' in body
    assert b'"model":"m"' in body


def test_an_image_costs_what_is_declared_not_its_bytes() -> None:
    """A megabyte of base64 is one image."""
    url = "data:image/png;base64," + "A" * 1_000_000
    request = asked({"model": "m", "messages": part(type="image_url", image_url={"url": url})})
    assert IMAGE_TOKENS < request.bound.prompt_tokens < IMAGE_TOKENS + 500
    cheap = asked(
        {"model": "m", "messages": part(type="image_url", image_url={"url": url})},
        policy=Policy(image_tokens=10),
    )
    assert cheap.bound.prompt_tokens == request.bound.prompt_tokens - IMAGE_TOKENS + 10


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (CHAT, {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}}),
        (CHAT, {"type": "image_url", "image_url": "https://example.org/a.png"}),
        (CHAT, {"type": "video_url", "video_url": {"url": "file:///etc/passwd"}}),
        (CHAT, {"type": "audio_url", "audio_url": {"url": "//example.org/a"}}),
        (CHAT, {"type": "image", "image": "https://example.org/a.png"}),
        (CHAT, {"type": "image_url", "image_url": {"url": "/etc/passwd.png"}}),
        ("/v1/messages", {"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/"}}),
    ],
)
def test_an_engine_is_not_made_to_fetch(path: str, content: dict[str, Any]) -> None:
    """No protocol's way of naming a place gets through."""
    with pytest.raises(HeavyliftError, match="GW032"):
        asked({"model": "m", "messages": part(**content)}, path)


def test_an_escaped_name_hides_no_url() -> None:
    """JSON can spell a field name in escapes."""
    hidden = (
        rb'{"model":"m","messages":[{"role":"user","content":[{"type":"image\u005fu\u0072l",'
        rb'"image\u005fu\u0072l":{"\u0075\u0072\u006c":"http://10.0.0.1/"}}]}]}'
    )
    with pytest.raises(HeavyliftError, match="GW032"):
        asked(hidden)


def test_a_response_s_tools_name_no_server() -> None:
    """A tool server's address is a place to fetch from as well."""
    tools = [{"type": "mcp", "server_url": "http://10.0.0.1/"}]
    with pytest.raises(HeavyliftError, match="GW032"):
        asked({"model": "m", "input": "x", "tools": tools}, "/v1/responses")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://pics.example.org/a.png", True),
        ("https://PICS.example.org:8443/a.png", True),
        ("https://pics.example.org.evil.org/a.png", False),
        ("https://pics.example.org@evil.org/a.png", False),
        ("https://evil.org/?https://pics.example.org/", False),
        ("https://pics.example.org\\@evil.org/", False),
        ("ftp://pics.example.org/a.png", False),
    ],
)
def test_allowed_hosts_are_allowed_exactly(url: str, allowed: bool) -> None:
    """No trick of spelling turns another host into one of them."""
    policy = Policy(fetch_hosts=frozenset({"pics.example.org"}))
    body = {"model": "m", "messages": part(type="image_url", image_url={"url": url})}
    if allowed:
        assert asked(body, policy=policy).bound.prompt_tokens > IMAGE_TOKENS
    else:
        with pytest.raises(HeavyliftError, match="GW032"):
            asked(body, policy=policy)


def test_talk_about_urls_is_only_talk() -> None:
    """A text may contain what a field may not."""
    messages = [{"role": "user", "content": "see http://10.0.0.1/image_url?file=\\u0041"}]
    assert asked({"model": "m", "messages": messages}).bound.prompt_tokens > 0


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 2**40}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stream": True, "stream_options": [1]}, "stream_options"),
    ],
)
def test_a_field_that_decides_the_cost_has_to_be_clear(fields: dict[str, Any], name: str) -> None:
    """What the gateway cannot read it does not pass on."""
    with pytest.raises(HeavyliftError, match="GW031") as raised:
        asked({"model": "m", "messages": HELLO} | fields)
    assert raised.value.params["field"] == name


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"{", b'{"model":"m"', b"\xff\xfe", b'{"a":1}}']
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    """With the place where it stops being one."""
    with pytest.raises(HeavyliftError, match="GW030"):
        asked(body)


def test_counting_tokens_costs_nothing() -> None:
    """Nothing is generated and nothing computed on a GPU."""
    request = asked({"model": "m", "prompt": "hello"}, "/tokenize")
    assert request.bound.tokens == 0
    assert "max_tokens" not in sent(request)


def test_embeddings_cost_their_prompt() -> None:
    """There is no answer to reserve for."""
    request = asked({"model": "m", "input": ["a", "b"], "stream": True}, "/v1/embeddings")
    assert (request.bound.output_tokens, request.stream) == (0, False)
    assert request.bound.prompt_tokens > 0
