"""Probes of two endpoints that stand for one: a gateway and its engine, prefill apart from decode.

The same greedy request goes to both. What the other endpoint does not answer alike when it is
asked twice proves nothing of this one: such a trial is undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from heavylift.verify.probes.base import Ask, Params, Probe, Situation, shown
from heavylift.verify.probes.tools import WEATHER
from heavylift.verify.records import Trial
from heavylift.wire.client import Outcome

_LONG_TOKENS: Final = 1500
"""Long enough for several pages of a cache, and for a transfer between two pools."""


def same(situation: Situation, params: Params) -> Probe:
    """Both endpoints give the same `part` of a reply to the same `kind` of request.

    Params: `kind` (`short`, `long`, `thinking`, `tool`, `refusal`), `part` (`text`, `reasoning`,
    `calls`, `prompt_tokens`, `failure`), `stream`.
    """
    ask = _KINDS[params["kind"]](situation, params)
    there_ask = replace(ask, elsewhere=True)
    (here,) = yield (ask,)
    (there,) = yield (there_ask,)
    read = _PARTS[params["part"]]
    if params["part"] != "failure":
        failed = situation.failed(there)
        if failed is not None:
            return replace(failed, undecided=True, evidence=f"the other: {failed.evidence}")
        failed = situation.failed(here)
        if failed is not None:
            return failed
    if read(here) == read(there):
        return Trial(evidence=shown(here))
    (again,) = yield (there_ask,)
    evidence = f"here {read(here)!r} | there {read(there)!r}"
    if read(again) != read(there):
        return Trial(reason="other_wavers", evidence=evidence, undecided=True)
    return Trial(reason=f"{params['part']}_differs", evidence=evidence)


def together(situation: Situation, params: Params) -> Probe:
    """Many at once give each the answer that the other endpoint gives alone."""
    words = [f"{situation.word()}{number}" for number in range(params["requests"])]
    asks = tuple(situation.ask(f"Repeat exactly: {word}", seed=1) for word in words)
    here = yield asks
    wrong = []
    for ask, outcome in zip(asks, here, strict=True):
        failed = situation.failed(outcome)
        if failed is not None:
            return failed
        (there,) = yield (replace(ask, elsewhere=True),)
        if there.failure is None and there.reply.text != outcome.reply.text:
            wrong.append(f"here {outcome.reply.text!r} | there {there.reply.text!r}")
    # A batch in common with others may change a word here and there, not the answers.
    reason = "text_differs" if len(wrong) * 2 > len(words) else None
    return Trial(reason=reason, evidence=f"{len(wrong)} of {len(words)} differ {' '.join(wrong)}")


def _short(situation: Situation, params: Params) -> Ask:
    question = f"Repeat exactly: {situation.word()} {situation.word()}"
    return situation.ask(question, stream=params.get("stream", True), seed=1)


def _long(situation: Situation, params: Params) -> Ask:
    chars = int(_LONG_TOKENS * situation.server.chars_per_token)
    start = situation.pick(max(1, len(situation.prose) - chars))
    number = 10000 + situation.pick(90000)
    middle = start + chars // 2
    text = (
        f"{situation.prose[start:middle]} The access number of Oslo is {number}. "
        f"{situation.prose[middle : start + chars]}\n\nWhat is the access number of Oslo?"
    )
    return situation.ask(text, stream=params.get("stream", True), seed=1)


def _thinking(situation: Situation, params: Params) -> Ask:
    one, other = 10 + situation.pick(40), 10 + situation.pick(40)
    question = f"What is {one} + {other}? Think first, then answer with the number."
    return situation.ask(question, stream=params.get("stream", True), seed=1)


def _tool(situation: Situation, params: Params) -> Ask:
    city = ("Paris", "Lima", "Oslo", "Cairo")[situation.pick(4)]
    return situation.ask(
        f"What is the weather in {city} right now, in celsius?",
        stream=params.get("stream", True),
        tools=[WEATHER],
        seed=1,
    )


def _refusal(situation: Situation, _: Params) -> Ask:
    bodies: tuple[dict[str, Any], ...] = ({"messages": "not a list"}, {"model": "no-such-model"})
    return situation.ask_with("Hello.", bodies[situation.number % len(bodies)], stream=False)


_KINDS: Final[dict[str, Callable[[Situation, Params], Ask]]] = {
    "short": _short,
    "long": _long,
    "thinking": _thinking,
    "tool": _tool,
    "refusal": _refusal,
}
_PARTS: Final[dict[str, Callable[[Outcome], Any]]] = {
    "text": lambda outcome: (outcome.reply.text, outcome.reply.finish_reason),
    "reasoning": lambda outcome: outcome.reply.reasoning,
    "calls": lambda outcome: [(call.name, call.arguments) for call in outcome.reply.tool_calls],
    "prompt_tokens": lambda outcome: (
        None if outcome.reply.usage is None else outcome.reply.usage.prompt_tokens
    ),
    "failure": lambda outcome: outcome.failure,
}
