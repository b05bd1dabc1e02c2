"""Scenarios: what a scripted engine does, as a TOML file. Decoding only; playing is elsewhere.

A file states the server, the pace, the reply and the start, each with defaults, and then rules:
the first rule that matches a request changes its pace or reply or plays a fault. A rule's `pace`
and `reply` state only what differs.
"""

from __future__ import annotations

import tomllib
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec

from heavylift.errors import HeavyliftError

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[int, msgspec.Meta(ge=1)]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file: a misspelt key is an error, not a silent default."""


class FaultKind(StrEnum):
    """What a scripted engine can do wrong."""

    REJECT = "reject"
    """Answers with `status`, `message` and, if given, `retry_after_s`."""
    CONTEXT_TOO_LONG = "context_too_long"
    """Answers 400 as engines do when the prompt does not fit."""
    DROP = "drop"
    """Resets the connection without an answer."""
    DIE = "die"
    """The whole server goes: all connections are reset, the port refuses."""
    FREEZE = "freeze"
    """The engine stops behind an API that lives: no request is answered any more, its counters
    stand still, and everything else is answered as before.
    """
    HANG = "hang"
    """Says nothing more after `after_tokens`; with 0, not even headers."""
    SLOW_HEADERS = "slow_headers"
    """Sends the headers `delay_s` late."""
    BREAK_STREAM = "break_stream"
    """Resets the connection after `after_tokens`."""
    GARBAGE = "garbage"
    """Sends bytes that are neither JSON nor UTF-8 after `after_tokens`."""
    TRUNCATED_JSON = "truncated_json"
    """Ends in good order after half a chunk."""
    SPLIT_UTF8 = "split_utf8"
    """Cuts every event inside a character. Not a fault of the server, but of many clients."""
    NO_FINISH_REASON = "no_finish_reason"
    """Sends `[DONE]` and never a finish reason."""
    ERROR_EVENT = "error_event"
    """Sends an error object after `after_tokens`, and `[DONE]` after it if `done`."""
    WRONG_CONTENT_TYPE = "wrong_content_type"
    """Answers with a web page."""


class Defect(StrEnum):
    """What an obliging engine can do wrong in a reply that arrives in good order."""

    MARKER_LEAK = "marker_leak"
    """A marker of the model's format at the end of streamed text."""
    ANSWER_TWICE = "answer_twice"
    THINK_CLOSE_OMITTED = "think_close_omitted"
    """The thinking is not closed before a tool call, which stays inside it."""
    TOOL_CALL_AS_TEXT = "tool_call_as_text"
    """The call comes as text: no tool parser was configured."""
    TOOL_CALLS_LOST = "tool_calls_lost"
    TOOL_ARGUMENTS_UNTYPED = "tool_arguments_untyped"
    TOOL_ARGUMENTS_BROKEN = "tool_arguments_broken"
    TOOL_ARGUMENTS_AT_ONCE = "tool_arguments_at_once"
    TOOL_ALWAYS_CALLED = "tool_always_called"
    TOOL_CHOICE_IGNORED = "tool_choice_ignored"
    THINKING_IN_TEXT = "thinking_in_text"
    """No reasoning parser: the thinking comes in tags inside the text."""
    THINKING_MISSING = "thinking_missing"
    CUT_THINKING_AS_TEXT = "cut_thinking_as_text"
    REASONING_DROPPED = "reasoning_dropped"
    """The thinking of earlier turns is not put into the prompt."""
    MARKERS_SPECIAL = "markers_special"
    """Markers in a user's text become the model's own control tokens."""
    STOP_IGNORED = "stop_ignored"
    LENGTH_IGNORED = "length_ignored"
    SEED_IGNORED = "seed_ignored"
    USAGE_MISSING = "usage_missing"
    USAGE_WRONG = "usage_wrong"
    ANY_MODEL = "any_model"
    LIMIT_UNSAID = "limit_unsaid"
    CUT_SILENTLY = "cut_silently"
    """A prompt over the limit is answered all the same."""
    UNICODE_MANGLED = "unicode_mangled"
    ANSWERS_MIXED = "answers_mixed"
    """A request gets the answer to the one before it."""
    SLOTS_LOST = "slots_lost"
    """A request whose client went keeps its slot."""
    EXCLAMATIONS = "exclamations"
    MIDDLE_LOST = "middle_lost"
    """What stands in the middle of a long prompt is not found."""
    BLIND = "blind"
    JSON_IGNORED = "json_ignored"
    STREAM_LOSES_END = "stream_loses_end"
    RESPONSES_REPEATED = "responses_repeated"
    """On the responses route a marker leaks into the stream and the answer follows again."""
    DYNAMIC_TOOLS_IGNORED = "dynamic_tools_ignored"
    """Tools that a system message declares are not offered to the model."""
    DYNAMIC_TOOLS_UNCHECKED = "dynamic_tools_unchecked"
    """Declarations that make no sense are taken."""
    LIMIT_CRASHES = "limit_crashes"
    """A prompt just over the limit ends in a server error."""
    PICTURE_CRASHES = "picture_crashes"
    """A picture of many pixels ends in a server error."""
    TEMPLATE_CHANGED = "template_changed"
    """The prompt is rendered by another template, of more tokens."""
    PICTURE_UNREAD = "picture_unread"
    """What is no picture is answered as if it were one."""
    PICTURE_INVENTED = "picture_invented"
    """A picture behind an address is spoken of and was never fetched."""
    EFFORT_REFUSED = "effort_refused"
    """No way of asking for an effort of thinking is taken."""
    CACHE_FORGETS = "cache_forgets"
    """What stands in a prefix that was asked before is lost."""


