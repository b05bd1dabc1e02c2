"""The address of the planner page: the flags of `heavylift plan`, read and written back."""

from __future__ import annotations

import shlex
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.plan.command import plan_command
from heavylift.records.plan import Layout
from heavylift.web.planner import Planner
from heavylift.web.question import (
    MOST_SEQUENCES,
    MOST_TOKENS,
    Question,
    keep_text,
    of_command,
    of_query,
    read_keep,
)

SIZE = st.one_of(st.none(), st.integers(1, 64))
QUESTIONS = st.builds(
    Question,
    model=st.just("kimi-k3"),
    on=st.sampled_from(["8xB300", "2x8xH200"]),
    engine=st.sampled_from([None, "vllm"]),
    context=st.one_of(st.none(), st.integers(1, MOST_TOKENS)),
    concurrency=st.one_of(st.none(), st.integers(1, MOST_SEQUENCES)),
    gpu_memory_utilization=st.sampled_from([None, 0.5, 0.92]),
    tp=SIZE,
    ep=st.one_of(SIZE, st.just(0)),
    text_only=st.booleans(),
    isl=st.integers(1, MOST_TOKENS),
    cached_share=st.sampled_from([0.0, 0.25, 1.0]),
    rent=st.sampled_from([None, 2.5]),
)


@given(QUESTIONS)
def test_an_address_reads_back_as_the_question_it_was_written_from(question: Question) -> None:
    """The state of the page is in its address: of_query(query()) is the identity."""
    assert of_query(dict(parse_qsl(question.query())), "", "") == question


def test_what_is_not_said_is_not_in_the_address() -> None:
    """A short question has a short link."""
    assert Question(model="kimi-k3", on="8xB300").query() == "model=kimi-k3&on=8xB300"


@pytest.mark.parametrize(
    "query",
    [
        {"context": "many"},
        {"context": "17M"},
        {"context": "9" * 200},
        {"concurrency": "0"},
        {"concurrency": "٣"},
        {"gpu-memory-utilization": "0"},
        {"gpu-memory-utilization": "nan"},
        {"cached-share": "1.5"},
        {"rent": "inf"},
        {"ep": "-1"},
        {"engine": "v" * 200},
        {"engine": "a\x1b[2J"},
    ],
)
def test_a_value_that_is_none_is_refused_by_name(query: dict[str, str]) -> None:
    """Nothing is guessed from a broken link; the error names the parameter."""
    with pytest.raises(HeavyliftError) as raised:
        of_query(query, "kimi-k3", "8xB300")
    assert raised.value.code == "WEB001"
    assert raised.value.params["name"] in query


def test_parameters_of_others_are_passed_over() -> None:
    """A link that was decorated on its way still opens."""
    assert of_query({"utm": "x", "on": "8xB300"}, "kimi-k3", "") == Question(
        model="kimi-k3", on="8xB300"
    )


def test_every_command_of_a_fix_opens_as_a_page(planner: Planner) -> None:
    """The command that a fix prints and the address of its button ask the same."""
    question = Question(model="kimi-k3", on="8xB200", context=131072, concurrency=16)
    fixes = planner.fixes(question)
    assert fixes
    for fix in fixes:
        opened = of_command(fix.command)
        _, rack = planner.rack(opened)
        assert rack is not None
        again = plan_command(opened.request(rack, opened.engine))
        assert sorted(shlex.split(again)) == sorted(shlex.split(fix.command))


@given(
    st.builds(
        Layout,
        tensor_parallel_size=st.integers(1, 64),
        expert_parallel_size=st.integers(1, 64),
    )
)
def test_a_kept_layout_reads_back(layout: Layout) -> None:
    """An engine and a layout go through one word."""
    assert read_keep(keep_text("vllm", layout)) == ("vllm", layout)


@pytest.mark.parametrize("text", ["", "vllm", "vllm/8/1/1/1", "vllm/8/1/1/1/x", "a/0/1/1/1/1"])
def test_a_kept_layout_that_is_none_is_refused(text: str) -> None:
    """Only what this page wrote is read."""
    with pytest.raises(HeavyliftError, match="WEB001"):
        read_keep(text)
