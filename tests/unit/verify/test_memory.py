"""Planned against observed memory, from a plan and the engine's own log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from heavylift.records.plan import Plan
from heavylift.verify.memory import memory_results
from heavylift.verify.records import Status

LOG = Path(__file__).parents[2] / "logs/fixtures/llamacpp_smollm2_4x1024.log"
SERVED = "smollm2-135m-instruct"


def test_each_term_of_the_log_is_a_check(make_plan: Callable[..., Plan]) -> None:
    """SmolLM2 with four slots of 1024 tokens, as the log has it: nothing departs from the plan."""
    plan = make_plan(SERVED, "this-machine", engine="embedded", context_tokens=4096, concurrency=4)
    results = memory_results(plan, LOG.read_text("utf-8").splitlines())
    assert {"memory.weights", "memory.kv_cache"} <= {check.id for check in results}
    assert all(check.status is Status.PASS for check in results)
    assert all(check.figures["measured_bytes"] > 0 for check in results)
    assert all(check.evidence for check in results)


def test_memory_that_was_not_planned_fails_with_the_line_of_the_log(
    make_plan: Callable[..., Plan],
) -> None:
    """A plan for half of the context expects half of the cache."""
    plan = make_plan(SERVED, "this-machine", engine="embedded", context_tokens=2048, concurrency=4)
    results = memory_results(plan, LOG.read_text("utf-8").splitlines())
    cache = next(check for check in results if check.id == "memory.kv_cache")
    assert cache.status is Status.FAIL
    assert cache.reasons == {"memory_differs": 1}
    assert "KV" in cache.evidence[0]
