"""Playing a scenario: from a request to what is sent, byte by byte, and when. No clock in here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final

from heavylift.devserver.obliging import Refusal, count_tokens, oblige
from heavylift.devserver.render import Channel, Dialect, Frame, Piece, Script
from heavylift.devserver.scenario import (
    Defect,
    Fault,
    FaultKind,
    Pace,
    Reply,
    Scenario,
    ToolCall,
)

_WORDS: Final = ("lift ", "the ", "load ", "with ", "care ", "and ", "count ", "bytes ")
_GARBAGE: Final = b"data: \xff\xfe{]\x80 not json\n\n"
_ASCII: Final = 0x7F
_SPLIT_GAP_S: Final = 0.001
"""Between the halves of a cut event, so that they do not travel in one packet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request as far as a scenario cares. `prompt` is all text of all messages."""

    number: int
    model: str
    prompt: str
    stream: bool
    max_tokens: int | None
    body: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt: a scripted engine counts words."""
        return len(self.prompt.split())


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """How one request is answered."""

    pace: Pace
    reply: Reply
    fault: Fault | None

    def has(self, kind: FaultKind) -> bool:
        """True when this fault is played."""
        return self.fault is not None and self.fault.kind is kind


class Action(Enum):
    """What a step does."""

    SEND = auto()
    ABORT = auto()
    """Reset the connection."""
    HANG = auto()
    """Nothing, until the client goes."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a stream, `at_s` after the request came.

    `frame` is encoded when it is sent, because of its stamp; `raw` is sent as it is.
    """

    at_s: float
    action: Action = Action.SEND
    frame: Frame | None = None
    raw: bytes = b""

    def encode(self, sent_at: float | None) -> bytes:
        """The bytes to send."""
        return self.raw if self.frame is None else self.frame.encode(sent_at)


def asked(body: Any, number: int) -> Asked | None:
    """The request in a decoded body of either protocol; None when it is not one."""
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return None
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    if not isinstance(body.get("model"), str) or not isinstance(limit, int | None):
        return None
    texts = [_text(message) for message in (body.get("system"), *body["messages"])]
    return Asked(
        number=number,
        model=body["model"],
        prompt="\n".join(text for text in texts if text),
        stream=body.get("stream") is True,
        max_tokens=limit,
        body=body,
    )


def _text(message: Any) -> str:
    """The text of a message, a list of parts, a part, or a string."""
    if isinstance(message, str):
        return message
    if isinstance(message, list):
        return " ".join(_text(part) for part in message)
    if isinstance(message, dict):
        return _text(message.get("content", message.get("text", "")))
    return ""


def choose(scenario: Scenario, request: Asked) -> Turn:
    """The turn for a request: that of the first rule that covers it, else the file's own.

    The reply is as written in the file; `turn_of_mind` lets an obliging one look at the request.
    """
    for rule in scenario.rules:
        if rule.match.covers(request.number, request.model, request.prompt):
            return Turn(pace=rule.pace, reply=rule.reply, fault=rule.fault)
    return Turn(pace=scenario.pace, reply=scenario.reply, fault=None)


def turn_of_mind(turn: Turn, request: Asked) -> Turn | Refusal:
    """The turn with the reply made up by its mind."""
    if turn.reply.mind == "scripted":
        return turn
    reply = oblige(request.body, turn.reply, request.number)
    return reply if isinstance(reply, Refusal) else replace(turn, reply=reply)


def prompt_tokens(turn: Turn, request: Asked) -> int:
    """Tokens of the prompt as the turn's mind counts them."""
    if turn.reply.mind == "scripted":
        return request.prompt_tokens
    return count_tokens(request.body, turn.reply)


def script(turn: Turn, request: Asked) -> Script:
    """The reply laid out in pieces, cut at the request's token limit as an engine would."""
    reply = turn.reply
    pieces = tuple(_pieces(reply))
    finish = "tool_calls" if reply.tool_calls else "stop"
    obeys = Defect.LENGTH_IGNORED not in reply.defects
    if obeys and request.max_tokens is not None and len(pieces) > request.max_tokens:
        pieces = pieces[: request.max_tokens]
        finish = "length"
    withheld = turn.has(FaultKind.NO_FINISH_REASON)
    return Script(
        pieces=pieces,
        finish_reason=None if withheld else reply.finish_reason or finish,
        prompt_tokens=prompt_tokens(turn, request),
        model=request.model,
        reply=reply,
    )