class Server(_Table, frozen=True, kw_only=True):
    """The server as a whole. `key` None = no key is asked for. `steps_per_s`: steps that its engine
    counts while it has work; None = it counts none. `kv_use_ratio`: what its metrics say of the
    cache; None = nothing.
    """

    models: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("scripted",)
    context_tokens: Number = 8192
    key: str | None = None
    steps_per_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    kv_use_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class Pace(_Table, frozen=True, kw_only=True):
    """When pieces are sent. `jitter_s`: each gap is up to that much longer or shorter, by `seed`.

    `ttft_s` counts from the arrival of the request.
    """

    ttft_s: Seconds = 0.0
    interval_s: Seconds = 0.0
    jitter_s: Seconds = 0.0
    seed: int = 0


class ToolCall(_Table, frozen=True, kw_only=True):
    """A tool call the reply makes. `arguments` is sent as it is, valid JSON or not."""

    name: str
    arguments: str = "{}"
    pieces: Number = 4
    """Chunks that the arguments are sent in."""


class Reply(_Table, frozen=True, kw_only=True):
    """What is answered. Without `text` and `reasoning`, words are made up.

    `tokens` and `reasoning_tokens` count made-up words. `finish_reason` overrides the natural one.
    `reasoning_field` is where the protocol's dialects put the thinking. `stamps` adds the time of
    sending to every chunk. `mind`: `obliging` makes up text and tool calls from the request, with
    `defects`.
    """

    mind: Literal["scripted", "obliging"] = "scripted"
    defects: tuple[Defect, ...] = ()
    text: str | None = None
    reasoning: str | None = None
    tokens: Count = 16
    reasoning_tokens: Count = 0
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    reasoning_field: Literal["reasoning_content", "reasoning", "both"] = "reasoning_content"
    role_first: bool = True
    usage: bool = True
    stamps: bool = True


class Fault(_Table, frozen=True, kw_only=True):
    """A fault and its parameters; which of them count is said at the kind."""

    kind: FaultKind
    after_tokens: Count = 0
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    retry_after_s: Seconds | None = None
    delay_s: Seconds = 0.0
    message: str = "scripted failure"
    done: bool = False


class Match(_Table, frozen=True, kw_only=True):
    """Which requests a rule is for: all conditions together. Requests are numbered from 1."""

    first: Number = 1
    last: Number | None = None
    every: Number = 1
    model: str | None = None
    prompt_contains: str | None = None

    def covers(self, number: int, model: str, prompt: str) -> bool:
        """True when the request is one of them."""
        in_range = self.first <= number and (self.last is None or number <= self.last)
        return (
            in_range
            and (number - self.first) % self.every == 0
            and self.model in (None, model)
            and (self.prompt_contains is None or self.prompt_contains in prompt)
        )


class Rule(_Table, frozen=True, kw_only=True):
    """What is different for the requests that match. `pace` and `reply` are complete here."""

    pace: Pace
    reply: Reply
    match: Match = Match()
    fault: Fault | None = None


class Then(StrEnum):
    """What a step of the start brings about."""

    LISTEN = "listen"
    """The port opens; `/health` still says no."""
    READY = "ready"
    EXIT = "exit"
    """The process ends with the step's `status`."""


class StartStep(_Table, frozen=True, kw_only=True):
    """One step of a start: wait, print a line, bring something about."""

    after_s: Seconds = 0.0
    line: str | None = None
    stream: Literal["stdout", "stderr"] = "stdout"
    then: Then | None = None
    status: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1


AT_ONCE: Final = (StartStep(then=Then.LISTEN), StartStep(then=Then.READY))
"""The start of a scenario that states none."""


class Scenario(_Table, frozen=True, kw_only=True):
    """A whole scenario."""

    server: Server = Server()
    pace: Pace = Pace()
    reply: Reply = Reply()
    rules: tuple[Rule, ...] = msgspec.field(name="rule", default=())
    start: tuple[StartStep, ...] = AT_ONCE


def decode(text: str, path: str) -> Scenario:
    """The scenario in a TOML text. `path` names it in errors.

    Raises DEV001 when it is not TOML, DEV002 (with the place inside the file) when a key is
    unknown, missing or of the wrong kind.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise HeavyliftError("DEV001", {"path": path, "detail": str(problem)}) from problem
    try:
        return msgspec.convert(_with_complete_rules(document), Scenario)
    except msgspec.ValidationError as problem:
        raise HeavyliftError("DEV002", {"path": path, "detail": str(problem)}) from problem


def _with_complete_rules(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the file's pace and reply filled into each rule's."""
    rules = document.get("rule")
    if not isinstance(rules, list):
        return document
    return {**document, "rule": [_complete(rule, document) for rule in rules]}


def _complete(rule: Any, document: dict[str, Any]) -> Any:
    if not isinstance(rule, dict):
        return rule
    merged = dict(rule)
    for part in ("pace", "reply"):
        base, own = document.get(part, {}), rule.get(part, {})
        # A part that is not a table is left as it is: the decoder says so with its place.
        both = isinstance(base, dict) and isinstance(own, dict)
        merged[part] = {**base, **own} if both else own
    return merged
