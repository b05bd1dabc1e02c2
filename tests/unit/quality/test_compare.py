"""Comparisons: verdicts from graded answers."""

from __future__ import annotations

import random

import pytest

from heavylift.quality.compare import by_item, contrasts, overall_verdict, same_text
from heavylift.quality.records import Answer, Contrast, Verdict


def answers(right: list[bool], group: str = "facts", text: str = "") -> list[Answer]:
    """Graded answers to the questions 0, 1, … of a group."""
    return [
        Answer(question=f"{group}-{number}", group=group, right=each, text=text)
        for number, each in enumerate(right)
    ]


def compared(
    reference: list[Answer], candidate: list[Answer], margin: float = 0.05
) -> tuple[Contrast, ...]:
    """The contrasts."""
    chance = random.Random(3).random
    return contrasts(by_item(reference), by_item(candidate), margin=margin, chance=chance)


def test_many_equal_answers_are_equivalent() -> None:
    """200 items, none differs: within five points, at 90 %."""
    right = [number % 3 > 0 for number in range(200)]
    whole, _ = compared(answers(right), answers(right))
    assert whole.verdict is Verdict.EQUIVALENT
    assert whole.difference == 0
    assert whole.more_items == 0


def test_few_equal_answers_are_not_enough_data() -> None:
    """No difference seen in 20 items is no proof that there is none; it says how many more."""
    right = [True] * 15 + [False] * 5
    whole, _ = compared(answers(right), answers(right))
    assert whole.verdict is Verdict.NOT_ENOUGH_DATA
    again = [True] * 15 + [False] * 5 + [True] * (whole.more_items + 1)
    assert compared(answers(again), answers(again))[0].verdict is Verdict.EQUIVALENT


def test_a_candidate_that_loses_answers_is_worse() -> None:
    """Twelve lost of a hundred, one won: exact test and interval below zero."""
    reference = [True] * 80 + [False] * 20
    candidate = [False] * 12 + [True] * 69 + [False] * 19
    whole, _ = compared(answers(reference), answers(candidate))
    assert whole.verdict is Verdict.WORSE
    assert whole.difference == pytest.approx(-0.11)
    assert whole.interval.low < -0.11 < whole.interval.high < 0
    # Of 13 differing items at most one to one side: 2 · (1 + 13) / 2^13.
    assert whole.p_value == pytest.approx(28 / 2**13)


def test_a_candidate_that_wins_answers_is_better() -> None:
    """The same the other way round."""
    right, wrong = [True] * 100, [False] * 15 + [True] * 85
    assert compared(answers(wrong), answers(right))[0].verdict is Verdict.BETTER


def test_a_reference_that_knows_nothing_proves_nothing() -> None:
    """All wrong on both sides: nobody can fall short of that."""
    wrong = [False] * 500
    assert compared(answers(wrong), answers(wrong))[0].verdict is Verdict.NOT_ENOUGH_DATA


def test_a_group_that_is_worse_is_not_hidden_by_the_average() -> None:
    """One group of five loses half of its answers; the whole loses few."""
    reference, candidate = [], []
    for group in ("a", "b", "c", "d"):
        reference += answers([True] * 200, group)
        candidate += answers([True] * 200, group)
    reference += answers([True] * 40, "e")
    candidate += answers([True] * 28 + [False] * 12, "e")
    found = compared(reference, candidate)
    assert found[0].verdict is Verdict.EQUIVALENT
    assert {each.group: each.verdict for each in found}["e"] is Verdict.WORSE
    assert overall_verdict(found) is Verdict.WORSE


def test_p_values_of_groups_are_adjusted_for_their_number() -> None:
    """Six of six lost is p = 0.03 by itself, and no finding among four groups."""
    reference, candidate = [], []
    for group in ("a", "b", "c"):
        reference += answers([True] * 40, group)
        candidate += answers([True] * 40, group)
    reference += answers([True] * 40, "d")
    candidate += answers([True] * 34 + [False] * 6, "d")
    last = compared(reference, candidate)[-1]
    assert last.p_value == pytest.approx(2 * 2**-6)
    assert last.adjusted_p_value == pytest.approx(4 * 2 * 2**-6)
    assert last.verdict is Verdict.NOT_ENOUGH_DATA


def test_several_samples_of_an_item_are_one_cluster() -> None:
    """Five samples of each of 30 items are 30 items, not 150."""
    reference = [answer for answer in answers([True] * 30) for _ in range(5)]
    candidate = [answer for answer in answers([True] * 26 + [False] * 4) for _ in range(5)]
    whole, _ = compared(reference, candidate)
    assert whole.items == 30
    assert whole.verdict is Verdict.NOT_ENOUGH_DATA
    assert whole.interval.low < -0.2


def test_items_of_one_side_only_are_left_out() -> None:
    """A pair needs both; failures are counted by name."""
    reference = answers([True] * 10)
    failed = Answer(question="facts-0", group="facts", right=False, failure="truncated")
    whole, _ = compared(reference, [failed, *answers([True] * 5)[1:]])
    assert whole.items == 5
    assert whole.candidate_failures == {"truncated": 1}
    assert compared(reference, answers([True], "other")) == ()


def test_answers_word_for_word_the_same_are_counted() -> None:
    """Beside the grades: the same grade in other words is a difference too."""
    one, other = by_item(answers([True] * 4, text="x")), by_item(answers([True] * 4, text="y"))
    assert same_text(one, one) == 1
    assert same_text(one, other) == 0
    assert same_text(one, {}) is None
