"""Facts that leave out what a plan needs are errors of those facts, never silent defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import EngineFacts
from heavylift.plan.planner import Knowledge, best_plan
from heavylift.planning import Planning
from heavylift.records.plan import Kind, Plan, PlanRequest


@pytest.fixture
def plan_with(planning: Planning, knowledge_of: Callable[[str], Knowledge]) -> Callable[..., Plan]:
    """A plan of K3 on 8×B300 with vLLM's facts changed by `change`."""

    def plan(change: Callable[[EngineFacts], EngineFacts], **given: Any) -> Plan:
        knowledge = knowledge_of("kimi-k3")
        engine = change(knowledge.engines["vllm"])
        _, rack = planning.rack("8xB300")
        assert rack is not None
        request = PlanRequest(model="kimi-k3", rack=rack, engine="vllm", **given)
        return best_plan(request, replace(knowledge, engines={"vllm": engine}))

    return plan


def without(**fields: Any) -> Callable[[EngineFacts], EngineFacts]:
    """A change that empties fields."""
    return lambda engine: replace(engine, **fields)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (without(state_dtypes=()), "PLAN020"),
        (without(caches=()), "PLAN021"),
        (without(layouts=()), "PLAN022"),
        (without(default_version="9.9.9"), "FACT013"),
        (without(kv_dtypes=()), "PLAN013"),
    ],
)
def test_a_hole_in_an_engines_facts_is_named(
    plan_with: Callable[..., Plan],
    change: Callable[[EngineFacts], EngineFacts],
    code: str,
) -> None:
    """State dtypes, cache, layouts, default version, KV dtypes: each has a code of its own."""
    with pytest.raises(HeavyliftError) as caught:
        plan_with(change)
    assert caught.value.code == code


def test_a_cache_layout_nobody_wrote_is_refused(plan_with: Callable[..., Plan]) -> None:
    """A way of storing that the planner does not know is not taken for one it knows."""
    with pytest.raises(HeavyliftError) as caught:
        plan_with(
            lambda engine: replace(
                engine,
                caches=(replace(engine.caches[0], layout="pebbles", since=None, until=None),),
            )
        )
    assert caught.value.code == "PLAN021"


def test_no_budget_rule_leaves_the_drivers_figure(plan_with: Callable[..., Plan]) -> None:
    """Without a rule the only budget is what the driver shows."""
    plan = plan_with(without(budgets=()))
    assert [budget.name for budget in plan.budgets] == ["driver_visible"]


def test_a_memory_rule_without_its_setting_has_no_upper_bound(
    plan_with: Callable[..., Plan],
) -> None:
    """A buffer per batched token, where nobody states the batch, is unknown."""

    def forget(engine: EngineFacts) -> EngineFacts:
        kept = tuple(rule for rule in engine.defaults if rule.name == "kv_cache_dtype")
        return replace(engine, defaults=kept)

    plan = plan_with(forget, kv_cache_dtype="bf16")
    found = {term.id: term for term in plan.terms}
    assert plan.max_num_batched_tokens is None
    assert found["workspace.attn_res"].kind is Kind.UNKNOWN
    assert found["workspace.attn_res"].bytes.high is None


def test_a_fraction_nobody_states_or_can_compute_is_unknown(
    plan_with: Callable[..., Plan],
) -> None:
    """An engine that computes its fraction from a batch nobody states has no pool budget."""

    def computed(engine: EngineFacts) -> EngineFacts:
        rule = replace(
            engine.budgets[0],
            fraction_flag="computed",
            default=None,
            default_reserved="max_num_batched_tokens",
        )
        kept = tuple(rule for rule in engine.defaults if rule.name == "kv_cache_dtype")
        return replace(engine, budgets=(rule,), defaults=kept)

    plan = plan_with(computed, kv_cache_dtype="bf16")
    assert [budget.name for budget in plan.budgets] == ["driver_visible"]
