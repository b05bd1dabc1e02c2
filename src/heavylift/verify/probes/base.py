"""What probes are made of. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from heavylift.stats import Chance
from heavylift.verify.judge import reply_failure
from heavylift.verify.records import Trial
from heavylift.wire.client import Outcome
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

WORDS: Final = ("lantern", "granite", "harbour", "meadow", "copper", "willow", "anchor", "saffron")
REFUSED: Final = frozenset({Failure.BAD_REQUEST, Failure.NOT_FOUND, Failure.SERVER_ERROR})
"""How servers refuse a feature they do not have: 4xx mostly, 5xx when nobody thought of it."""

Params = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One request. `route`: `chat`, `messages`, `responses` or `completions`. `leave_after`: go
    away after so many chunks. `elsewhere`: send it to the other endpoint, where two are compared.
    """

    request: ChatRequest
    route: str = "chat"
    leave_after: int | None = None
    elsewhere: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """What is known of the server before the first check. `chars_per_token`: of English prose."""

    model: str
    listed: tuple[str, ...]
    context_tokens: int | None
    chars_per_token: float
    health: Failure | None = None


class Remote(Protocol):
    """Pictures behind addresses; see `heavylift.verify.remote`."""

    def offer(self, png: bytes) -> str | None:
        """The address of a picture; None where the server under test could not reach it."""

    def was_fetched(self, url: str) -> bool:
        """True when somebody asked for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """One trial's surroundings. `number` counts the trials of a check from 0; `chance` is its own
    and seeded. `markers`: strings that belong in no answer. `answer_tokens`: room for an answer,
    with the thinking before it. `prose`: text to fill prompts with. `earlier`: what an
    earlier release answered. `remote`: pictures that are somewhere else.
    """

    server: Server
    number: int
    chance: Chance
    markers: tuple[str, ...]
    answer_tokens: int
    prose: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    earlier: Mapping[str, str] = field(default_factory=dict)
    remote: Remote | None = None

    def ask(
        self,
        content: Any,
        *,
        stream: bool = True,
        max_tokens: int | None = None,
        route: str = "chat",
        leave_after: int | None = None,
        elsewhere: bool = False,
        **extra: Any,
    ) -> Ask:
        """A request with one user message, greedy unless `extra` says otherwise."""
        message = {"role": "user", "content": content}
        ask = self.converse((message,), stream=stream, max_tokens=max_tokens, route=route, **extra)
        return replace(ask, leave_after=leave_after, elsewhere=elsewhere)

    def converse(
        self,
        messages: tuple[Mapping[str, Any], ...],
        *,
        stream: bool = True,
        max_tokens: int | None = None,
        route: str = "chat",
        **extra: Any,
    ) -> Ask:
        """A request with all its messages given."""
        request = ChatRequest(
            model=self.server.model,
            messages=messages,
            stream=stream,
            max_tokens=max_tokens or self.answer_tokens,
            extra={"temperature": 0, **self.extra, **extra},
        )
        return Ask(request=request, route=route)

    def ask_with(self, content: Any, body: Mapping[str, Any], **given: Any) -> Ask:
        """As `ask`, with fields of the body as they stand in a file, whatever their names."""
        ask = self.ask(content, **given)
        return replace(ask, request=replace(ask.request, extra={**ask.request.extra, **body}))

    def pick(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        return int(self.chance() * count)

    def word(self) -> str:
        """A word with a number, which no answer has by chance."""
        return f"{WORDS[self.pick(len(WORDS))]}{100 + self.pick(900)}"

    def failed(self, outcome: Outcome) -> Trial | None:
        """The trial that a reply ends which is wrong whatever was asked; None = go on."""
        reason = reply_failure(outcome.reply, self.markers)
        return None if reason is None else Trial(reason=reason, evidence=shown(outcome))


Probe = Generator[tuple[Ask, ...], tuple[Outcome, ...], Trial]
MakeProbe = Callable[[Situation, Params], Probe]


def shown(outcome: Outcome) -> str:
    """What came back, in one line: the error, else the text, the calls or the thinking."""
    reply = outcome.reply
    if reply.error is not None and reply.error.message:
        return f"HTTP {outcome.status}: {reply.error.message}"
    calls = " ".join(f"{call.name}({call.arguments})" for call in reply.tool_calls)
    said = reply.text or calls or f"[thinking] {reply.reasoning[-200:]}"
    return f"{' '.join(said.split())} [{reply.finish_reason}]"


def refused(outcome: Outcome) -> Trial | None:
    """The trial of a feature that the server refuses; None when it does not."""
    if outcome.failure not in REFUSED:
        return None
    return Trial(reason=str(outcome.failure), evidence=shown(outcome), unsupported=True)


def refused_route(outcome: Outcome, params: Params) -> Trial | None:
    """As `refused`, for a probe whose params send it to another route than that of chat."""
    return refused(outcome) if "route" in params else None


def verdict(reason: str | None, outcome: Outcome, **figures: float | None) -> Trial:
    """The trial with this reason (None = passed), its evidence and the figures that are known."""
    known = {name: value for name, value in figures.items() if value is not None}
    return Trial(reason=reason, evidence=shown(outcome), figures=known)
