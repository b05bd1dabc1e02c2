"""Judging: from trials to a status, and what is wrong with a single reply."""

from __future__ import annotations

import pytest

from heavylift.verify.judge import (
    is_doubled,
    reply_failure,
    result,
    schema_problem,
    verdict,
    wrong_text,
    wrong_usage,
)
from heavylift.verify.records import Check, CheckResult, Status, Trial
from heavylift.wire.failures import Failure
from heavylift.wire.reply import Reply, Usage
from heavylift.wire.text_health import is_garbage

CHECK = Check(id="tools.forced", probe="forced", trials={"smoke": 4}, needs=("tools",))
GOOD = Trial(evidence="fine")
BAD = Trial(reason="no_call", evidence="nothing")
REFUSED = Trial(reason="bad_request", unsupported=True)
NOTHING: frozenset[str] = frozenset()


def reply(text: str = "yes", **given: object) -> Reply:
    """A finished reply."""
    return Reply(text=text, finish_reason="stop", **given)  # type: ignore[arg-type] # fields by name


def test_a_rate_and_its_interval_come_from_the_trials() -> None:
    """Three of four; exact interval; reasons counted; evidence of the failure, not of the rest."""
    found = result(CHECK, [GOOD, GOOD, GOOD, BAD], expected=NOTHING)
    assert found.status is Status.FAIL
    assert found.rate == 0.75
    assert found.interval is not None
    # Clopper and Pearson for 3 of 4.
    assert (found.interval.low, found.interval.high) == pytest.approx((0.1941, 0.9937), abs=1e-4)
    assert found.reasons == {"no_call": 1}
    assert found.evidence == ("no_call: nothing",)


def test_a_check_may_ask_for_less_than_every_trial() -> None:
    """The required rate decides, and what it falls short to is the check's own word."""
    lenient = Check(id="x.y", probe="forced", trials={}, required_rate=0.75, on_failure=Status.WARN)
    assert result(lenient, [GOOD] * 3 + [BAD], expected=NOTHING).status is Status.PASS
    assert result(lenient, [GOOD] * 2 + [BAD] * 2, expected=NOTHING).status is Status.WARN


def test_a_refused_feature_is_skipped_unless_the_model_has_it() -> None:
    """A launch without its parser is a failure for a model known to call tools."""
    assert result(CHECK, [REFUSED] * 4, expected=NOTHING).status is Status.SKIPPED
    expected = result(CHECK, [REFUSED] * 4, expected=frozenset({"tools"}))
    assert expected.status is Status.FAIL
    assert expected.rate == 0


def test_no_trials_prove_nothing() -> None:
    """Unknown, with no rate at all."""
    found = result(CHECK, [], expected=NOTHING)
    assert (found.status, found.rate, found.interval) == (Status.UNKNOWN, None, None)


def test_figures_are_means_over_the_trials_that_have_them() -> None:
    """A trial that did not get so far does not count as zero."""
    trials = [Trial(figures={"ttft_s": 1.0}), Trial(figures={"ttft_s": 3.0}), Trial()]
    assert result(CHECK, trials, expected=NOTHING).figures == {"ttft_s": 2.0}


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["pass", "skipped"], "pass"),
        (["pass", "warn"], "warn"),
        (["warn", "unknown"], "unknown"),
        (["unknown", "fail", "pass"], "fail"),
        (["skipped"], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_verdict_is_the_worst_status(statuses: list[str], expected: str) -> None:
    """Skipped checks prove nothing."""
    checks = [
        CheckResult(id="a", status=Status(s), rate=None, interval=None, trials=1, required_rate=1.0)
        for s in statuses
    ]
    assert verdict(checks) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (reply(), None),
        (reply("yes <|close|>"), "marker_leak"),
        (reply(reasoning="a <|open|>tools"), "marker_leak"),
        (reply("!" * 40), "garbage_text"),
        (reply("caf\ufffd"), "unicode_mangled"),
        (reply(""), "empty"),
        (Reply(text="yes"), "missing_finish_reason"),
        (reply(failure=Failure.STREAM_BROKEN), "stream_broken"),
    ],
)
def test_a_reply_can_be_wrong_whatever_was_asked(given: Reply, expected: str | None) -> None:
    """The transport's class first, then markers, then text that is none."""
    assert reply_failure(given, ("<|close|>", "<|open|>")) == expected


def test_text_that_repeats_one_sign_is_garbage_and_a_table_is_not() -> None:
    """A damaged model wrote sixteen sixes; lines are drawn with dashes; blanks are no sign."""
    assert is_garbage("6" * 16)
    assert is_garbage("so: " + "!" * 12)
    assert is_garbage("-" * 100)
    assert not is_garbage("-" * 60)
    assert not is_garbage("a  " + " " * 60 + "b")
    assert not is_garbage("----- total -----")


def test_an_answer_given_twice_is_told_from_one_that_repeats_itself() -> None:
    """Twice the whole; `44` is not `4` twice when 44 was the answer."""
    assert is_doubled("The answer is 4.The answer is 4.")
    assert is_doubled("yes yes")
    assert not is_doubled("The answer is 4.")
    assert wrong_text(reply("42"), "42") is None
    assert wrong_text(reply("44"), "44") is None
    assert wrong_text(reply("It is 42. It is 42."), "42") == "answer_twice"
    assert wrong_text(reply("It is 42, since 42 = 40 + 2."), "42") is None
    assert wrong_text(reply("41"), "42") == "wrong_answer"


def test_counts_must_be_there_and_no_less_than_what_came() -> None:
    """A chunk holds a token at least."""
    assert wrong_usage(reply(), 3) == "usage_missing"
    few = reply(usage=Usage(prompt_tokens=4, completion_tokens=2))
    assert wrong_usage(few, 3) == "usage_wrong"
    assert wrong_usage(few, 2) is None


def test_a_schema_violation_says_where() -> None:
    """The path inside the value, then what is wrong."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert schema_problem({"n": 1}, schema) is None
    problem = schema_problem({"n": "1"}, schema)
    assert problem is not None
    assert problem.startswith("$.n:")
