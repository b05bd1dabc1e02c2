"""Probes of tools and structured output, over a family of JSON schemas made here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from heavylift.verify.judge import schema_problem, wrong_text
from heavylift.verify.probes.base import Params, Probe, Situation, refused, shown, verdict
from heavylift.verify.probes.schemas import family_member, object_of, schemas
from heavylift.verify.records import Trial
from heavylift.wire.client import Outcome
from heavylift.wire.failures import UNDECODABLE, Failure
from heavylift.wire.openai import as_message
from heavylift.wire.reply import ToolCall

_CITIES: Final = ("Paris", "Lima", "Oslo", "Cairo", "Delhi", "Quito")
_TALK: Final = (
    "Say good morning in one short sentence.",
    "What is 3 + 4? Answer with the number.",
    "Name a colour.",
)

WEATHER: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, now.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}


def forced(situation: Situation, _: Params) -> Probe:
    """A call that is required comes, to the right tool, with arguments its schema allows."""
    name, schema = family_member(situation.number, situation.chance)
    streams = situation.number // len(schemas()) % 2 == 0
    tool = {
        "type": "function",
        "function": {
            "name": f"save_{name}",
            "description": "Save a record. Fill in every field with an example.",
            "parameters": schema,
        },
    }
    (outcome,) = yield (
        situation.ask(
            "Save a record with example values.",
            stream=streams,
            tools=[tool],
            tool_choice="required",
        ),
    )
    problem = _tool_trouble(situation, outcome)
    if problem is not None:
        return problem
    call = outcome.reply.tool_calls[0]
    if call.name != f"save_{name}":
        return verdict("wrong_tool", outcome)
    return _valid(call, schema, outcome)


def triggered(situation: Situation, params: Params) -> Probe:
    """A question that needs the tool calls it (recall), with the city that was asked for."""
    city = _CITIES[situation.pick(len(_CITIES))]
    (outcome,) = yield (
        situation.ask(
            f"What is the weather in {city} right now, in celsius?",
            tools=[WEATHER],
            tool_choice="auto",
            stream=situation.number % 2 == 0,
            route=params.get("route", "chat"),
        ),
    )
    problem = _tool_trouble(situation, outcome)
    if problem is not None:
        return problem
    call = outcome.reply.tool_calls[0]
    trial = _valid(call, WEATHER["function"]["parameters"], outcome)
    if trial.reason is None and city not in call.arguments:
        return verdict("wrong_arguments", outcome)
    return trial


def abstained(situation: Situation, params: Params) -> Probe:
    """A question that needs no tool calls none (precision); with `choice` none, never."""
    choice = params["choice"]
    weather = "What is the weather in Paris right now?"
    question = weather if choice == "none" else _TALK[situation.number % len(_TALK)]
    (outcome,) = yield (situation.ask(question, tools=[WEATHER], tool_choice=choice),)
    unsupported = refused(outcome)
    if unsupported is not None:
        return unsupported
    if outcome.reply.tool_calls:
        return verdict("needless_call", outcome)
    return situation.failed(outcome) or verdict(None, outcome)


def parallel(situation: Situation, _: Params) -> Probe:
    """Two things asked at once are two calls in one answer."""
    (outcome,) = yield (
        situation.ask(
            "What is the weather in Paris and Lima right now, in celsius? Ask for both at once.",
            tools=[WEATHER],
            parallel_tool_calls=True,
        ),
    )
    problem = _tool_trouble(situation, outcome)
    if problem is not None:
        return problem
    asked = {
        city
        for city in ("Paris", "Lima")
        for call in outcome.reply.tool_calls
        if city in call.arguments
    }
    return verdict(None if len(asked) == 2 else "calls_missing", outcome)  # noqa: PLR2004 - both


def round_trip(situation: Situation, _: Params) -> Probe:
    """What a tool returned is in the answer; the call goes back unchanged, thinking included."""
    question = "What is the weather in Paris right now, in celsius?"
    (called,) = yield (situation.ask(question, tools=[WEATHER]),)
    problem = _tool_trouble(situation, called)
    if problem is not None:
        return problem
    degrees = str(20 + situation.pick(70) / 10)
    call = called.reply.tool_calls[0]
    history = ({"role": "user", "content": question}, as_message(called.reply))
    result = {"role": "tool", "tool_call_id": call.id, "content": f"{degrees} degrees, dry"}
    (outcome,) = yield (situation.converse((*history, result), tools=[WEATHER]),)
    failed = situation.failed(outcome)
    return failed or verdict(wrong_text(outcome.reply, degrees), outcome)


def in_pieces(situation: Situation, _: Params) -> Probe:
    """Arguments of a streamed call arrive as they are made, not all at the end."""
    names = {f"sentence_{number}": {"type": "string"} for number in range(4)}
    tool = {
        "type": "function",
        "function": {
            "name": "save_sentences",
            "description": "Save four sentences.",
            "parameters": object_of(names),
        },
    }
    (outcome,) = yield (
        situation.ask("Save four long sentences.", tools=[tool], tool_choice="required"),
    )
    problem = _tool_trouble(situation, outcome)
    if problem is not None:
        return problem
    chunks = len(outcome.latency.itl_s) + 1
    reasoning_chunks = len(outcome.reply.reasoning.split())
    in_call = chunks - reasoning_chunks
    longest_s = max(outcome.latency.itl_s, default=0.0)
    reason = "arguments_at_once" if in_call <= 1 else None
    return verdict(reason, outcome, longest_gap_s=longest_s)


def structured(situation: Situation, params: Params) -> Probe:
    """An answer in the form asked for: any JSON object, or one that a schema allows."""
    name, schema = family_member(situation.number, situation.chance)
    form: dict[str, Any] = {"type": params["form"]}
    if params["form"] == "json_schema":
        form["json_schema"] = {"name": name, "schema": schema, "strict": True}
    (outcome,) = yield (
        situation.ask(
            "Answer in JSON with example values.",
            response_format=form,
            stream=situation.number % 2 == 0,
        ),
    )
    unsupported = refused(outcome)
    if unsupported is not None:
        return unsupported
    failed = situation.failed(outcome)
    if failed is not None:
        return failed
    try:
        value = msgspec.json.decode(outcome.reply.text)
    except UNDECODABLE:
        cut = outcome.reply.finish_reason == "length"
        return verdict("truncated" if cut else "not_json", outcome)
    if params["form"] == "json_object":
        return verdict(None if isinstance(value, dict) else "not_json", outcome)
    problem = schema_problem(value, schema)
    return Trial(
        reason=None if problem is None else "schema_violation", evidence=problem or shown(outcome)
    )


# --- what can go wrong with any call -------------------------------------------------------------


def _tool_trouble(situation: Situation, outcome: Outcome) -> Trial | None:
    """Why there is no call to look at; None = there is one.

    A call that never left the thinking is told apart from one that was never made.
    """
    unsupported = refused(outcome)
    if unsupported is not None:
        return unsupported
    reply = outcome.reply
    if not reply.tool_calls and any(marker in reply.reasoning for marker in situation.markers):
        return verdict("call_in_thinking", outcome)
    if reply.failure is Failure.TOOL_ARGUMENTS_INVALID and reply.finish_reason == "length":
        return verdict("truncated", outcome)  # cut at the room it had, not made wrong
    if reply.failure is not None:
        return verdict(str(reply.failure), outcome)
    if not reply.tool_calls:
        looks_like_call = '"arguments"' in reply.text or '"parameters"' in reply.text
        return verdict("call_as_text" if looks_like_call else "no_call", outcome)
    return situation.failed(outcome)


def _valid(call: ToolCall, schema: Mapping[str, Any], outcome: Outcome) -> Trial:
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except UNDECODABLE:
        return verdict(str(Failure.TOOL_ARGUMENTS_INVALID), outcome)
    problem = schema_problem(arguments, schema)
    if problem is None:
        return verdict(None, outcome)
    return Trial(reason="schema_violation", evidence=problem)
