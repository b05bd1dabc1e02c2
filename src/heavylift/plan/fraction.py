"""The memory fraction that an engine works out for itself where nobody states one."""

from __future__ import annotations

from heavylift.facts.expressions import evaluate
from heavylift.facts.schema import BudgetRule
from heavylift.plan.subject import Subject
from heavylift.records.plan import Layout
from heavylift.units import GIB


def computed_fraction(
    rule: BudgetRule,
    total_bytes: int,
    *,
    batched: int,
    ranks: int,
    captured_batches: int,
    vision: bool,
    layout: Layout,
) -> float:
    """The fraction of a card's bytes, by the rule's `default_reserved`; 1 without one.

    Formula: (total - reserved) / total, rounded to three digits, times the factor of a tower.
    Pipeline ranks capture no graphs of prefill; data parallel ones leave more for each batch.
    Source: SGLang `handle_gpu_memory_settings`, `reserve_for_graph_mb`.
    """
    staged, replicas = layout.pipeline_parallel_size > 1, layout.data_parallel_size
    spread = captured_batches * replicas if replicas > 1 else 0
    names = {
        "max_num_batched_tokens": max(batched, rule.least_chunk_tokens),
        "ranks": ranks,
        "captured_batches": captured_batches,
        "captured_prefills": 0 if staged else sum(s <= batched for s in rule.prefill_captures),
        "prefill_graphs": int(not staged),
        "spread_batches": spread,
        "wide_spread_batches": spread if captured_batches > rule.wide_batches_over else 0,
    }
    reserved = evaluate(rule.default_reserved or 0, names)
    if total_bytes > rule.floor_over_gib * GIB:
        reserved = max(reserved, rule.default_reserved_floor_bytes)
    fraction = round(max(0, total_bytes - reserved) / total_bytes, 3)
    return fraction * (rule.default_vision_factor if vision else 1.0)


def fraction_in(subject: Subject, rule: BudgetRule, layout: Layout) -> float | None:
    """The fraction of a subject in a layout: as stated, or as the engine works it out there."""
    captured, batched = subject.captured_batches, subject.max_num_batched_tokens
    if captured is None or batched is None:
        return subject.gpu_memory_utilization
    return computed_fraction(
        rule,
        subject.gpu.memory_visible.value,
        batched=batched,
        ranks=subject.rack.gpu_count,
        captured_batches=captured,
        vision=subject.vision,
        layout=layout,
    )
