"""The time of one decode step and of one prefill, from the bytes and operations a rank touches.

A model of few parts, each with a physical meaning: bytes over bandwidth, a fixed cost per layer,
messages over the link, operations over the peak. What it leaves out is in the spread of the rows it
is compared with, not in factors of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import GpuFacts
from heavylift.facts.speed_schema import SpeedModelFacts
from heavylift.plan.cache_parts import state_parts_of, token_parts
from heavylift.plan.layout import layout_rule
from heavylift.plan.stages import stages
from heavylift.plan.subject import Subject
from heavylift.plan.weights import stage_parts
from heavylift.records.plan import Layout
from heavylift.records.speed import SpeedPart

_ACTIVATION_BYTES = 2
_REDUCTIONS_PER_LAYER = 2
# Looked up row by row or not at all while text is decoded.
_UNREAD_ROLES = frozenset({"embed", "vision", "projector"})


@dataclass(frozen=True, kw_only=True, slots=True)
class StageLoad:
    """What one rank of a pipeline stage reads: bytes held, and bytes per token and sequence.

    `expert_bytes` are all routed experts on the rank, `dense_bytes` everything else that a step
    reads. KV and state count what lies on this rank.
    """

    layers: int
    dense_bytes: float
    expert_bytes: float
    kv_bytes_per_token: float
    state_bytes_per_sequence: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Work that grows with a prompt's square: channels of all heads and layers that each pair of a
    token and one before it costs. `window` 0 = all that came before.
    """

    channels: float
    window: int = 0


def pairs(tokens: float, before: float, window: int) -> float:
    """How many tokens each of `tokens`, which follow on `before` others, looks back at, together.

    Formula: Σ of min(i, window) over i from before to before + tokens: causal, half of the square
    Source: Narayanan et al., Efficient large-scale language model training, 2021 (appendix).
    """
    end = before + tokens
    if not window:
        return (end * end - before * before) / 2
    inside = max(0.0, min(end, window) - before)
    first = min(before, float(window))
    growing = inside * (first + inside / 2)
    return growing + (tokens - inside) * window


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """A model in a layout, as far as its speed goes.

    `experts` is None for a dense model. `microbatches` is how many parts of the batch are under way
    at once in the pipeline (1 when the stages take turns).
    """

    layout: Layout
    stages: tuple[StageLoad, ...]
    hidden_size: int
    active_params: float
    experts: int | None
    experts_per_token: int
    microbatches: int
    attention: tuple[Attention, ...] = ()

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return sum(stage.layers for stage in self.stages)

    @property
    def expert_ranks(self) -> int:
        """Ranks that whole experts are spread over; 1 when experts are split."""
        return self.layout.expert_parallel_size

    @property
    def expert_replicas(self) -> int:
        """Replicas whose tokens meet at the same experts."""
        spread = self.layout.expert_parallel_size > self.layout.tensor_parallel_size
        return self.layout.data_parallel_size if spread else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """The rates of a card and its links, in bytes and operations per second.

    `link_bytes_per_s` is that of the slowest hop a tensor-parallel reduction takes.
    """

    memory_bytes_per_s: float
    link_bytes_per_s: float | None
    flops_per_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Constants:
    """What the model takes as given for every class; each is a fact with a source."""

    memory_efficiency: float
    compute_efficiency: float
    prefill_floor_s_per_layer: float

    @classmethod
    def of(cls, facts: SpeedModelFacts) -> Constants:
        """The constants of the facts."""
        return cls(
            memory_efficiency=facts.memory_efficiency.value,
            compute_efficiency=facts.compute_efficiency.value,
            prefill_floor_s_per_layer=facts.prefill_floor.value * 1e-6,
        )


def load_of(subject: Subject, layout: Layout) -> Load:
    """The load of a subject in a layout. Raises PLAN070 when the tensors are not known by group."""
    inventory = subject.inventory
    if inventory is None:
        raise HeavyliftError("PLAN070", {"variant": subject.variant.id})
    kinds = {group.name: group for group in inventory.groups}
    dcp = layout.decode_context_parallel_size
    tokens, states = token_parts(subject, layout), state_parts_of(subject, layout)
    loads = []
    for stage in stages(subject, layout):
        read = [
            (part.bytes, kinds[part.id].shard == "expert")
            for part in stage_parts(subject, layout, stage)
            if kinds[part.id].role not in _UNREAD_ROLES
            and not kinds[part.id].is_vision
            and not kinds[part.id].is_draft
        ]
        loads.append(
            StageLoad(
                layers=stage.last_layer - stage.first_layer + 1,
                dense_bytes=sum(size for size, routed in read if not routed),
                expert_bytes=sum(size for size, routed in read if routed),
                kv_bytes_per_token=float(
                    sum(p.layer_bytes_per_token * stage.layers_in(p.layers) for p in tokens)
                )
                / dcp,
                state_bytes_per_sequence=sum(
                    p.layer_bytes * stage.layers_in(p.layers) for p in states
                ),
            )
        )
    dims = subject.dims
    rank_stages = layout_rule(subject).splits == "ranks"
    return Load(
        layout=layout,
        stages=tuple(loads),
        hidden_size=dims["hidden_size"],
        active_params=inventory.active_params(subject.model),
        experts=dims.get("experts") or None,
        experts_per_token=dims.get("experts_per_token", 0),
        microbatches=layout.pipeline_parallel_size if rank_stages else 1,
        attention=tuple(
            Attention(
                channels=part.attends * len(part.layers) / part.tokens_per_entry,
                window=part.window,
            )
            for part in tokens
            if part.attends
        ),
    )


