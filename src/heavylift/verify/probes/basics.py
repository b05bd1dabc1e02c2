"""Probes of the protocol: answers, streams, counts, limits, refusals, many at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from heavylift.verify.judge import wrong_text, wrong_usage
from heavylift.verify.probes.base import (
    Params,
    Probe,
    Situation,
    refused,
    refused_route,
    shown,
    verdict,
)
from heavylift.verify.records import Trial
from heavylift.wire.client import Outcome
from heavylift.wire.failures import Failure
from heavylift.wire.openai import as_message


def listed(situation: Situation, _: Params) -> Probe:
    """The model asked for is listed, and the server calls itself healthy."""
    yield from ()  # nothing to ask: the server was looked at before
    server = situation.server
    if server.health not in (None, Failure.NOT_FOUND):
        return Trial(reason=str(server.health), evidence="/health")
    evidence = ", ".join(server.listed)
    return Trial(
        reason=None if server.model in server.listed else "model_not_listed", evidence=evidence
    )


def answer(situation: Situation, params: Params) -> Probe:
    """A sum is added up; `stream` says how the answer is to come, `route` where it is asked."""
    one, other = 10 + situation.pick(40), 10 + situation.pick(40)
    question = f"What is {one} + {other}? Answer with the number."
    route = params.get("route", "chat")
    (outcome,) = yield (situation.ask(question, stream=params["stream"], route=route),)
    failed = refused_route(outcome, params) or situation.failed(outcome)
    if failed is not None:
        return failed
    reason = wrong_text(outcome.reply, str(one + other))
    return verdict(reason, outcome, ttft_s=outcome.latency.ttft_s)


def healthy_text(situation: Situation, params: Params) -> Probe:
    """Whatever is answered is text: it ends in order, and no sign fills it (`!!!!`)."""
    route, stream = params.get("route", "chat"), params.get("stream", True)
    (outcome,) = yield (situation.ask(params["question"], stream=stream, route=route),)
    failed = refused_route(outcome, params) or situation.failed(outcome)
    gaps = outcome.latency.itl_s
    gap_s = sum(gaps) / len(gaps) if gaps else None
    return failed or verdict(None, outcome, ttft_s=outcome.latency.ttft_s, gap_s=gap_s)


def parity(situation: Situation, _: Params) -> Probe:
    """The same greedy request is answered with the same words, streamed or not."""
    question = f"Repeat exactly: {situation.word()} {situation.word()} {situation.word()}"
    # One after the other: in one batch the two would not be computed alike.
    (streamed,) = yield (situation.ask(question, seed=1),)
    (whole,) = yield (situation.ask(question, seed=1, stream=False),)
    # Two empty answers agree; that they are empty is another check's business.
    failed = situation.failed(streamed) or situation.failed(whole)
    if failed is not None and {streamed.failure, whole.failure} - {None, Failure.EMPTY}:
        return failed
    same = streamed.reply.text == whole.reply.text
    if same and streamed.reply.finish_reason == whole.reply.finish_reason:
        return verdict(None, whole)
    return Trial(reason="stream_differs", evidence=f"{shown(streamed)} | {shown(whole)}")


def usage(situation: Situation, params: Params) -> Probe:
    """Token counts come with the answer, and are no less than the chunks that came."""
    (outcome,) = yield (situation.ask("Count from 1 to 12.", stream=params["stream"]),)
    failed = situation.failed(outcome)
    if failed is not None:
        return failed
    return verdict(wrong_usage(outcome.reply, _chunks(outcome)), outcome)


def _chunks(outcome: Outcome) -> int:
    return 0 if outcome.latency.ttft_s is None else len(outcome.latency.itl_s) + 1


def length(situation: Situation, _: Params) -> Probe:
    """`max_tokens` ends the generation, and the finish reason says so."""
    limit = 6
    (outcome,) = yield (situation.ask("Count from 1 to 200.", max_tokens=limit),)
    reply = outcome.reply
    counted = None if reply.usage is None else reply.usage.completion_tokens
    got = counted or _chunks(outcome)
    if outcome.failure not in (None, Failure.TRUNCATED_THINKING, Failure.EMPTY):
        return verdict(str(outcome.failure), outcome)
    if got > limit or len(reply.text) > _WIDEST_TOKEN * limit:
        return verdict("length_ignored", outcome, completion_tokens=got)
    return verdict(None if reply.finish_reason == "length" else "wrong_finish_reason", outcome)


_WIDEST_TOKEN = 24
"""Characters: no vocabulary has a word so long for what is asked here."""


def stop(situation: Situation, _: Params) -> Probe:
    """A stop sequence ends the text before it."""
    (outcome,) = yield (situation.ask("Count from 1 to 9.", stop=["7"]),)
    if outcome.failure not in (None, Failure.EMPTY):
        return situation.failed(outcome) or verdict(str(outcome.failure), outcome)
    return verdict("stop_ignored" if "7" in outcome.reply.text else None, outcome)


def seed(situation: Situation, _: Params) -> Probe:
    """Sampling twice with one seed gives one answer."""
    question = "Write one line about a colour of your choice."
    once = situation.ask(question, temperature=1.0, seed=11 + situation.number)
    (first,) = yield (once,)
    (second,) = yield (once,)
    failed = situation.failed(first) or situation.failed(second)
    if failed is not None:
        return failed
    same = first.reply.text == second.reply.text
    evidence = f"{shown(first)} | {shown(second)}"
    return Trial(reason=None if same else "seed_ignored", evidence=evidence)


def echo(situation: Situation, params: Params) -> Probe:
    """A text in another script comes back as it was, over any cut of its bytes."""
    text = f"{params['text']}{situation.pick(1000)}"
    (outcome,) = yield (situation.ask(f"Reply with this and nothing else, exactly: {text}"),)
    failed = situation.failed(outcome)
    return failed or verdict(wrong_text(outcome.reply, params["text"]), outcome)


def refusal(situation: Situation, params: Params) -> Probe:
    """A request that makes no sense is refused with one of the classes that say so."""
    (outcome,) = yield (situation.ask_with("Hello.", params["body"], stream=False),)
    if str(outcome.failure) in params["classes"]:
        return verdict(None, outcome)
    if outcome.failure is None or outcome.status == _OK:
        return verdict("not_refused", outcome)
    return verdict(str(outcome.failure), outcome)


_OK = 200


def concurrency(situation: Situation, params: Params) -> Probe:
    """One at a time, then two, four, up to `requests`: each gets the answer to its own question."""
    wrong, at_once = 0, 1
    while True:
        words = [f"{situation.word()}{number}" for number in range(at_once)]
        outcomes = yield tuple(
            situation.ask(f"Reply with this and nothing else, exactly: {word}") for word in words
        )
        for word, outcome in zip(words, outcomes, strict=True):
            failed = situation.failed(outcome)
            if failed is not None:
                return replace(failed, evidence=f"{at_once} at once: {failed.evidence}")
            text = outcome.reply.text
            if word not in text and any(other in text for other in words if other != word):
                return verdict("answers_mixed", outcome)
            wrong += word not in text
        if at_once >= params["requests"]:
            return Trial(evidence=f"up to {at_once} at once, {wrong} not word for word")
        at_once = min(2 * at_once, params["requests"])


def cancel(situation: Situation, params: Params) -> Probe:
    """After clients that left in the middle of long answers, the next one is served."""
    long = "Write a story of a thousand words about a lighthouse. Count from 1 to 2000 in it."
    yield tuple(
        situation.ask(long, max_tokens=params["tokens"], leave_after=2)
        for _ in range(params["requests"])
    )
    (outcome,) = yield (situation.ask("What is 2 + 3?"),)
    if outcome.failure in (Failure.OVERLOADED, Failure.RATE_LIMITED, Failure.TIMEOUT_FIRST_BYTE):
        return verdict("slot_not_freed", outcome)
    return situation.failed(outcome) or verdict(None, outcome, e2e_s=outcome.latency.e2e_s)


def other_route(situation: Situation, params: Params) -> Probe:
    """Another protocol's route, where there is one, answers the same question."""
    (outcome,) = yield (
        situation.ask("What is 12 + 30? Answer with the number.", route=params["route"]),
    )
    unsupported = refused(outcome)
    if unsupported is not None:
        return unsupported
    if params.get("any_text") and outcome.failure is Failure.EMPTY:
        return verdict(None, outcome)  # a bare prompt may well be complete as it stands
    failed = situation.failed(outcome)
    if failed is not None or params.get("any_text"):
        return failed or verdict(None, outcome)
    return verdict(wrong_text(outcome.reply, "42"), outcome)


