"""Words that reach the edge in English: formulas, what checks saw, what others say; and spaces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.english import prose

from heavylift.errors import HeavyliftError
from heavylift.locale import catalogue
from heavylift.locale.notation import formula, units
from heavylift.locale.others import evidence, others
from heavylift.locale.text import sentence, text
from heavylift.records.plan import Plan

CHINESE = catalogue.LANGUAGES[1:]


@pytest.fixture(params=CHINESE)
def chinese(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each kind of Chinese, spoken for the length of a test."""
    with catalogue.spoken(request.param):
        yield request.param


# --- formulas ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("notation", "said"),
    [
        ("58 tensor groups", "58 组张量"),
        (
            "22 pages of 768 tokens × 24 layers × 884,736 B",
            "22 页（各 768 token） × 24 层 × 884,736 B",
        ),
        ("page = 16 tokens × 512 B", "页 = 16 token × 512 B"),
        (
            "page = 128 × ceil(814,080 B of state / (128 × 1,152 B)) = 768 tokens = 884,736 B",
            "页 = 128 × ceil(814,080 B 状态 / (128 × 1,152 B)) = 768 token = 884,736 B",
        ),
        ("1 × 16,384 tokens × 24 layers × 576 × 2 B", "1 × 16,384 token × 24 层 × 576 × 2 B"),
        ("vision*104857600 (vision = 1)", "vision*104857600 (vision = 1)"),
        (
            "heads*v_head_dim (heads = 96, layers = 24)",
            "heads*v_head_dim (heads = 96, layers = 24)",
        ),
        ("", ""),
    ],
)
def test_a_formula_has_its_words_in_chinese_and_its_names_as_they_are(
    notation: str, said: str
) -> None:
    """What is counted is a word; what an engine's rule computes with is a name."""
    assert formula(notation) == notation
    with catalogue.spoken("zh_Hans"):
        assert formula(notation) == said


@pytest.mark.parametrize(
    ("model", "on", "engine"),
    [
        ("kimi-k3", "8xMI355X", "vllm"),
        ("kimi-k3", "8xB300", "sglang"),
        ("kimi-k3", "8xMI355X", "llamacpp"),
        ("deepseek-v4-flash", "8xH200", "vllm"),
        ("gemma-3-27b", "1xH100", "llamacpp"),
        ("gpt-oss-120b", "8xH100", "vllm"),
        ("qwen3.5-27b", "1xH100", "vllm"),
        ("llama-3.1-8b", "1xRTX4090", "sglang"),
    ],
)
def test_every_word_of_a_plans_formulas_is_one_of_the_catalogue(
    make_plan: Callable[..., Plan], model: str, on: str, engine: str
) -> None:
    """Whatever the cache: nothing is counted that has no word."""
    plan = make_plan(model, on, engine=engine)
    formulas = [term.formula for term in plan.terms]
    formulas += [words for t in plan.terms for p in t.parts for words in (p.formula, p.detail)]
    counted = {
        word for words in formulas for word in re.findall(r"\d ([a-z]+)\b", words.split(" (")[0])
    }
    assert counted
    assert counted <= {word for unit in units() for word in unit.split()}


# --- what checks saw -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seen",
    [
        "up to 8 at once, 0 not word for word",
        "text_differs: the other: HTTP 503: 'busy'",
        "in a user's message: HTTP 400: 'no'",
        "12 prompt tokens, 9 are known",
        "prompt tokens 40 with the thinking, 31 without",
        "2.0 tokens per marker; 'abc' [stop]",
        "3 of 90 requests did not arrive whole",
        "median 9.8 ms in the first third, 11.2 ms in the last: +14.3% [+2.0%, +20.1%]",
        "median 9.8 ms in the first third, 11.2 ms in the last: +1%; +3.1 ms an hour [+0.2, +6.0]",
        "waited for a processor 3% of its time, then 31%",
        "r7 holds 812.0 MiB of its own, +1.2 MiB an hour [+0.1, +2.0] after the first third",
        "at the least the machine is full in 4,000 hours",
        "no GPU was read often enough",
        "gpu 3 grew most: +1.20% of its memory",
        "memory_above_plan: 8 GPUs planned, 7 in use; planned 1.00 to 2.00 GiB",
        "planned 1.00 to 2.00 GiB; gpu 0: 1.50 of 288.00 GiB; gpu 1: 1.60 of 288.00 GiB",
        "fullest gpu 0: 1.50 of 288.00 GiB; emptiest gpu 1: 1.60 of 288.00 GiB",
        "thinking=disabled (120 characters of thinking); effort=low (9 characters of thinking)",
        "a server elsewhere cannot reach a picture of this machine",
    ],
)
def test_what_a_check_saw_is_said_in_chinese(seen: str, chinese: str) -> None:  # noqa: ARG001
    """Each clause by itself, after the code of what was wrong; numbers and quotations stay."""
    said = evidence(seen)
    assert list(prose(said)) == []
    assert sorted(re.findall(r"\d[\d.,]*\d|\d", said)) == sorted(
        re.findall(r"\d[\d.,]*\d|\d", seen)
    )


@given(st.text(max_size=60))
def test_what_nobody_knows_is_shown_as_it_was_said(words: str) -> None:
    """A model's answer is no sentence of ours."""
    with catalogue.spoken("zh_Hans"):
        said = evidence(f"『{words}』")
        assert words in said or ";" in words
        assert others(f"『{words}』") == f"『{words}』"


# --- errors --------------------------------------------------------------------------------------


def test_what_the_system_says_at_the_end_of_an_error_is_said_in_chinese(chinese: str) -> None:
    """Where the catalogue knows the sentence; a reason of ours has a key."""
    failed = sentence(HeavyliftError("ENV001", {"reason": "No space left on device"}))
    assert "No space" not in failed
    assert "xyz happened" in sentence(HeavyliftError("ENV001", {"reason": "xyz happened"}))
    inside = sentence(HeavyliftError("STA007", {"path": "/x", "reason": "inside_the_state"}))
    assert "inside" not in inside
    assert catalogue.current() == chinese


def test_a_known_sentence_keeps_what_it_is_about(chinese: str) -> None:  # noqa: ARG001
    """The field, the type, the place."""
    said = others("Expected `int`, got `str` - at `$.ports[1]`")
    assert {"`int`", "`str`", "`$.ports[1]`"} <= set(re.findall(r"`[^`]+`", said))
    assert list(prose(said)) == []


# --- spaces --------------------------------------------------------------------------------------


def test_no_space_is_left_between_chinese_words_and_those_put_among_them() -> None:
    """`在 {hardware} 上` with Chinese beside it; a name keeps its spaces, and so does a path."""
    with catalogue.spoken("zh_Hans"):
        assert text("variants.ran", hardware="四台机器", confidence="x").startswith("在四台机器上")
        assert text("variants.ran", hardware="8 × B200", confidence="x").startswith(
            "在 8 × B200 上"
        )
        assert "/数据 盘" in text("error.BAT003", path="/数据 盘")