def hardware_of(gpu: GpuFacts, facts: SpeedModelFacts, *, crosses_nodes: bool) -> Hardware:
    """The rates of a card. Raises PLAN071 when its memory bandwidth is not known."""
    if gpu.memory_bandwidth is None:
        raise HeavyliftError("PLAN071", {"gpu": gpu.title}, hint_command="heavylift bench URL")
    link = None if gpu.link_bandwidth is None else gpu.link_bandwidth.value
    if crosses_nodes:
        network = facts.network_bandwidth.value
        link = network if link is None else min(link, network)
    return Hardware(
        memory_bytes_per_s=gpu.memory_bandwidth.value * 1e12,
        link_bytes_per_s=None if link is None else link * 1e9,
        flops_per_s=None if gpu.dense_bf16 is None else gpu.dense_bf16.value * 1e12,
    )


def touched_ratio(experts: int, experts_per_token: int, tokens: float) -> float:
    """The part of the experts that at least one of `tokens` chooses, for even routing.

    Formula: 1 − (1 − experts_per_token / experts) ^ tokens
    """
    return 1 - math.pow(1 - experts_per_token / experts, tokens)


def fullest_rank_ratio(experts: int, ranks: int, ratio: float) -> float:
    """The part of its experts that the busiest of `ranks` reads: a step waits for that one.

    Each rank holds experts / ranks of them and each is touched with probability `ratio`.
    Formula: E[max] of `ranks` draws of a binomial(experts / ranks, ratio), over experts / ranks
    """
    held = experts // ranks
    if ranks == 1 or ratio >= 1:
        return ratio
    below, expected = 0.0, 0.0
    for count in range(held):
        below += math.comb(held, count) * ratio**count * (1 - ratio) ** (held - count)
        expected += 1 - min(1.0, below) ** ranks
    return expected / held


