"""What a recipe is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from heavylift.recipe.job import Start
from heavylift.records.plan import Plan, PlanRequest, Rack

Ask = Callable[[Rack], PlanRequest]
"""What is asked of a rack, as a plan's request; its engine is set here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedPlace:
    """Where the embedded engine lies on this machine: its Python, its child script, its model."""

    python: str
    child: str
    model_path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeWish:
    """What was asked for. `split` are the machines of the prefill and the decode pool.

    `despite`: a layout that somebody reported broken is written all the same.
    """

    model: str
    rack: str
    ask: Ask
    engine: str | None = None
    start: Start = field(default_factory=Start)
    replicas: int = 1
    split: tuple[int, int] | None = None
    despite: bool = False
    embedded: EmbeddedPlace | None = None


def constraints(plan: Plan) -> dict[str, int]:
    """The layout of a plan as what a request states of it."""
    layout = plan.layout
    return {
        "tensor": layout.tensor_parallel_size,
        "pipeline": layout.pipeline_parallel_size,
        "data": layout.data_parallel_size,
        "expert": layout.expert_parallel_size,
        "decode_context": layout.decode_context_parallel_size,
    }
