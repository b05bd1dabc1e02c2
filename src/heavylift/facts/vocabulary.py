"""The names that size expressions may use, in one place for those who write rules, those who
check them and the planner that fills the numbers in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class RankNumbers:
    """What a memory rule may name beside the model: workload, layout and stage of one rank.

    Sizes are counts of ranks; `visible_bytes` is the card's memory; `vision` and `receives` (a
    stage after the first) are 0 or 1; layers count from 0 and `end_layer` is excluded.
    `rank_experts` and `rank_expert_width` are the routed experts a rank holds and their columns
    there; `model_context` is the longest context of the model. None = nobody stated it, or the
    model has none: a rule that needs it is unknown.
    """

    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    decode_context_parallel_size: int
    sequence_parallel_size: int
    ranks: int
    concurrency: int
    context_tokens: int
    visible_bytes: int
    vision: int
    start_layer: int
    end_layer: int
    receives: int
    rank_experts: int | None = None
    rank_expert_width: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    model_context: int = 1

    def stated(self) -> dict[str, int]:
        """The numbers that are known, by name."""
        numbers = {name: getattr(self, name) for name in RANK_NAMES}
        return {name: number for name, number in numbers.items() if number is not None}


RANK_NAMES: Final = frozenset(entry.name for entry in fields(RankNumbers))

LEAST_RESERVE: Final[Mapping[str, int]] = {
    "max_num_batched_tokens": 1,
    "ranks": 1,
    "captured_batches": 1,
    "captured_prefills": 0,
    "prefill_graphs": 0,
    "spread_batches": 0,
    "wide_spread_batches": 0,
}
"""What the expression of a computed memory fraction (`default_reserved`) may name, as small as it
gets. `captured_batches`: the most sequences a decode graph is captured for; `captured_prefills`:
how many sizes of prefill one is captured for; `prefill_graphs`: 1 where any is; `spread_batches`:
captured batches times data parallel ranks where there are several, `wide_spread_batches` the same
of large ones.
"""

LEAST: Final = RankNumbers(
    tensor_parallel_size=1,
    pipeline_parallel_size=1,
    data_parallel_size=1,
    decode_context_parallel_size=1,
    sequence_parallel_size=1,
    ranks=1,
    concurrency=1,
    context_tokens=1,
    visible_bytes=1,
    vision=0,
    start_layer=0,
    end_layer=1,
    receives=0,
    rank_experts=1,
    rank_expert_width=1,
    max_num_batched_tokens=1,
    max_num_seqs=1,
)
"""Every number as small as it gets: where an expression divides by zero, it does so here."""

LATER_STAGE: Final = RankNumbers(
    tensor_parallel_size=1,
    pipeline_parallel_size=2,
    data_parallel_size=2,
    decode_context_parallel_size=1,
    sequence_parallel_size=1,
    ranks=4,
    concurrency=64,
    context_tokens=2**20,
    visible_bytes=2**37,
    vision=1,
    start_layer=1,
    end_layer=2,
    receives=1,
    rank_experts=2,
    rank_expert_width=256,
    max_num_batched_tokens=8192,
    max_num_seqs=256,
    model_context=2**20,
)
"""The second of two stages in ordinary service; tensor size 1, which divides any model."""


def set_layers(layer_set: str) -> str:
    """The name for the layers of a set in the whole model."""
    return f"{layer_set}_layers"


def stage_layers(layer_set: str) -> str:
    """The name for the layers of a set on one pipeline stage."""
    return f"stage_{layer_set}_layers"


def memory_names(dims: Iterable[str], layer_sets: Iterable[str]) -> frozenset[str]:
    """All names that the memory rules of a family with these dimensions and layer sets may use."""
    sets = tuple(layer_sets)
    return RANK_NAMES.union(dims, map(set_layers, sets), map(stage_layers, sets))
