"""The names of memory rules: what the check allows is what the planner knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest

from heavylift.facts import vocabulary
from heavylift.facts.schema import FactKind, MemoryRule
from heavylift.plan.planner import Knowledge, best_plan
from heavylift.planning import Planning
from heavylift.records.plan import PlanRequest


def rule(name: str) -> MemoryRule:
    """A rule that needs exactly one name; 0 bytes, so that it changes no verdict."""
    return MemoryRule(
        id=name,
        segment="workspace",
        low=0,
        high=f"0*{name}",
        kind=FactKind.ASSUMED,
        source="vllm-releases",
        as_of=date(2026, 1, 1),
    )


def test_the_planner_knows_every_name_of_the_vocabulary(
    planning: Planning, knowledge_of: Callable[[str], Knowledge]
) -> None:
    """A name that the check lets pass and the planner does not know would end as `unknown`."""
    knowledge = knowledge_of("kimi-k3")
    family = planning.catalog.family("kimi-k3")
    names = vocabulary.memory_names(family.dims, family.layer_sets)
    engine = replace(knowledge.engines["vllm"], memory=tuple(map(rule, sorted(names))))
    _, rack = planning.rack("8xB300")
    assert rack is not None
    request = PlanRequest(model="kimi-k3", rack=rack, engine="vllm")
    plan = best_plan(request, replace(knowledge, engines={"vllm": engine}))
    found = {term.id.removeprefix("workspace."): term for term in plan.terms}
    assert {name for name in names if found[name].bytes.high is None} == set()


@pytest.mark.parametrize("numbers", [vocabulary.LEAST, vocabulary.LATER_STAGE])
def test_the_probes_state_every_number(numbers: vocabulary.RankNumbers) -> None:
    """A bound cannot be worked out where a name has no number."""
    assert numbers.stated().keys() == vocabulary.RANK_NAMES


def test_what_nobody_stated_has_no_number() -> None:
    """None is left out, so that a rule which needs it is unknown."""
    numbers = replace(vocabulary.LEAST, max_num_seqs=None)
    assert "max_num_seqs" not in numbers.stated()
    assert numbers.stated()["ranks"] == 1
