"""Rendering: a scripted reply in the words of a protocol, piece by piece or whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from heavylift.devserver.scenario import Defect, Reply

_ID: Final = "scripted"


class Channel(StrEnum):
    """Where a piece belongs."""

    REASONING = "reasoning"
    TEXT = "text"
    TOOL = "tool"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """What one token adds. `tool` numbers the call from 0; its first piece names it."""

    channel: Channel
    text: str
    tool: int = 0
    tool_name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A reply laid out: the pieces in order, how it ends, and the counts.

    `finish_reason` None = it is withheld.
    """

    pieces: tuple[Piece, ...]
    finish_reason: str | None
    prompt_tokens: int
    model: str
    reply: Reply

    @property
    def completion_tokens(self) -> int:
        """Tokens generated as the usage states them: one per piece, unless it is made wrong."""
        if Defect.USAGE_WRONG in self.reply.defects:
            return len(self.pieces) // 2
        return len(self.pieces)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of thinking."""
        return sum(piece.channel is Channel.REASONING for piece in self.pieces)


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One event: `name` as the protocol has it (None = unnamed) and its document."""

    document: dict[str, Any]
    name: str | None = None

    def encode(self, sent_at: float | None) -> bytes:
        """The event's bytes, stamped with the time of sending unless that is None."""
        document = msgspec.json.encode(self.document)
        if sent_at is not None:
            document = b'%b,"x-sent-at":%.6f}' % (document[:-1], sent_at)
        prefix = b"" if self.name is None else b"event: %b\n" % self.name.encode()
        return b"%bdata: %b\n\n" % (prefix, document)


class Dialect(Protocol):
    """One conversation's worth of a protocol; may keep state between calls."""

    done: bytes

    def opening(self) -> Iterator[Frame]:
        """What comes before the first token."""

    def piece(self, piece: Piece) -> Iterator[Frame]:
        """What one token is sent as."""

    def closing(self) -> Iterator[Frame]:
        """What comes after the last token."""

    def error(self, message: str) -> Frame:
        """An error inside the stream."""

    def whole(self) -> dict[str, Any]:
        """The reply as one document."""


def error_document(message: str, kind: str, code: int | str) -> dict[str, Any]:
    """An error as servers of the chat protocol answer it."""
    return {"error": {"message": message, "type": kind, "code": code}}


