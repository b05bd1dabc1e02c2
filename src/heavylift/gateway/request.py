"""Requests of clients: what they ask for, what it can cost at most, and the body that goes on.

A body is taken apart only at its top: parts that the gateway does not change go on byte by byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.gateway.quota import Bound

TEMPLATE_TOKENS: Final = 64
"""Tokens allowed for what a chat template adds by itself, a default system prompt above all."""
IMAGE_TOKENS: Final = 4096
"""The most that one image, sound or file is taken to cost where nothing else is declared."""
_MAX_ANSWERS: Final = 128


class Style(StrEnum):
    """Whose protocol a route speaks: decides the shape of errors."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class Dialect(StrEnum):
    """How a reply, streamed or whole, is read."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    MESSAGES = "messages"
    RESPONSES = "responses"
    PLAIN = "plain"
    """Never streamed; usage in the OpenAI shape, if any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """A route that is passed through.

    `prompts` are the fields that hold what the model reads, `caps` those that may state the
    length of the answer: the first is the one the gateway states itself. Without `caps` nothing is
    generated. `stateless` is false where the server keeps something of the request.
    """

    path: str
    dialect: Dialect
    prompts: tuple[str, ...]
    caps: tuple[str, ...] = ()
    style: Style = Style.OPENAI
    states_usage: bool = False
    stateless: bool = True
    free: bool = False


_CHAT_FIELDS: Final = ("messages", "tools", "functions", "response_format", "documents")