def recalled(situation: Situation, params: Params) -> Probe:
    """A number told before is said when it is asked for: told in the system message, or in an
    earlier turn (whose prompt a prefix cache then has). Params: `told` (`system`, `turn`), `route`.
    """
    route = params.get("route", "chat")
    number = str(10000 + situation.pick(90000))
    told = f"The access number of Oslo is {number}."
    question = {"role": "user", "content": "What is the access number of Oslo?"}
    history: tuple[dict[str, Any], ...] = ({"role": "system", "content": told},)
    if params["told"] == "turn":
        first = {"role": "user", "content": f"{told} Say only: ready."}
        (opening,) = yield (situation.converse((first,), route=route),)
        failed = refused_route(opening, params) or situation.failed(opening)
        if failed is not None:
            return failed
        history = (first, as_message(opening.reply))
    (outcome,) = yield (situation.converse((*history, question), route=route),)
    failed = refused_route(outcome, params) or situation.failed(outcome)
    if failed is not None:
        return failed
    usage = outcome.reply.usage
    cached = None if usage is None else usage.cached_tokens
    return verdict(wrong_text(outcome.reply, number), outcome, cached_tokens=cached)


FIXED: Final = (
    "List the first ten prime numbers, separated by commas.",
    "Translate into Chinese: The harbour is quiet in the morning.",
    "Name the planets of the solar system in order.",
    "Write a Python function that returns the larger of two numbers.",
    "用一句话解释什么是光合作用。",
    "Give three synonyms of the word 'quick'.",
    "What is 17 times 23? Show the steps.",
    "Complete the sentence: The lighthouse keeper climbs the stairs because",
)
_FIXED_TOKENS: Final = 64


