"""Replies: the pieces a model's answer comes in, whatever the protocol, and the judged whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from heavylift.wire.failures import UNDECODABLE, ErrorBody, Failure, classify_stream_error

_ABORTED: Final = frozenset({"abort", "aborted", "error", "cancelled"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """A request for one reply. `messages` are sent as they are; `extra` joins the body last.

    `stream` asks for events and, at their end, for the usage.
    """

    model: str
    messages: tuple[Mapping[str, Any], ...]
    stream: bool = True
    max_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class ToolPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of a tool call. `index` tells calls apart; only the first piece has id and name."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens as the server counted them. None = it did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    def merged(self, later: Usage) -> Usage:
        """This usage with what `later` states put over it."""
        return Usage(
            prompt_tokens=_latest(self.prompt_tokens, later.prompt_tokens),
            completion_tokens=_latest(self.completion_tokens, later.completion_tokens),
            cached_tokens=_latest(self.cached_tokens, later.cached_tokens),
            reasoning_tokens=_latest(self.reasoning_tokens, later.reasoning_tokens),
        )


def _latest(earlier: int | None, later: int | None) -> int | None:
    return earlier if later is None else later


class Delta(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one chunk adds to the reply. A Struct, not a dataclass: one is made per token.

    `sent_at` is the sender's monotonic clock in seconds, where a scripted server stamps it.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolPart, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    error: ErrorBody | None = None
    role: str | None = None
    sent_at: float | None = None

    @property
    def is_token(self) -> bool:
        """True when it carries something generated: it stops the clock of the first token."""
        return bool(self.text or self.reasoning or self.tool_calls)

    @property
    def is_answer(self) -> bool:
        """True when it carries part of the answer proper, not of the thinking before it."""
        return bool(self.text or self.tool_calls)

    @property
    def is_role_only(self) -> bool:
        """True for the opening chunk that names the role and carries nothing generated."""
        return self.role is not None and not self.is_token and self.finish_reason is None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A whole tool call. `arguments` is the JSON text as generated."""

    id: str | None
    name: str | None
    arguments: str

    @property
    def has_valid_arguments(self) -> bool:
        """True when the arguments are a JSON object, or nothing: a tool without parameters."""
        if not self.arguments:
            return True
        try:
            return isinstance(msgspec.json.decode(self.arguments), dict)
        except UNDECODABLE:
            return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """A reply as far as it came. `failure` None = a finished, well-formed answer.

    `saw_done` says whether `[DONE]` came. It proves nothing: routers send it after an error.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    failure: Failure | None = None
    error: ErrorBody | None = None
    saw_done: bool = False


class Accumulator:
    """Joins the deltas of one reply."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_OpenCall] = []
        self._position: dict[int | None, int] = {}
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._error: ErrorBody | None = None
        self._saw_done = False

    def add(self, delta: Delta) -> None:
        """Take the next delta."""
        if delta.text:
            self._text.append(delta.text)
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
        for part in delta.tool_calls:
            self._add_tool(part)
        if delta.finish_reason is not None:
            self._finish_reason = delta.finish_reason
        if delta.usage is not None:
            self._usage = self._usage.merged(delta.usage) if self._usage else delta.usage
        if delta.error is not None:
            self._error = delta.error

    def done(self) -> None:
        """Note the `[DONE]`."""
        self._saw_done = True

    def reply(self, failure: Failure | None = None, error: ErrorBody | None = None) -> Reply:
        """The reply so far. `failure` and `error` are the transport's: they outrank our reading."""
        reply = Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(call.joined() for call in self._calls),
            finish_reason=self._finish_reason,
            usage=self._usage,
            failure=failure,
            error=error or self._error,
            saw_done=self._saw_done,
        )
        return reply if failure is not None else replace(reply, failure=judge(reply))

    def _add_tool(self, part: ToolPart) -> None:
        position = self._position.get(part.index)
        # Some servers number every call 0: a new id begins a new call whatever the index says.
        if position is None or not self._calls[position].takes(part):
            position = self._position[part.index] = len(self._calls)
            self._calls.append(_OpenCall())
        self._calls[position].add(part)


class _OpenCall:
    """A tool call whose pieces are still arriving."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._name: str | None = None
        self._arguments: list[str] = []

    def takes(self, part: ToolPart) -> bool:
        return part.id is None or self._id is None or part.id == self._id

    def add(self, part: ToolPart) -> None:
        self._id = self._id or part.id
        self._name = self._name or part.name
        self._arguments.append(part.arguments)

    def joined(self) -> ToolCall:
        return ToolCall(id=self._id, name=self._name, arguments="".join(self._arguments))


def judge(reply: Reply, markers: Iterable[str] = ()) -> Failure | None:
    """The failure class of a reply that the transport brought in full; None = a good one.

    `markers` are strings of the model's own format (a fact of the model) that belong in no text.
    """
    if reply.error is not None:
        return classify_stream_error(reply.error)
    if reply.finish_reason is None:
        return Failure.MISSING_FINISH_REASON
    if reply.finish_reason in _ABORTED:
        return Failure.ABORTED
    if any(marker in reply.text or marker in reply.reasoning for marker in markers):
        return Failure.MARKER_LEAK
    return _judge_tools(reply) if _speaks_of_tools(reply) else _judge_text(reply)


def _speaks_of_tools(reply: Reply) -> bool:
    return bool(reply.tool_calls) or reply.finish_reason == "tool_calls"


def _judge_tools(reply: Reply) -> Failure | None:
    if not reply.tool_calls:
        return Failure.TOOL_CALLS_LOST
    valid = all(call.has_valid_arguments for call in reply.tool_calls)
    return None if valid else Failure.TOOL_ARGUMENTS_INVALID


def _judge_text(reply: Reply) -> Failure | None:
    if reply.text:
        return None
    cut_short = reply.reasoning and reply.finish_reason == "length"
    return Failure.TRUNCATED_THINKING if cut_short else Failure.EMPTY