@dataclass(frozen=True)
class StepTime:
    """Times of a load on a card, at a fixed cost per layer."""

    load: Load
    hardware: Hardware
    constants: Constants
    fixed_s_per_layer: float

    def distinct_experts(self, batch: float, tokens_per_sequence: int = 1) -> float | None:
        """Experts of a layer that a step touches; None for a dense model. `batch`: one replica."""
        if self.load.experts is None:
            return None
        return self.load.experts * self._touched(batch, tokens_per_sequence)

    def _stage_batch(self, batch: float) -> float:
        return max(1.0, batch / self.load.microbatches)

    def _touched(self, batch: float, tokens_per_sequence: int) -> float:
        experts = self.load.experts
        if experts is None:
            return 0.0
        tokens = self._stage_batch(batch) * tokens_per_sequence * self.load.expert_replicas
        return touched_ratio(experts, self.load.experts_per_token, tokens)

    def _memory_s(self, size: float) -> float:
        return size / self.hardware.memory_bytes_per_s

    def floor_s(self, batch: float, context_tokens: float) -> float:
        """The bytes of a step at the memory's full bandwidth: no engine is faster."""
        return sum(self._memory_parts(batch, context_tokens, 1).values())

    def _memory_parts(
        self, batch: float, context_tokens: float, tokens_per_sequence: int
    ) -> Mapping[SpeedPart, float]:
        load, each = self.load, self._stage_batch(batch)
        touched = self._touched(batch, tokens_per_sequence)
        if load.experts is not None:
            touched = fullest_rank_ratio(load.experts, load.expert_ranks, touched)
        kv = sum(stage.kv_bytes_per_token for stage in load.stages)
        state = sum(stage.state_bytes_per_sequence for stage in load.stages)
        return {
            SpeedPart.DENSE_WEIGHTS: self._memory_s(sum(s.dense_bytes for s in load.stages)),
            SpeedPart.EXPERT_WEIGHTS: self._memory_s(
                touched * sum(s.expert_bytes for s in load.stages)
            ),
            SpeedPart.KV_CACHE: self._memory_s(kv * context_tokens * each),
            # Each step reads the state and writes the next one.
            SpeedPart.RECURRENT_STATE: self._memory_s(2 * state * each),
        }

    def step_parts(
        self, batch: float, context_tokens: float, tokens_per_sequence: int = 1
    ) -> dict[SpeedPart, float]:
        """Seconds of a decode step of `batch` sequences of a replica, by part.

        Memory and compute overlap: the part that compute takes longer than memory is its own.
        """
        load = self.load
        parts = {
            name: seconds / self.constants.memory_efficiency
            for name, seconds in self._memory_parts(
                batch, context_tokens, tokens_per_sequence
            ).items()
        }
        tokens = self._stage_batch(batch) * tokens_per_sequence
        compute = self.compute_s(tokens)
        parts[SpeedPart.COMPUTE] = max(0.0, compute - sum(parts.values()))
        parts[SpeedPart.COLLECTIVES] = self._collectives_s(tokens)
        parts[SpeedPart.FIXED] = load.layers * self.fixed_s_per_layer
        return parts

    def step_base(self, batch: float, tokens_per_sequence: int = 1) -> tuple[float, float, float]:
        """Seconds of a decode step's memory without KV, of its compute, and of what adds to both.

        Formula: step = max(memory + tokens held × kv_s_per_token, compute) + rest
        """
        held = self._memory_parts(batch, 0.0, tokens_per_sequence)
        tokens = self._stage_batch(batch) * tokens_per_sequence
        rest = self._collectives_s(tokens) + self.load.layers * self.fixed_s_per_layer
        memory = sum(held.values()) / self.constants.memory_efficiency
        return memory, self.compute_s(tokens), rest

    def kv_s_per_token(self, batch: float) -> float:
        """Seconds that one token of context, held by any of `batch` sequences, adds to a step."""
        kv = sum(stage.kv_bytes_per_token for stage in self.load.stages)
        share = self._stage_batch(batch) / batch
        return self._memory_s(kv) * share / self.constants.memory_efficiency

    def step_s(self, batch: float, context_tokens: float, tokens_per_sequence: int = 1) -> float:
        """Seconds of a decode step of `batch` sequences of a replica."""
        return sum(self.step_parts(batch, context_tokens, tokens_per_sequence).values())

    def compute_s(self, tokens: float) -> float:
        """Seconds of the matrix products of `tokens` through all stages; 0 when no peak is known.

        Formula: 2 × active parameters × tokens / (peak × efficiency × tensor parallel)
        """
        if self.hardware.flops_per_s is None:
            return 0.0
        rate = self.hardware.flops_per_s * self.constants.compute_efficiency
        return 2 * self.load.active_params * tokens / (rate * self.load.layout.tensor_parallel_size)

    def _collectives_s(self, tokens: float) -> float:
        """Two ring reductions per layer. Their latency is in the fixed cost, not here.

        Formula: layers × 2 × 2(n−1)/n × tokens × hidden × 2 B / link
        """
        ranks, link = self.load.layout.tensor_parallel_size, self.hardware.link_bytes_per_s
        if ranks == 1 or link is None:
            return 0.0
        message = tokens * self.load.hidden_size * _ACTIVATION_BYTES
        return self.load.layers * _REDUCTIONS_PER_LAYER * 2 * (ranks - 1) / ranks * message / link

    @cached_property
    def prefill_floor_s(self) -> float:
        """Seconds of a prefill of no length: launches and ramps, by layer."""
        return self.load.layers * self.constants.prefill_floor_s_per_layer

    def attention_s(self, tokens: float, before: float) -> float:
        """Seconds of the attention of `tokens` of a prompt to those before them."""
        return sum(
            self.pair_s(part) * pairs(tokens, before, part.window) for part in self.load.attention
        )

    def pair_s(self, attention: Attention) -> float:
        """Seconds of a pair of tokens, on all ranks; 0 when no peak is known.

        Formula: 2 × channels / (peak × efficiency × tensor parallel)
        """
        if self.hardware.flops_per_s is None:
            return 0.0
        rate = self.hardware.flops_per_s * self.constants.compute_efficiency
        return 2 * attention.channels / (rate * self.load.layout.tensor_parallel_size)

    def prefill_s(self, tokens: float, before: float = 0.0) -> float:
        """Seconds from the start of a prompt of `tokens` uncached tokens to its end, alone, behind
        `before` cached ones.

        Formula: floor + compute + attention + collectives
        """
        if tokens == 0:
            return 0.0
        work = self.compute_s(tokens) + self.attention_s(tokens, before)
        return self.prefill_floor_s + work + self._collectives_s(tokens)