ROUTES: Final[Mapping[str, Route]] = {
    route.path: route
    for route in (
        Route(
            path="/v1/chat/completions",
            dialect=Dialect.CHAT,
            prompts=(*_CHAT_FIELDS, "chat_template_kwargs"),
            caps=("max_tokens", "max_completion_tokens"),
            states_usage=True,
        ),
        Route(
            path="/v1/completions",
            dialect=Dialect.COMPLETIONS,
            prompts=("prompt", "suffix"),
            caps=("max_tokens",),
            states_usage=True,
        ),
        Route(path="/v1/embeddings", dialect=Dialect.PLAIN, prompts=("input", "messages")),
        Route(
            path="/v1/responses",
            dialect=Dialect.RESPONSES,
            prompts=("input", "instructions", "tools", "text", "prompt"),
            caps=("max_output_tokens",),
            stateless=False,
        ),
        Route(
            path="/v1/messages",
            dialect=Dialect.MESSAGES,
            prompts=("messages", "system", "tools"),
            caps=("max_tokens",),
            style=Style.ANTHROPIC,
        ),
        Route(
            path="/v1/messages/count_tokens",
            dialect=Dialect.PLAIN,
            prompts=("messages", "system", "tools"),
            style=Style.ANTHROPIC,
            free=True,
        ),
        Route(path="/tokenize", dialect=Dialect.PLAIN, prompts=("prompt", "messages"), free=True),
        Route(path="/detokenize", dialect=Dialect.PLAIN, prompts=("tokens",), free=True),
    )
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What requests may contain. `image_tokens` is the declared cost of one attachment.

    `fetch_hosts` are the hosts an engine may be told to fetch from; none by default, because a
    URL in a prompt makes the engine open it from inside the network.
    """

    image_tokens: int = IMAGE_TOKENS
    fetch_hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request that was read. `prefix` is the beginning of the prompt, for routing."""

    route: Route
    model: str
    stream: bool
    wants_usage: bool
    bound: Bound
    prefix: bytes
    fields: dict[str, msgspec.Raw]

    def body(self, model: str, bound: Bound) -> bytes:
        """The body for an engine that calls the model `model`: the length of the answer is stated
        and, in a stream, so is the wish for usage.
        """
        fields = dict(self.fields)
        fields["model"] = _raw(model)
        if self.route.caps:
            each = msgspec.Raw(b"%d" % (bound.output_tokens // _answers(self.fields)))
            named = [name for name in self.route.caps if name in fields]
            for name in named or self.route.caps[:1]:
                fields[name] = each
        if self.stream and self.route.states_usage and not self.wants_usage:
            options = _object(fields.get("stream_options"), "stream_options")
            fields["stream_options"] = _raw(options | {"include_usage": True})
        return msgspec.json.encode(fields)


_PREFIX_BYTES: Final = 2048
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_URL_KEY: Final = re.compile(
    r"url$|^(image|video|audio|input_audio|file|file_data)$", re.IGNORECASE
)
_HOST: Final = re.compile(r"https?://([^/@:?#\\\s]+)(:\d{1,5})?(?:[/?#]|$)", re.IGNORECASE)


def read(route: Route, body: bytes, *, max_output_tokens: int, policy: Policy) -> Asked:
    """The request in a body. `max_output_tokens` is the key's cap on an answer.

    Raises GW030 when it is not JSON of the expected shape, GW031 with the field that cannot be,
    GW032 with a URL that would be fetched.
    """
    try:
        # Fields are not looked into by the decoder, and an engine takes no other encoding.
        if not body.isascii():
            body.decode()
        fields = _FIELDS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise HeavyliftError("GW030", {"detail": str(problem)}) from problem
    model = _value(fields, "model")
    if not isinstance(model, str) or not model:
        raise _wrong("model")
    stream = _flag(fields, "stream") and bool(route.caps)
    options = _object(fields.get("stream_options"), "stream_options") if stream else {}
    return Asked(
        route=route,
        model=model,
        stream=stream,
        wants_usage=options.get("include_usage") is True,
        bound=_bound(route, fields, max_output_tokens, policy),
        prefix=_prefix(route, fields),
        fields=fields,
    )


def _bound(route: Route, fields: Mapping[str, msgspec.Raw], cap: int, policy: Policy) -> Bound:
    prompt = _prompt_tokens(route, fields, policy)
    if route.free:
        return Bound(prompt_tokens=0, output_tokens=0)
    if not route.caps:
        return Bound(prompt_tokens=prompt, output_tokens=0)
    stated = [value for name in route.caps if (value := _count(fields, name, least=0)) is not None]
    answers = _answers(fields)
    each = min([cap, *stated])
    # A batch of prompts in one request: each is answered.
    return Bound(
        prompt_tokens=prompt, output_tokens=each * answers, elastic=not stated and answers == 1
    )


def _answers(fields: Mapping[str, msgspec.Raw]) -> int:
    """How many answers are generated for one request."""
    several = [_count(fields, name, least=1) or 1 for name in ("n", "best_of")]
    prompt = _value(fields, "prompt") if "prompt" in fields else None
    # A list of numbers is one prompt in tokens; any other list is that many prompts.
    batch = isinstance(prompt, list) and not all(isinstance(item, int) for item in prompt)
    answers = max(several) * (len(prompt) if batch and isinstance(prompt, list) else 1)
    if answers > _MAX_ANSWERS:
        raise _wrong("n")
    return max(1, answers)


def _prompt_tokens(route: Route, fields: Mapping[str, msgspec.Raw], policy: Policy) -> int:
    """Tokens of the prompt at most.

    Formula: bytes of the prompt's JSON − bytes of attachments + attachments × declared cost
    + what the template may add. A byte-level tokenizer makes no more tokens than bytes, and JSON
    writes no character in fewer bytes than UTF-8 does.
    """
    tokens = TEMPLATE_TOKENS
    for name in route.prompts:
        raw = fields.get(name)
        if raw is None:
            continue
        text = bytes(raw)
        tokens += len(text)
        if _may_attach(text):
            for attached in _attachments(_decoded(text)):
                _check_url(attached, policy)
                tokens += policy.image_tokens - min(len(attached), len(text))
    return max(tokens, TEMPLATE_TOKENS)


def _may_attach(text: bytes) -> bool:
    """True when something may be attached: the names, or an escape that could spell them."""
    return any(mark in text for mark in (b"url", b"image", b"audio", b"video", b"file", b"\\u"))


def _attachments(value: Any) -> Iterator[str]:
    """Strings that stand where a URL or the data of an attachment stands, anywhere inside."""
    if isinstance(value, list):
        for item in value:
            yield from _attachments(item)
    elif isinstance(value, dict):
        encoded = value.get("type") == "base64" or "format" in value
        for key, item in value.items():
            if isinstance(item, str):
                if _URL_KEY.search(key) or (key == "data" and encoded):
                    yield item
            else:
                yield from _attachments(item)


def _check_url(attached: str, policy: Policy) -> None:
    """Raises GW032 for anything that is fetched from a host that is not allowed.

    What is neither a data URL nor plain base64 is taken for a place to fetch from: engines accept
    `file:` and bare paths too.
    """
    if attached.startswith("data:") or not re.search(r"[:\\.]|^//", attached[:4096]):
        return
    host = _HOST.match(attached)
    if host is None or host[1].lower() not in policy.fetch_hosts:
        raise HeavyliftError("GW032", {"url": attached[:100]})


def _prefix(route: Route, fields: Mapping[str, msgspec.Raw]) -> bytes:
    for name in ("system", "instructions", *route.prompts):
        if name in fields:
            return bytes(fields[name])[:_PREFIX_BYTES]
    return b""


def _value(fields: Mapping[str, msgspec.Raw], name: str) -> Any:
    raw = fields.get(name)
    return None if raw is None else _decoded(raw)


def _flag(fields: Mapping[str, msgspec.Raw], name: str) -> bool:
    value = _value(fields, name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(name)
    return value is True


def _count(fields: Mapping[str, msgspec.Raw], name: str, *, least: int) -> int | None:
    value = _value(fields, name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
        raise _wrong(name)
    return value


def _object(raw: msgspec.Raw | None, name: str) -> dict[str, Any]:
    value = None if raw is None else _decoded(raw)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(name)
    return value


def _decoded(raw: msgspec.Raw | bytes) -> Any:
    """A field's value. Raises GW030 for text that is no UTF-8: the first look does not look into
    fields.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise HeavyliftError("GW030", {"detail": str(problem)}) from problem


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _wrong(name: str) -> HeavyliftError:
    return HeavyliftError("GW031", {"field": name})
