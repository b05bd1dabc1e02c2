"""Bad servers: the obliging engine with one thing wrong, each as met in the field.

Every one names the check that must catch it and what that check must call it, so that the list is
a specification of verification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from heavylift.devserver.library import load
from heavylift.devserver.scenario import Defect, Fault, FaultKind, Match, Pace, Rule, Scenario
from heavylift.errors import HeavyliftError


@dataclass(frozen=True, kw_only=True, slots=True)
class BadServer:
    """A bad server. `every`: only each so-manieth request is spoilt. `interval_s`: its pace.
    `profile`: that of verification which asks often enough to catch it.
    """

    name: str
    caught_by: str
    called: str
    profile: str = "smoke"
    defect: Defect | None = None
    fault: Fault | None = None
    every: int = 1
    interval_s: float = 0.0

    @property
    def is_front(self) -> bool:
        """True for one that stands in front of a healthy engine, and is held against that."""
        return self.caught_by.startswith("against.")

    def scenario(self) -> Scenario:
        """What it plays."""
        healthy = load("obliging")
        pace = Pace(interval_s=self.interval_s)
        reply = healthy.reply
        if self.defect is not None:
            usage = self.defect is not Defect.USAGE_MISSING
            reply = msgspec.structs.replace(reply, defects=(self.defect,), usage=usage)
        if self.every == 1 and self.fault is None:
            return msgspec.structs.replace(healthy, reply=reply, pace=pace)
        match = Match(first=self.every, every=self.every)
        rule = Rule(pace=pace, reply=reply, match=match, fault=self.fault)
        return msgspec.structs.replace(healthy, pace=pace, rules=(rule,))


def _defect(
    defect: Defect,
    caught_by: str,
    called: str | None = None,
    *,
    every: int = 1,
    interval_s: float = 0.0,
    profile: str = "smoke",
) -> BadServer:
    return BadServer(
        name=defect.value.replace("_", "-"),
        caught_by=caught_by,
        called=called or defect.value,
        profile=profile,
        defect=defect,
        every=every,
        interval_s=interval_s,
    )


def _front(name: str, defect: Defect, caught_by: str, called: str) -> BadServer:
    return BadServer(name=name, caught_by=f"against.{caught_by}", called=called, defect=defect)


def _fault(name: str, called: str, fault: Fault, *, every: int = 2) -> BadServer:
    return BadServer(name=name, caught_by="basics.stream", called=called, fault=fault, every=every)


BAD_SERVERS: Final = (
    # Replies that arrive in good order and are wrong.
    _defect(Defect.MARKER_LEAK, "basics.stream"),
    _defect(Defect.ANSWER_TWICE, "basics.chat"),
    _defect(
        Defect.THINK_CLOSE_OMITTED,
        "tools.triggered",
        "call_in_thinking",
        every=20,
        profile="acceptance",
    ),
    _defect(Defect.TOOL_CALL_AS_TEXT, "tools.triggered", "call_as_text"),
    _defect(Defect.TOOL_CALLS_LOST, "tools.triggered"),
    _defect(Defect.TOOL_ARGUMENTS_UNTYPED, "tools.forced", "schema_violation"),
    _defect(Defect.TOOL_ARGUMENTS_BROKEN, "tools.forced", "tool_arguments_invalid"),
    _defect(Defect.TOOL_ARGUMENTS_AT_ONCE, "tools.in_pieces", "arguments_at_once"),
    _defect(Defect.TOOL_ALWAYS_CALLED, "tools.abstained", "needless_call"),
    _defect(Defect.TOOL_CHOICE_IGNORED, "tools.none", "needless_call"),
    _defect(Defect.THINKING_IN_TEXT, "reasoning.separate_stream", "marker_leak"),
    _defect(Defect.THINKING_MISSING, "reasoning.separate_stream", "no_reasoning"),
    _defect(Defect.CUT_THINKING_AS_TEXT, "reasoning.cut_short", "thinking_as_answer"),
    _defect(Defect.REASONING_DROPPED, "reasoning.given_back"),
    _defect(Defect.MARKERS_SPECIAL, "reasoning.injected"),
    _defect(Defect.STOP_IGNORED, "basics.stop"),
    _defect(Defect.LENGTH_IGNORED, "basics.length"),
    _defect(Defect.SEED_IGNORED, "basics.seed"),
    _defect(Defect.USAGE_MISSING, "basics.usage_stream"),
    _defect(Defect.USAGE_WRONG, "basics.usage_stream"),
    _defect(Defect.ANY_MODEL, "basics.unknown_model", "not_refused"),
    _defect(Defect.LIMIT_UNSAID, "context.over_long"),
    _defect(Defect.CUT_SILENTLY, "context.over_long", "not_refused"),
    _defect(Defect.UNICODE_MANGLED, "basics.chinese"),
    _defect(Defect.ANSWERS_MIXED, "basics.concurrency"),
    _defect(Defect.SLOTS_LOST, "basics.cancel", "slot_not_freed", interval_s=0.002),
    _defect(Defect.EXCLAMATIONS, "basics.stream", "garbage_text"),
    _defect(Defect.MIDDLE_LOST, "context.2k", "wrong_answer"),
    _defect(Defect.BLIND, "images.shape", "wrong_answer"),
    _defect(Defect.JSON_IGNORED, "structured.schema", "not_json"),
    _defect(Defect.STREAM_LOSES_END, "basics.parity", "stream_differs"),
    _defect(Defect.RESPONSES_REPEATED, "responses.stream", "marker_leak"),
    _defect(Defect.DYNAMIC_TOOLS_IGNORED, "tools.declared_later", "no_call"),
    _defect(Defect.DYNAMIC_TOOLS_UNCHECKED, "tools.declared_wrongly", "not_refused"),
    _defect(Defect.LIMIT_CRASHES, "context.just_over", "server_error"),
    _defect(Defect.PICTURE_CRASHES, "images.oversize", "server_error"),
    _defect(Defect.PICTURE_UNREAD, "images.broken", "not_refused"),
    _defect(Defect.PICTURE_INVENTED, "images.remote", "never_fetched"),
    _defect(Defect.EFFORT_REFUSED, "reasoning.effort", profile="acceptance"),
    _defect(Defect.CACHE_FORGETS, "basics.two_turns", "wrong_answer"),
    # Gateways, and pools apart, that do not pass on what the engine says.
    _front("front-loses-end", Defect.STREAM_LOSES_END, "text", "text_differs"),
    _front("front-without-thinking", Defect.THINKING_MISSING, "thinking", "reasoning_differs"),
    _front("front-without-parser", Defect.TOOL_CALL_AS_TEXT, "tools", "calls_differs"),
    _front("front-untypes-tools", Defect.TOOL_ARGUMENTS_UNTYPED, "tools", "calls_differs"),
    _front(
        "front-changes-template",
        Defect.TEMPLATE_CHANGED,
        "prompt_tokens",
        "prompt_tokens_differs",
    ),
    _front("front-takes-any-model", Defect.ANY_MODEL, "refusals", "failure_differs"),
    _front("front-mixes-answers", Defect.ANSWERS_MIXED, "together", "text_differs"),
    _front("transfer-loses-middle", Defect.MIDDLE_LOST, "long", "text_differs"),
    # Replies that do not arrive.
    _fault(
        "breaks-mid-stream", "stream_broken", Fault(kind=FaultKind.BREAK_STREAM, after_tokens=3)
    ),
    _fault("done-without-finish", "missing_finish_reason", Fault(kind=FaultKind.NO_FINISH_REASON)),
    _fault(
        "error-then-done",
        "stream_error_event",
        Fault(kind=FaultKind.ERROR_EVENT, after_tokens=3, done=True),
    ),
    _fault("garbage", "malformed", Fault(kind=FaultKind.GARBAGE, after_tokens=3)),
    _fault("half-a-chunk", "stream_broken", Fault(kind=FaultKind.TRUNCATED_JSON, after_tokens=3)),
    _fault("web-page", "malformed", Fault(kind=FaultKind.WRONG_CONTENT_TYPE)),
    _fault("flaky", "server_error", Fault(kind=FaultKind.REJECT, status=500)),
    _fault("no-room", "overloaded", Fault(kind=FaultKind.REJECT, status=503)),
    _fault("rate-limits", "rate_limited", Fault(kind=FaultKind.REJECT, status=429)),
    _fault("drops", "disconnected", Fault(kind=FaultKind.DROP)),
    _fault("silent", "timeout_first_byte", Fault(kind=FaultKind.HANG)),
    _fault("hangs", "timeout_gap", Fault(kind=FaultKind.HANG, after_tokens=3)),
)


def bad_server(name: str) -> BadServer:
    """The bad server of that name. Raises DEV005 when there is none."""
    for server in BAD_SERVERS:
        if server.name == name:
            return server
    raise HeavyliftError("DEV005", {"name": name}, hint_command="heavylift dev bad-server --list")
