"""Grading: right or wrong by what is in the answer, and why there was none. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from heavylift.quality.programs import is_right
from heavylift.quality.records import Answer, Question
from heavylift.wire.failures import Failure
from heavylift.wire.reply import Reply

_NUMBER: Final = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_REFUSALS: Final = (
    "i cannot help",
    "i can't help",
    "i'm sorry, but i can",
    "as an ai",
    "我无法",
    "我不能提供",
)
_KEPT_CHARS: Final = 2000


def grade(question: Question, reply: Reply, printed: str | None = None) -> Answer:
    """The graded answer. Failures stay apart from wrong answers: `empty`, `truncated`,
    `unparsable` (a number or a program was asked for and there is none), `refused`, `tool_error`,
    else the transport's own class. `printed` is what the program of a question with cases printed;
    None = there was none to run.
    """
    text = reply.text
    failure = _failure(question, reply, printed)
    right = failure is None and _is_right(question, text, printed)
    return Answer(
        question=question.id,
        group=question.group,
        right=right,
        text=text[:_KEPT_CHARS],
        failure=failure,
    )


def last_number(text: str) -> float | None:
    """The last number of a text; None when there is none."""
    found = _NUMBER.findall(unicodedata.normalize("NFKC", text))
    return float(found[-1].replace(",", "")) if found else None


_NAMED: Final = {
    Failure.TOOL_CALLS_LOST: "tool_error",
    Failure.TOOL_ARGUMENTS_INVALID: "tool_error",
    Failure.TRUNCATED_THINKING: "truncated",
}


def _failure(question: Question, reply: Reply, printed: str | None) -> str | None:
    if reply.failure is not None:
        return _NAMED.get(reply.failure, str(reply.failure))
    if reply.tool_calls:
        return "tool_error"
    # An answer that was cut after it had been given is an answer.
    if _is_right(question, reply.text, printed):
        return None
    return _why_not(question, reply, printed)


def _why_not(question: Question, reply: Reply, printed: str | None) -> str | None:
    """Why a text is no answer; None = it is one, and wrong."""
    if any(phrase in reply.text.casefold() for phrase in _REFUSALS):
        return "refused"
    if reply.finish_reason == "length":
        return "truncated"
    if question.function is not None:
        return "unparsable" if printed is None else None
    asks_number = question.number is not None
    return "unparsable" if asks_number and last_number(reply.text) is None else None


def _is_right(question: Question, text: str, printed: str | None) -> bool:
    if question.function is not None:
        return printed is not None and is_right(question, printed)
    if question.number is not None:
        return last_number(text) == question.number
    plain = _plain(text)
    return all(
        any(_plain(form) in plain for form in expected.split("|")) for expected in question.expected
    )


def _plain(text: str) -> str:
    """The text as it is compared: case, width and spaces do not matter."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(folded.split())
