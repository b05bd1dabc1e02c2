"""Questions and grading: answers are checkable, failures stay apart from wrong answers."""

from __future__ import annotations

import contextlib
import io
import random
from collections import Counter

import pytest

from heavylift.bench.files import shipped_prose
from heavylift.quality.grade import grade, last_number
from heavylift.quality.questions import PER_GROUP, questions
from heavylift.quality.records import Question
from heavylift.wire.failures import Failure
from heavylift.wire.reply import Reply, ToolCall


@pytest.fixture(scope="module")
def asked() -> tuple[Question, ...]:
    """All questions of one seed."""
    chance = random.Random(4).random
    return questions(chance, shipped_prose())


def said(text: str, **given: object) -> Reply:
    """A finished reply."""
    fields = {"finish_reason": "stop", **given}
    return Reply(text=text, **fields)  # type: ignore[arg-type] # fields by name


def test_there_are_five_groups_of_forty_in_each_language(asked: tuple[Question, ...]) -> None:
    """Ids and texts of their own; at least forty of each group in English and in Chinese."""
    assert Counter(question.group for question in asked) == dict.fromkeys(
        ("facts", "logic", "code", "chinese", "summary"), PER_GROUP
    )
    assert len({question.id for question in asked}) == len(asked)
    chinese = Counter(question.group for question in asked if question.language == "zh")
    assert set(chinese.values()) == {PER_GROUP // 2}
    assert PER_GROUP // 2 >= 40
    assert len({question.text for question in asked}) == len(asked)


def test_every_question_accepts_its_right_answer_and_no_other(asked: tuple[Question, ...]) -> None:
    """The expected words, or the number last; a neighbouring number is wrong."""
    for question in asked:
        if question.number is not None:
            right, wrong = f"So it is {question.number}.", f"So it is {question.number + 1}."
        else:
            right = " and ".join(expected.split("|")[0] for expected in question.expected)
            wrong = "Something else."
        assert grade(question, said(right)).right
        graded = grade(question, said(wrong))
        assert (graded.right, graded.failure) == (False, None)


def test_the_programs_print_what_the_answers_say(asked: tuple[Question, ...]) -> None:
    """Run here, by the test alone: they are ours."""
    for question in (each for each in asked if each.group == "code"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(question.text.partition("\n\n")[2], {})  # noqa: S102 - a program of our own
        assert int(printed.getvalue()) == question.number


def test_the_facts_of_a_summary_stand_in_its_text(asked: tuple[Question, ...]) -> None:
    """And a summary that lacks one of them is wrong."""
    for question in (each for each in asked if each.group == "summary"):
        assert all(f" {code} " in question.text for code in question.expected)
        first, second, _ = question.expected
        assert not grade(question, said(f"{first} and {second}")).right


NUMBERED = Question(id="a", group="logic", language="en", text="?", number=12)


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (said("", failure=Failure.EMPTY), "empty"),
        (said("", failure=Failure.TRUNCATED_THINKING), "truncated"),
        (said("the sum of", finish_reason="length"), "truncated"),
        (said("I would rather not say"), "unparsable"),
        (said("I'm sorry, but I cannot help with 3 of it"), "refused"),
        (said("", failure=Failure.TOOL_ARGUMENTS_INVALID), "tool_error"),
        (said("12", tool_calls=(ToolCall(id="1", name="x", arguments=""),)), "tool_error"),
        (said("", failure=Failure.STREAM_BROKEN), "stream_broken"),
        (said("it is 13"), None),
        (said("it is 12, because", finish_reason="length"), None),
    ],
)
def test_failures_are_told_from_wrong_answers(reply: Reply, failure: str | None) -> None:
    """A format that went wrong looks like lost quality unless it is counted apart."""
    assert grade(NUMBERED, reply).failure == failure


@pytest.mark.parametrize(
    ("text", "number"),
    [("3 + 4 = 7", 7), ("1,234.", 1234), ("共12个", 12), ("-5.5 degrees", -5.5), ("none", None)],
)
def test_the_last_number_of_a_text_is_its_answer(text: str, number: float | None) -> None:
    """With separators, wide digits, signs."""
    assert last_number(text) == number