def _pieces(reply: Reply) -> Iterator[Piece]:
    for text in _words(reply.reasoning, reply.reasoning_tokens):
        yield Piece(channel=Channel.REASONING, text=text)
    for text in _words(reply.text, 0 if reply.tool_calls else reply.tokens):
        yield Piece(channel=Channel.TEXT, text=text)
    for number, call in enumerate(reply.tool_calls):
        yield from _tool_pieces(call, number)


def _words(text: str | None, tokens: int) -> Iterable[str]:
    if text is None:
        return (_WORDS[position % len(_WORDS)] for position in range(tokens))
    return re.findall(r"\s*\S+|\s+", text)


def _tool_pieces(call: ToolCall, number: int) -> Iterator[Piece]:
    size = max(1, -(-len(call.arguments) // call.pieces))
    name: str | None = call.name
    for start in range(0, max(1, len(call.arguments)), size):
        text = call.arguments[start : start + size]
        yield Piece(channel=Channel.TOOL, text=text, tool=number, tool_name=name)
        name = None


def token_times(pace: Pace, chance: Callable[[], float]) -> Iterator[float]:
    """When each token is due, in seconds after the request. `chance` gives numbers in [0, 1)."""
    at_s = pace.ttft_s
    while True:
        yield at_s
        jitter = (2 * chance() - 1) * pace.jitter_s if pace.jitter_s else 0.0
        at_s += max(0.0, pace.interval_s + jitter)


def whole_at_s(turn: Turn, laid_out: Script, chance: Callable[[], float]) -> float:
    """When a reply that is not streamed is due: with its last token."""
    times = token_times(turn.pace, chance)
    return [next(times) for _ in range(max(1, len(laid_out.pieces)))][-1]


def steps(
    turn: Turn, laid_out: Script, dialect: Dialect, chance: Callable[[], float]
) -> Iterator[Step]:
    """Everything that is sent for a streamed reply. After the last step the stream ends well."""
    plain = _steps(turn, laid_out, dialect, chance)
    return _cut(plain) if turn.has(FaultKind.SPLIT_UTF8) else plain


def _steps(
    turn: Turn, laid_out: Script, dialect: Dialect, chance: Callable[[], float]
) -> Iterator[Step]:
    yield from (Step(0.0, frame=frame) for frame in dialect.opening())
    at_s = turn.pace.ttft_s
    times = token_times(turn.pace, chance)
    # One round more than there are pieces: a fault may come after the last.
    for number, piece in enumerate((*laid_out.pieces, None)):
        if turn.fault is not None and number == turn.fault.after_tokens:
            spoilt = _spoil(turn.fault, dialect, at_s)
            if spoilt is not None:
                yield from spoilt
                return
        if piece is not None:
            at_s = next(times)
            yield from (Step(at_s, frame=frame) for frame in dialect.piece(piece))
    yield from (Step(at_s, frame=frame) for frame in dialect.closing())
    if dialect.done:
        yield Step(at_s, raw=dialect.done)


def _spoil(fault: Fault, dialect: Dialect, at_s: float) -> tuple[Step, ...] | None:
    """The last steps of a stream that this fault ends; None when it is a fault of another kind."""
    done = (Step(at_s, raw=dialect.done),) if fault.done and dialect.done else ()
    error = dialect.error(fault.message)
    endings: dict[FaultKind, tuple[Step, ...]] = {
        FaultKind.BREAK_STREAM: (Step(at_s, Action.ABORT),),
        FaultKind.HANG: (Step(at_s, Action.HANG),),
        FaultKind.GARBAGE: (Step(at_s, raw=_GARBAGE), *done),
        FaultKind.TRUNCATED_JSON: (Step(at_s, raw=error.encode(None)[:-20]),),
        FaultKind.ERROR_EVENT: (Step(at_s, frame=error), *done),
    }
    return endings.get(fault.kind)


def _cut(plain: Iterator[Step]) -> Iterator[Step]:
    for step in plain:
        data = step.encode(None)
        # One byte into the first character that has several; in the middle if there is none.
        wide = next((place for place, byte in enumerate(data) if byte > _ASCII), len(data) // 2)
        yield Step(step.at_s, raw=data[: wide + 1])
        yield Step(step.at_s + _SPLIT_GAP_S, raw=data[wide + 1 :])
