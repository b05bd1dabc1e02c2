"""Probes of length: needles at several depths, rung by rung, and the prompt that is too long."""

from __future__ import annotations

from typing import Final

from heavylift.verify.judge import wrong_text
from heavylift.verify.probes.base import Params, Probe, Situation, shown, verdict
from heavylift.verify.records import Trial
from heavylift.wire.client import Outcome
from heavylift.wire.failures import Failure

_CITIES: Final = ("Lisbon", "Oslo", "Nairobi", "Quito", "Hanoi", "Tallinn", "Accra", "Perth")


def needle(situation: Situation, params: Params) -> Probe:
    """A number told at one depth of a long text is found again.

    Params: `tokens` of the rung, `depths` (0 to 1), taken in turn by the trials.
    """
    depths = params["depths"]
    depth = depths[situation.number % len(depths)]
    city = _CITIES[situation.pick(len(_CITIES))]
    number = str(10000 + situation.pick(90000))
    room = params["tokens"] - situation.answer_tokens - _MARGIN
    for _ in range(_TRIES):
        prompt = _with_needle(_filled(situation, room), depth, city, number)
        (outcome,) = yield (situation.ask(prompt),)
        if outcome.failure is not Failure.CONTEXT_TOO_LONG:
            break
        # Prose differs in tokens per character from place to place: not the server's fault yet.
        room = int(room * _SHRINK)
    failed = situation.failed(outcome)
    if failed is not None:
        return failed
    usage, ttft_s = outcome.reply.usage, outcome.latency.ttft_s
    tokens = None if usage is None else usage.prompt_tokens
    return verdict(
        wrong_text(outcome.reply, number),
        outcome,
        prompt_tokens=tokens,
        ttft_s=ttft_s,
        prefill_tokens_per_s=tokens / ttft_s if tokens and ttft_s else None,
    )


def over_long(situation: Situation, _: Params) -> Probe:
    """A prompt over the limit is refused, and the refusal says the limit."""
    limit = situation.server.context_tokens
    if limit is None:
        return Trial(reason="context_unknown", unsupported=True)
    # Two tokens a word at least: over the limit with any vocabulary, and not by far.
    words = " ".join(f"{1000 + number % 9000}" for number in range(limit + _MARGIN))
    (outcome,) = yield (situation.ask(words, max_tokens=4),)
    return _refusal(outcome, limit)


def just_over(situation: Situation, _: Params) -> Probe:
    """A prompt over the limit by a word or two is refused like one that is over by far.

    The tokens of a word, repeated, are counted by the server itself with two short prompts.
    """
    limit = situation.server.context_tokens
    if limit is None:
        return Trial(reason="context_unknown", unsupported=True)
    short, longer = yield tuple(
        situation.ask(_repeated(count), max_tokens=4) for count in (_COUNTED, 2 * _COUNTED)
    )
    counts = [
        None if outcome.reply.usage is None else outcome.reply.usage.prompt_tokens
        for outcome in (short, longer)
    ]
    if counts[0] is None or counts[1] is None or counts[1] <= counts[0]:
        return verdict("usage_missing", short)
    each = (counts[1] - counts[0]) / _COUNTED
    words = _COUNTED + int((limit - counts[0]) / each) + 2
    (outcome,) = yield (situation.ask(_repeated(words), max_tokens=4),)
    return _refusal(outcome, limit)


_COUNTED: Final = 64


def _repeated(words: int) -> str:
    return "river " * words


def _refusal(outcome: Outcome, limit: int) -> Trial:
    """Whether a prompt over the limit was refused for what it is, with the limit said."""
    if outcome.failure is None or outcome.failure in (Failure.EMPTY, Failure.TRUNCATED_THINKING):
        return verdict("not_refused", outcome)
    if outcome.failure is not Failure.CONTEXT_TOO_LONG:
        return verdict(str(outcome.failure), outcome)
    message = outcome.reply.error.message if outcome.reply.error else ""
    says_limit = str(limit) in message.replace(",", "").replace("_", "")
    return Trial(reason=None if says_limit else "limit_unsaid", evidence=shown(outcome))


_MARGIN: Final = 128
"""Tokens for the template around a prompt."""
_TRIES: Final = 3
_SHRINK: Final = 0.93
_FEWEST_CHARS: Final = 200


def _with_needle(text: str, depth: float, city: str, number: str) -> str:
    place = _sentence_end(text, int(depth * len(text)))
    told = f" The access number of {city} is {number}. "
    return f"{text[:place]}{told}{text[place:]}\n\nWhat is the access number of {city}?"


def _filled(situation: Situation, tokens: int) -> str:
    """Prose of about so many tokens, from a place of its own: no cache has seen it."""
    length = max(_FEWEST_CHARS, int(tokens * situation.server.chars_per_token))
    prose = situation.prose
    start = situation.pick(len(prose))
    text = prose[start:] + prose * (length // len(prose) + 1)
    return text[:length]


def _sentence_end(text: str, place: int) -> int:
    """The end of the first sentence after `place`, so that the needle cuts none in two."""
    found = text.find(". ", place)
    return len(text) if found < 0 else found + 1