def remembered(situation: Situation, _: Params) -> Probe:
    """The greedy answer to a question that never changes is what the earlier release said."""
    question = FIXED[situation.number % len(FIXED)]
    (outcome,) = yield (situation.ask(question, max_tokens=_FIXED_TOKENS, seed=1),)
    reply = outcome.reply
    if outcome.failure not in (None, Failure.TRUNCATED_THINKING, Failure.EMPTY):
        return situation.failed(outcome) or verdict(str(outcome.failure), outcome)
    said = f"{reply.reasoning}\n{reply.text}".strip()
    before = situation.earlier.get(question)
    if before is None:
        return Trial(evidence=shown(outcome), unsupported=True, answer=(question, said))
    reason = None if said == before else "text_differs"
    evidence = shown(outcome) if reason is None else f"now {said[:120]!r} | before {before[:120]!r}"
    return Trial(reason=reason, evidence=evidence, answer=(question, said))


def own_question(situation: Situation, params: Params) -> Probe:
    """A check of the user's own: `question`, and what must be in the answer (`contains`)."""
    (outcome,) = yield (
        situation.ask_with(
            params["question"],
            params.get("extra", {}),
            stream=params.get("stream", True),
            max_tokens=params.get("max_tokens"),
        ),
    )
    failed = situation.failed(outcome)
    if failed is not None:
        return failed
    missing = [text for text in params.get("contains", ()) if text not in outcome.reply.text]
    barred = [text for text in params.get("lacks", ()) if text in outcome.reply.text]
    return verdict("wrong_answer" if missing or barred else None, outcome)
