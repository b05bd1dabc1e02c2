"""The agent's loop: thinking goes back as it came, mistakes in calls go back to the model."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from tests.examples.conftest import REAL, SCRIPTED, THOUGHTS, Service

pytestmark = pytest.mark.e2e

Example = Callable[..., int]


def test_thinking_goes_back_byte_for_byte(
    service: Service,
    as_client: Callable[..., None],
    example: Example,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As the gateway saw it: each turn's thoughts in their own message, unchanged, also in the
    turns after; the wrong call got its error back and was mended. The engine is scripted, because
    no model small enough for a test thinks and calls.
    """
    as_client("thinker")
    assert example("agent/agent.py", SCRIPTED, "Who has the most free disk?") == 0
    out, err = capsys.readouterr()
    assert out == "Zürich-3 has 1430 GB.\n"
    assert err.count("free_disk(") == 2
    turns = [body["messages"] for body in service.requests("thinker", count=3)]
    assert [len(messages) for messages in turns] == [1, 3, 5]
    for earlier, later in itertools.pairwise(turns):
        assert later[: len(earlier)] == earlier
    thoughts = [each["reasoning_content"] for each in turns[-1] if each["role"] == "assistant"]
    assert thoughts == list(THOUGHTS)
    answered = [(each["tool_calls"][0]["id"], each) for each in turns[-1] if "tool_calls" in each]
    results = [each for each in turns[-1] if each["role"] == "tool"]
    assert [call for call, _ in answered] == [each["tool_call_id"] for each in results]
    assert "no machine" in results[0]["content"]


def test_a_real_model_that_calls_nothing_just_answers(
    as_client: Callable[..., None], example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loop ends with its text."""
    as_client()
    assert example("agent/agent.py", REAL, "Say hello.", "--max-tokens", "16") == 0
    assert capsys.readouterr().out.strip()


def test_a_turn_that_breaks_ends_the_loop(
    as_client: Callable[..., None], example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a turn is not acted upon."""
    as_client()
    assert example("agent/agent.py", SCRIPTED, "Please break.") == 5
    assert "the turn is not whole" in capsys.readouterr().err