@dataclass(slots=True)
class ChatDialect:
    """The chat completions protocol."""

    script: Script
    done: bytes = field(default=b"data: [DONE]\n\n", init=False)

    def opening(self) -> Iterator[Frame]:
        """The role-only chunk, as engines send it at once."""
        if self.script.reply.role_first:
            yield self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> Iterator[Frame]:
        """One chunk."""
        yield self._chunk(self._delta(piece))

    def closing(self) -> Iterator[Frame]:
        """The finish chunk, then the usage chunk, which has no choices."""
        if self.script.finish_reason is not None:
            yield self._chunk({}, self.script.finish_reason)
        if self.script.reply.usage:
            yield Frame(document=self._envelope("chat.completion.chunk", [], self._usage()))

    def error(self, message: str) -> Frame:
        """An error object in the place of a chunk."""
        return Frame(document=error_document(message, "internal_error", 500))

    def whole(self) -> dict[str, Any]:
        """The reply as one document."""
        script = self.script
        message: dict[str, Any] = {"role": "assistant", "content": joined(script, Channel.TEXT)}
        reasoning = joined(script, Channel.REASONING)
        if reasoning:
            message.update(self._reasoning(reasoning))
        calls = tool_calls(script)
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call-{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for number, (name, arguments) in enumerate(calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": script.finish_reason}
        usage = self._usage() if script.reply.usage else None
        return self._envelope("chat.completion", [choice], usage)

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> Frame:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return Frame(document=self._envelope("chat.completion.chunk", [choice], None))

    def _envelope(
        self, kind: str, choices: list[dict[str, Any]], usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        envelope = {
            "id": _ID,
            "object": kind,
            "created": 0,
            "model": self.script.model,
            "choices": choices,
        }
        return envelope if usage is None else envelope | {"usage": usage}

    def _delta(self, piece: Piece) -> dict[str, Any]:
        if piece.channel is Channel.TEXT:
            return {"content": piece.text}
        if piece.channel is Channel.REASONING:
            return self._reasoning(piece.text)
        call: dict[str, Any] = {"index": piece.tool, "function": {"arguments": piece.text}}
        if piece.tool_name is not None:
            call |= {"id": f"call-{piece.tool}", "type": "function"}
            call["function"]["name"] = piece.tool_name
        return {"tool_calls": [call]}

    def _reasoning(self, text: str) -> dict[str, Any]:
        name = self.script.reply.reasoning_field
        if name == "both":
            return {"reasoning_content": text, "reasoning": text}
        return {name: text}

    def _usage(self) -> dict[str, Any]:
        script = self.script
        return {
            "prompt_tokens": script.prompt_tokens,
            "completion_tokens": script.completion_tokens,
            "total_tokens": script.prompt_tokens + script.completion_tokens,
            "completion_tokens_details": {"reasoning_tokens": script.reasoning_tokens},
        }


_STOP_REASONS: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


@dataclass(slots=True)
class MessagesDialect:
    """The messages protocol: blocks that open and close around their deltas."""

    script: Script
    done: bytes = field(default=b"", init=False)
    _open: tuple[Channel, int] | None = field(default=None, init=False)
    _index: int = field(default=-1, init=False)

    def opening(self) -> Iterator[Frame]:
        """The start of the message, with the prompt's tokens."""
        message: dict[str, Any] = {
            "id": _ID,
            "type": "message",
            "role": "assistant",
            "model": self.script.model,
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": self.script.prompt_tokens, "output_tokens": 0},
        }
        yield self._frame("message_start", message=message)

    def piece(self, piece: Piece) -> Iterator[Frame]:
        """A delta, after the change of block it may need."""
        block = (piece.channel, piece.tool)
        if block != self._open:
            yield from self._close_block()
            self._open = block
            self._index += 1
            start = self._block_start(piece)
            yield self._frame("content_block_start", index=self._index, content_block=start)
        delta = {
            Channel.TEXT: {"type": "text_delta", "text": piece.text},
            Channel.REASONING: {"type": "thinking_delta", "thinking": piece.text},
            Channel.TOOL: {"type": "input_json_delta", "partial_json": piece.text},
        }[piece.channel]
        yield self._frame("content_block_delta", index=self._index, delta=delta)

    def closing(self) -> Iterator[Frame]:
        """The stop reason with the usage, then the end of the message."""
        yield from self._close_block()
        finish = self.script.finish_reason
        if finish is not None:
            reason = _STOP_REASONS.get(finish, finish)
            usage = {"output_tokens": self.script.completion_tokens}
            yield self._frame("message_delta", delta={"stop_reason": reason}, usage=usage)
        yield self._frame("message_stop")

    def error(self, message: str) -> Frame:
        """An error event."""
        return self._frame("error", error={"type": "api_error", "message": message})

    def whole(self) -> dict[str, Any]:
        """The reply as one document. A call whose arguments are not JSON has none here."""
        script = self.script
        content: list[dict[str, Any]] = []
        for kind, channel in (("thinking", Channel.REASONING), ("text", Channel.TEXT)):
            text = joined(script, channel)
            if text:
                content.append({"type": kind, kind: text})
        content += [
            {"type": "tool_use", "id": f"call-{number}", "name": name, "input": _object(arguments)}
            for number, (name, arguments) in enumerate(tool_calls(script))
        ]
        reason = script.finish_reason
        return {
            "id": _ID,
            "type": "message",
            "role": "assistant",
            "model": script.model,
            "content": content,
            "stop_reason": None if reason is None else _STOP_REASONS.get(reason, reason),
            "usage": {
                "input_tokens": script.prompt_tokens,
                "output_tokens": script.completion_tokens,
            },
        }

    def _close_block(self) -> Iterator[Frame]:
        if self._open is not None:
            self._open = None
            yield self._frame("content_block_stop", index=self._index)

    def _block_start(self, piece: Piece) -> dict[str, Any]:
        if piece.channel is Channel.TEXT:
            return {"type": "text", "text": ""}
        if piece.channel is Channel.REASONING:
            return {"type": "thinking", "thinking": ""}
        identity = {"id": f"call-{piece.tool}", "name": piece.tool_name}
        return {"type": "tool_use", **identity, "input": {}}

    def _frame(self, kind: str, **fields: Any) -> Frame:
        return Frame(document={"type": kind, **fields}, name=kind)


def joined(script: Script, channel: Channel) -> str:
    """The text of one channel."""
    return "".join(piece.text for piece in script.pieces if piece.channel is channel)


def tool_calls(script: Script) -> list[tuple[str, str]]:
    """Names and arguments of the calls, in order."""
    calls: list[tuple[str, str]] = []
    for piece in script.pieces:
        if piece.channel is not Channel.TOOL:
            continue
        if piece.tool_name is not None:
            calls.append((piece.tool_name, ""))
        name, arguments = calls[-1]
        calls[-1] = (name, arguments + piece.text)
    return calls


def _object(arguments: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
