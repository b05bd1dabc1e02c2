"""Alert rules for Prometheus over what the exporter offers. Pure: words are made by the caller.

A rule without a threshold of its own: it asks for findings, which name plan and term, or for what
is wrong at any size. Shares of free memory and disk are those at which a host begins to fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Say = Callable[[str], str]
"""A catalogue key -> its text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A rule: its name, the query that holds when it is so, for how long, how bad."""

    name: str
    expression: str
    for_s: int
    severity: str


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        name="HeavyliftNotSeen",
        expression="absent(heavylift_gpus_seen)",
        for_s=120,
        severity="critical",
    ),
    Rule(
        name="HeavyliftDeploymentDown",
        expression="heavylift_deployment_ready == 0",
        for_s=300,
        severity="critical",
    ),
    Rule(
        name="HeavyliftEngineDead",
        expression="heavylift_deployment_ready == 1 and heavylift_deployment_alive == 0",
        for_s=60,
        severity="critical",
    ),
    Rule(
        # An API that answers proves nothing: with work queued, something of what the engine counts
        # has to move. Some count tokens at the end of a request only, some no steps while they
        # read a long prompt: any of the figures will do, and one that counts nothing is not judged.
        name="HeavyliftEngineStalled",
        expression=(
            "((heavylift_engine_requests_running + heavylift_engine_requests_waiting) > 0"
            " and (heavylift_engine_steps_total or heavylift_engine_generation_tokens_total) >= 0)"
            " unless (increase(heavylift_engine_steps_total[5m]) > 0"
            " or increase(heavylift_engine_generation_tokens_total[5m]) > 0"
            " or increase(heavylift_engine_prompt_tokens_total[5m]) > 0"
            " or changes(heavylift_engine_kv_use_ratio[5m]) > 0)"
        ),
        for_s=300,
        severity="critical",
    ),
    Rule(
        name="HeavyliftEngineRestarts",
        expression="increase(heavylift_deployment_restarts[1h]) > 2",
        for_s=0,
        severity="warning",
    ),
    Rule(
        name="HeavyliftEngineMetricsGone",
        expression="heavylift_engine_metrics_seen == 0",
        for_s=300,
        severity="warning",
    ),
    Rule(
        name="HeavyliftMemoryAbovePlan",
        expression='heavylift_finding{code="observe.above_plan"} == 1',
        for_s=300,
        severity="warning",
    ),
    Rule(
        name="HeavyliftMemoryTermDrift",
        expression='heavylift_finding{code="observe.term"} == 1',
        for_s=300,
        severity="warning",
    ),
    Rule(
        name="HeavyliftGpuImbalance",
        expression='heavylift_finding{code=~"observe.(memory|use)_imbalance"} == 1',
        for_s=600,
        severity="warning",
    ),
    Rule(
        name="HeavyliftGpusMissing",
        expression='heavylift_finding{code="observe.gpus_differ"} == 1',
        for_s=300,
        severity="critical",
    ),
    Rule(
        name="HeavyliftHostMemorySpill",
        expression='heavylift_finding{code="observe.spill"} == 1',
        for_s=300,
        severity="warning",
    ),
    Rule(
        name="HeavyliftCacheFull",
        expression="heavylift_engine_kv_use_ratio > 0.98 and heavylift_engine_requests_waiting > 0",
        for_s=600,
        severity="warning",
    ),
    Rule(
        name="HeavyliftPreemptions",
        expression="increase(heavylift_engine_preemptions_total[10m]) > 0",
        for_s=600,
        severity="warning",
    ),
    Rule(
        name="HeavyliftHostMemoryLow",
        expression=(
            "heavylift_host_memory_available_bytes / heavylift_host_memory_total_bytes < 0.05"
        ),
        for_s=300,
        severity="critical",
    ),
    Rule(
        name="HeavyliftHostSwaps",
        expression='heavylift_finding{code="observe.swap"} == 1',
        for_s=600,
        severity="warning",
    ),
    Rule(
        name="HeavyliftDiskLow",
        expression="heavylift_host_disk_free_bytes / heavylift_host_disk_total_bytes < 0.05",
        for_s=600,
        severity="warning",
    ),
)


def document(say: Say) -> dict[str, Any]:
    """The rule file as a document; each rule says what it means and what to do."""
    return {
        "groups": [
            {
                "name": "heavylift",
                "rules": [
                    {
                        "alert": rule.name,
                        "expr": rule.expression,
                        **({"for": f"{rule.for_s}s"} if rule.for_s else {}),
                        "labels": {"severity": rule.severity},
                        "annotations": {
                            "summary": say(f"alert.{rule.name}.summary"),
                            "description": say(f"alert.{rule.name}.description"),
                        },
                    }
                    for rule in RULES
                ],
            }
        ]
    }
