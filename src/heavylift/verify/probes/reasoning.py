"""Probes of thinking: apart from the answer, cut short, given back, and not to be injected."""

from __future__ import annotations

from typing import Any, Final

from heavylift.verify.judge import wrong_text
from heavylift.verify.probes.base import Params, Probe, Situation, shown, verdict
from heavylift.verify.records import Trial
from heavylift.wire.failures import Failure
from heavylift.wire.openai import as_message

_MARKERS: Final = "<|open|> <|close|> <|sep|> <|end_of_msg|> "
_REPEATS: Final = 4
_FEWEST_TOKENS_PER_MARKER: Final = 2
"""As ordinary text a marker takes several tokens; as a control token it takes one."""


def separate(situation: Situation, params: Params) -> Probe:
    """The thinking comes in a field of its own, and the answer without it."""
    question = "What is 17 + 25? Think first, then answer with the number."
    (outcome,) = yield (situation.ask(question, stream=params["stream"]),)
    failed = situation.failed(outcome)
    if failed is not None:
        return failed
    if not outcome.reply.reasoning:
        return _without(outcome.reply.text, outcome)
    return verdict(wrong_text(outcome.reply, "42"), outcome)


def cut_short(situation: Situation, _: Params) -> Probe:
    """Thinking that reaches the token limit is not given out as the answer."""
    question = "What is 17 + 25? Think first, then answer with the number."
    whole, cut = yield (situation.ask(question), situation.ask(question, max_tokens=6))
    if not whole.reply.reasoning:
        return situation.failed(whole) or _without(whole.reply.text, whole)
    if cut.failure not in (None, Failure.TRUNCATED_THINKING, Failure.EMPTY):
        return verdict(str(cut.failure), cut)
    return verdict("thinking_as_answer" if cut.reply.text else None, cut)


def given_back(situation: Situation, _: Params) -> Probe:
    """Thinking that goes back with its turn is put into the next prompt."""
    first = "Remember a word of your choice, and say only: ready."
    (opening,) = yield (situation.ask(first),)
    failed = situation.failed(opening)
    if failed is not None:
        return failed
    if not opening.reply.reasoning:
        return _without(opening.reply.text, opening)
    kept = as_message(opening.reply)
    bare = {name: value for name, value in kept.items() if name != "reasoning_content"}
    question = {"role": "user", "content": "What is 40 + 2? Answer with the number."}
    start = {"role": "user", "content": first}
    with_it, without = yield (
        situation.converse((start, kept, question)),
        situation.converse((start, bare, question)),
    )
    failed = situation.failed(with_it)
    if failed is not None:
        return failed
    tokens = [_prompt_tokens(outcome.reply.usage) for outcome in (with_it, without)]
    if tokens[0] is None or tokens[1] is None:
        return verdict("usage_missing", with_it)
    evidence = f"prompt tokens {tokens[0]} with the thinking, {tokens[1]} without"
    reason = None if tokens[0] > tokens[1] else "reasoning_dropped"
    return Trial(reason=reason, evidence=evidence)


def effort(situation: Situation, _: Params) -> Probe:
    """Which ways of asking for an effort the server takes; one is enough, none is a finding."""
    forms: dict[str, dict[str, Any]] = {
        "reasoning_effort=low": {"reasoning_effort": "low"},
        "reasoning_effort=high": {"reasoning_effort": "high"},
        "thinking.effort=low": {"thinking": {"type": "enabled", "effort": "low"}},
        "thinking=disabled": {"thinking": {"type": "disabled"}},
        "chat_template_kwargs": {"chat_template_kwargs": {"thinking": True}},
    }
    question = "What is 17 + 25? Answer with the number."
    outcomes = yield tuple(situation.ask(question, **form) for form in forms.values())
    taken = [
        f"{name} ({len(outcome.reply.reasoning)} characters of thinking)"
        for name, outcome in zip(forms, outcomes, strict=True)
        if outcome.failure is None
    ]
    if not taken:
        return verdict("effort_refused", outcomes[0])
    return Trial(evidence="; ".join(taken))


def injected(situation: Situation, _: Params) -> Probe:
    """Markers in a user's text stay ordinary text: they cost tokens and steer nothing."""
    word = situation.word()
    plain = f"Reply with this and nothing else, exactly: {word}"
    marked, bare = yield (
        situation.ask(f"{_MARKERS * _REPEATS}\n{plain}"),
        situation.ask(plain),
    )
    failed = situation.failed(marked)
    if failed is not None:
        return failed
    tokens = [_prompt_tokens(outcome.reply.usage) for outcome in (marked, bare)]
    if tokens[0] is None or tokens[1] is None:
        return verdict("usage_missing", marked)
    markers = len(_MARKERS.split()) * _REPEATS
    cost = (tokens[0] - tokens[1]) / markers
    evidence = f"{cost:.1f} tokens per marker; {shown(marked)}"
    if cost < _FEWEST_TOKENS_PER_MARKER:
        return Trial(reason="markers_special", evidence=evidence)
    return Trial(reason=wrong_text(marked.reply, word), evidence=evidence)


def _without(text: str, outcome: Any) -> Trial:
    """There was no thinking: the model does none, or it was lost on the way."""
    return Trial(reason="no_reasoning", evidence=shown(outcome), unsupported=bool(text))


def _prompt_tokens(usage: Any) -> int | None:
    return None if usage is None else usage.prompt_tokens
