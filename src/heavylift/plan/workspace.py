"""Workspace and what lies outside the pool: the engine's memory rules as labelled terms."""

from __future__ import annotations

from heavylift.facts import expressions, vocabulary
from heavylift.facts.expressions import evaluate
from heavylift.facts.schema import FactKind, MemoryRule
from heavylift.plan.stages import Stage
from heavylift.plan.subject import Subject
from heavylift.plan.weights import expert_split, is_sequence_parallel
from heavylift.records.plan import Kind, Layout, Segment, Term
from heavylift.records.ranges import Interval

_KINDS = {
    FactKind.SPEC: Kind.SPEC,
    FactKind.MEASURED: Kind.REPORTED,  # measured by its source is reported to us
    FactKind.REPORTED: Kind.REPORTED,
    FactKind.DERIVED: Kind.DERIVED,
    FactKind.ASSUMED: Kind.ASSUMED,
}


def memory_terms(
    subject: Subject, layout: Layout, stage: Stage, *, written: bool = False
) -> tuple[Term, ...]:
    """A term per memory rule that holds; of rules with one id, the first. `written`: with its
    formula.

    Rules are expressions over the model's dimensions, the workload, the layout and the stage (see
    `_names`); one that needs a setting nobody stated is `unknown`, with no upper bound.
    """
    names = _names(subject, layout, stage)
    taken: dict[str, Term] = {}
    for rule in subject.scope.all(subject.engine.memory):
        if rule.id not in taken and (not rule.backends or subject.moe_backend in rule.backends):
            taken[rule.id] = _term(rule, names, written=written)
    return tuple(taken.values())


def _term(rule: MemoryRule, names: dict[str, int], *, written: bool) -> Term:
    segment = Segment(rule.segment)
    needed = expressions.names(rule.low) | expressions.names(rule.high or 0)
    stated = needed <= names.keys()
    low = evaluate(rule.low, names) if stated else 0
    high = None
    if stated and rule.high is not None:
        high = low if rule.high == rule.low else evaluate(rule.high, names)
    return Term(
        id=f"{segment}.{rule.id}",
        segment=segment,
        kind=Kind.UNKNOWN if high is None else _KINDS[rule.kind],
        bytes=Interval(low=low, high=high),
        formula=_formula(rule.high, names) if written else "",
        source=rule.source,
        note=rule.note,
    )


def _formula(expression: str | int | None, names: dict[str, int]) -> str:
    """The expression with the numbers it was worked out from."""
    if expression is None:
        return ""
    used = sorted(expressions.names(expression))
    numbers = ", ".join(f"{name} = {names[name]:,}" for name in used if name in names)
    return f"{expression} ({numbers})" if numbers else str(expression)


def _names(subject: Subject, layout: Layout, stage: Stage) -> dict[str, int]:
    """What the expressions of memory rules may use."""
    everywhere = subject.knowledge.remembered(
        ("names", subject.account_key, subject.gpu.memory_visible.value, layout),
        lambda: _names_of_layout(subject, layout),
    )
    stage_layers = {
        vocabulary.stage_layers(name): stage.layers_in(layers.value)
        for name, layers in subject.model.layers.items()
    }
    return {
        **everywhere,
        **stage_layers,
        "start_layer": stage.first_layer,
        "end_layer": stage.last_layer + 1,
        "receives": int(stage.index > 0),
    }


def _names_of_layout(subject: Subject, layout: Layout) -> dict[str, int]:
    """The names that are the same on every stage, and those of a stage for the whole model."""
    experts = expert_split(subject, layout)
    rank = vocabulary.RankNumbers(
        tensor_parallel_size=layout.tensor_parallel_size,
        pipeline_parallel_size=layout.pipeline_parallel_size,
        data_parallel_size=layout.data_parallel_size,
        decode_context_parallel_size=layout.decode_context_parallel_size,
        sequence_parallel_size=(
            layout.tensor_parallel_size if is_sequence_parallel(subject, layout) else 1
        ),
        ranks=layout.world_size,
        concurrency=subject.concurrency,
        context_tokens=subject.context_tokens,
        visible_bytes=subject.gpu.memory_visible.value,
        vision=int(subject.vision),
        start_layer=0,
        end_layer=subject.dims["layers"],
        receives=0,
        rank_experts=None if experts is None else experts.experts,
        rank_expert_width=None if experts is None else experts.width,
        max_num_batched_tokens=subject.max_num_batched_tokens,
        max_num_seqs=subject.max_num_seqs,
        model_context=subject.model.max_context.value,
    )
    return {**subject.dims, **rank.stated()}
