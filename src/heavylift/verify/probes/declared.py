"""Probes of tools that a system message declares inside the conversation, and of known counts."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heavylift.verify.probes.base import Params, Probe, Situation, refused, shown, verdict
from heavylift.verify.probes.tools import WEATHER
from heavylift.verify.records import Trial
from heavylift.wire.failures import Failure

_QUESTION: Final = {"role": "user", "content": "What is the weather in Paris right now?"}
_LONGEST_NAME: Final = 256


def _declares(*tools: Any, role: str = "system", content: str = "") -> dict[str, Any]:
    return {"role": role, "content": content, "tools": list(tools)}


def callable_later(situation: Situation, _: Params) -> Probe:
    """A tool declared in the middle of a conversation is called when it is needed.

    A server that passes the declaration over has not got the feature: that is a finding only
    where the model is known to have it.
    """
    streams = situation.number % 2 == 0
    opening = ({"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"})
    messages = (*opening, _declares(WEATHER), _QUESTION)
    (outcome,) = yield (situation.converse(messages, stream=streams),)
    unsupported = refused(outcome)
    if unsupported is not None:
        return unsupported
    failed = situation.failed(outcome)
    if failed is not None:
        return failed
    names = [call.name for call in outcome.reply.tool_calls]
    if "get_weather" not in names:
        return Trial(reason="no_call", evidence=shown(outcome), unsupported=True)
    return verdict(None, outcome)


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {**WEATHER["function"], "name": name}}


_SENSELESS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("in a user's message", _declares(WEATHER, role="user", content="Hello.")),
    ("in an assistant's message", _declares(WEATHER, role="assistant", content="Hello.")),
    ("the same name twice", _declares(WEATHER, WEATHER)),
    ("a name with a sign", _declares(_named("bad@name"))),
    ("a name too long", _declares(_named("a" * (_LONGEST_NAME + 1)))),
    ("no name", _declares({"type": "function", "function": {"description": "nothing"}})),
    ("no list", {"role": "system", "content": "", "tools": "get_weather"}),
)


def senseless(situation: Situation, _: Params) -> Probe:
    """A declaration that makes no sense is refused as a bad request.

    Source of the cases: Moonshot's Kimi-Vendor-Verifier, tests of dynamic tools.
    """
    title, declared = _SENSELESS[situation.number % len(_SENSELESS)]
    (outcome,) = yield (situation.converse((declared, _QUESTION), stream=False),)
    if outcome.failure is Failure.BAD_REQUEST:
        return Trial(evidence=f"{title}: {shown(outcome)}")
    reason = "not_refused" if outcome.failure is None else str(outcome.failure)
    return Trial(reason=reason, evidence=f"{title}: {shown(outcome)}", unsupported=True)


def golden(situation: Situation, params: Params) -> Probe:
    """The prompt of a known request has the number of tokens that is known of it.

    A template that was changed, or rendered by another hand, shows here before it shows in
    answers. Params: `content`, `body` (JSON), `prompt_tokens`.
    """
    body = msgspec.json.decode(params["body"], type=dict[str, Any])
    (outcome,) = yield (situation.ask_with(params["content"], body, stream=False, max_tokens=16),)
    unsupported = refused(outcome)
    if unsupported is not None:
        return unsupported
    usage = outcome.reply.usage
    if usage is None or usage.prompt_tokens is None:
        return verdict("usage_missing", outcome)
    found, known = usage.prompt_tokens, params["prompt_tokens"]
    evidence = f"{found} prompt tokens, {known} are known"
    return Trial(reason=None if found == known else "prompt_tokens_differ", evidence=evidence)
