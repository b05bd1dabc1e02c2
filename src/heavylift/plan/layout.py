"""Which layouts a rack allows, and the reason for each one an engine refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from heavylift.errors import HeavyliftError, Scalar
from heavylift.facts.schema import LayoutRule, RecipeFacts, RecipeStatus
from heavylift.plan.subject import Subject
from heavylift.plan.support import is_layout_of, recipes_on_card
from heavylift.records.plan import Layout


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a layout is not possible: a code and what its text needs."""

    code: str
    params: dict[str, Scalar] = field(default_factory=dict)


def layout_rule(subject: Subject) -> LayoutRule:
    """The engine's rule on layouts. Raises PLAN022 when its facts lack one."""
    rule = subject.scope.first(subject.engine.layouts)
    if rule is None:
        raise HeavyliftError("PLAN022", {"engine": subject.engine.title})
    return rule


def candidates(subject: Subject, constraints: Mapping[str, int]) -> Iterator[Layout]:
    """Layouts that use every GPU of the rack and keep to what the request states.

    Sizes not stated run over the divisors of the rack. Decode context parallelism is tried only
    when stated or published: it trades speed for room, and that is not ours to choose unasked.
    """
    rule = layout_rule(subject)
    world = subject.rack.gpu_count
    if rule.splits == "layers":
        yield Layout(pipeline_parallel_size=constraints.get("pipeline", world))
        return
    wanted_dcp = constraints.get("decode_context")
    published = () if wanted_dcp is not None else ran_here(subject)
    for tensor in _choices(constraints.get("tensor"), world):
        for pipeline in _choices(constraints.get("pipeline"), world // tensor):
            data = world // tensor // pipeline
            if tensor * pipeline * data != world:
                continue
            if constraints.get("data", data) != data:
                continue
            for expert in _expert_sizes(subject, rule, constraints, tensor, data):
                layout = Layout(
                    tensor_parallel_size=tensor,
                    pipeline_parallel_size=pipeline,
                    data_parallel_size=data,
                    expert_parallel_size=expert,
                    decode_context_parallel_size=wanted_dcp or 1,
                )
                yield layout
                yield from _published_dcp(subject, layout, published)


def _choices(stated: int | None, world: int) -> tuple[int, ...]:
    if stated is not None:
        return (stated,)
    return tuple(size for size in range(1, world + 1) if world % size == 0)


def _expert_sizes(
    subject: Subject, rule: LayoutRule, constraints: Mapping[str, int], tensor: int, data: int
) -> tuple[int, ...]:
    """Expert parallel sizes to try: the one stated; off where other sizes are stated, as engines
    take it; else off and as far as the layout goes.
    """
    stated = constraints.get("expert")
    if "experts" not in subject.dims:
        return (stated or 1,)
    if stated is not None:
        # 0 stands for "spread them, as far as the layout goes".
        return (tensor * data if stated == 0 else stated,)
    if constraints or rule.expert_parallel == "none":
        return (1,)
    return tuple(dict.fromkeys((1, tensor * data)))


def _published_dcp(
    subject: Subject, layout: Layout, published: Sequence[RecipeFacts]
) -> Iterator[Layout]:
    """The layout with the decode context sizes that somebody ran it with, on this card."""
    with_sizes = (
        replace(layout, decode_context_parallel_size=recipe.decode_context_parallel_size)
        for recipe in published
        if recipe.tensor_parallel_size == layout.tensor_parallel_size
    )
    ran = (
        other
        for other in with_sizes
        if any(is_layout_of(recipe, other, subject.rack) for recipe in published)
    )
    for other in dict.fromkeys(ran):
        if other != layout:
            yield other


def ran_here(subject: Subject) -> tuple[RecipeFacts, ...]:
    """The recipes that were run on this card."""
    return subject.knowledge.remembered(
        ("ran", subject.engine.id, subject.variant.id, subject.gpu.id, subject.rack.parts),
        lambda: tuple(
            recipe
            for recipe in recipes_on_card(subject)
            if recipe.status in (RecipeStatus.VERIFIED, RecipeStatus.REPORTED)
        ),
    )


def refusal(subject: Subject, layout: Layout) -> Refusal | None:
    """The first reason the engine cannot run the layout, or None."""
    rule = layout_rule(subject)
    return next(
        (
            found
            for check in (_switches, _heads, _vocabulary, _experts, _pipeline, _dcp)
            if (found := check(subject, layout, rule)) is not None
        ),
        None,
    )


def _switches(subject: Subject, layout: Layout, rule: LayoutRule) -> Refusal | None:
    engine = subject.engine.title
    if layout.world_size != subject.rack.gpu_count:
        return Refusal(
            code="world_size",
            params={
                "layout": layout.label,
                "needs": layout.world_size,
                "has": subject.rack.gpu_count,
            },
        )
    if rule.splits == "layers" and layout.tensor_parallel_size > 1:
        return Refusal(code="splits_layers", params={"engine": engine})
    for allowed, size, name in (
        (rule.data_parallel, layout.data_parallel_size, "data"),
        (rule.pipeline_parallel, layout.pipeline_parallel_size, "pipeline"),
        (rule.decode_context_parallel, layout.decode_context_parallel_size, "decode_context"),
        (rule.multi_node, subject.rack.nodes, "multi_node"),
    ):
        if size > 1 and not allowed:
            return Refusal(code="not_offered", params={"engine": engine, "what": name})
    sizes = rule.allowed_tensor_parallel
    if sizes and layout.tensor_parallel_size not in sizes:
        return Refusal(
            code="tensor_size",
            params={
                "engine": engine,
                "size": layout.tensor_parallel_size,
                "allowed": ", ".join(map(str, sizes)),
            },
        )
    return None


def _heads(subject: Subject, layout: Layout, _rule: LayoutRule) -> Refusal | None:
    for name in ("heads", "linear_heads"):
        heads = subject.dims.get(name)
        if heads is not None and heads % layout.tensor_parallel_size:
            return Refusal(
                code="heads", params={"heads": heads, "tensor": layout.tensor_parallel_size}
            )
    return None


def _vocabulary(subject: Subject, layout: Layout, _rule: LayoutRule) -> Refusal | None:
    vocabulary, tensor = subject.dims.get("vocab_size"), layout.tensor_parallel_size
    if vocabulary is None:
        return None
    # Engines pad the table to 64 rows first; that is what must divide.
    padded = -(-vocabulary // 64) * 64
    if padded % tensor:
        return Refusal(code="vocabulary", params={"vocabulary": vocabulary, "tensor": tensor})
    return None


def _experts(subject: Subject, layout: Layout, rule: LayoutRule) -> Refusal | None:
    spread = layout.expert_parallel_size
    if spread == 1:
        return _split_experts(subject)
    if "experts" not in subject.dims:
        return Refusal(code="no_experts", params={"model": subject.model.title})
    if rule.expert_parallel == "none":
        return Refusal(
            code="not_offered", params={"engine": subject.engine.title, "what": "expert"}
        )
    experts = subject.dims["experts"]
    if experts % spread:
        return Refusal(code="experts", params={"experts": experts, "expert": spread})
    ranks = layout.tensor_parallel_size * layout.data_parallel_size
    whole = rule.expert_parallel == "tensor_times_data"
    if (whole and spread != ranks) or ranks % spread:
        return Refusal(code="expert_ranks", params={"expert": spread, "ranks": ranks})
    return None


def _split_experts(subject: Subject) -> Refusal | None:
    backend = whole_experts_only(subject)
    if backend is None:
        return None
    return Refusal(code="backend_spreads", params={"backend": backend})


def whole_experts_only(subject: Subject) -> str | None:
    """The subject's MoE backend where it takes whole experts only, which no layout may split."""
    for backend in subject.scope.all(subject.engine.moe_backends):
        if backend.name == subject.moe_backend and backend.spreads_only:
            return backend.name
    return None


def _pipeline(subject: Subject, layout: Layout, _rule: LayoutRule) -> Refusal | None:
    if layout.pipeline_parallel_size > subject.dims["layers"]:
        return Refusal(
            code="pipeline",
            params={"layers": subject.dims["layers"], "stages": layout.pipeline_parallel_size},
        )
    return None


def _dcp(_subject: Subject, layout: Layout, _rule: LayoutRule) -> Refusal | None:
    tensor, dcp = layout.tensor_parallel_size, layout.decode_context_parallel_size
    if tensor % dcp:
        return Refusal(code="decode_context_ranks", params={"tensor": tensor, "dcp": dcp})
    return None
