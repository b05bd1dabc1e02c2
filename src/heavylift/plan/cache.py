"""KV cache and recurrent state on one rank, as the engine stores them.

Three ways exist. *Unified pages*: one page size for all layers, raised until a page holds a state;
sequences take pages of each group of layers. *Blocks and slots*: KV in blocks, states in slots.
*Contiguous*: cells and a state per slot. Each is a `CacheModel` with the same questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypedDict

from heavylift.checkpoint.formats import SAFETENSORS_TYPES
from heavylift.errors import HeavyliftError
from heavylift.facts.expressions import evaluate
from heavylift.facts.schema import CachePattern, CacheRule, StatePattern
from heavylift.plan.arithmetic import ceil_div, round_up
from heavylift.plan.stages import Stage
from heavylift.plan.subject import Subject
from heavylift.records.plan import Layout, Part

_CONTIGUOUS_PAD: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class StatePart:
    """One state of the family on one rank: bytes of one layer and one sequence."""

    id: str
    layers: tuple[int, ...]
    layer_bytes: int
    formula: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenPart:
    """One cache of the family on one rank: bytes of one layer and one token."""

    id: str
    layers: tuple[int, ...]
    layer_bytes: int
    formula: str


class CacheModel(Protocol):
    """How many bytes sequences take on a stage's rank, and how many sequences a room holds."""

    page_tokens: int | None
    page_bytes: int | None

    def kv_parts(self, stage: Stage, tokens: int, sequences: int) -> tuple[Part, ...]:
        """Bytes for `sequences` of `tokens` each."""

    def state_parts(self, stage: Stage, sequences: int, *, reserved: bool) -> tuple[Part, ...]:
        """Bytes of state; `reserved` = as the engine admits or sets aside, not the bare need."""

    def sequences_in(self, stage: Stage, room_bytes: int, tokens: int, *, reserved: bool) -> int:
        """How many sequences of `tokens` a room on the stage's rank holds."""

    def tokens_in(self, stage: Stage, room_bytes: int, sequences: int, *, reserved: bool) -> int:
        """The longest length at which `sequences` fit in the room; 0 when not even one token."""

    def pool_tokens(self, stage: Stage, room_bytes: int) -> int:
        """Tokens of one endless sequence that a room holds, its state apart."""


def token_parts(subject: Subject, layout: Layout) -> tuple[TokenPart, ...]:
    """What one token costs on a rank, by cache of the family.

    Formula: elements × dtype bytes; heads are split over tensor-parallel ranks as far as there are
    heads, latents are held whole by each.
    """
    return tuple(_token_part(subject, layout, pattern) for pattern in subject.family.caches)


def _token_part(subject: Subject, layout: Layout, pattern: CachePattern) -> TokenPart:
    elements = evaluate(pattern.elements, subject.dims)
    if pattern.split == "heads":
        heads = evaluate(pattern.heads, subject.dims)
        elements = elements // heads * ceil_div(heads, layout.tensor_parallel_size)
    each = elements * subject.kv_dtype_bytes
    return TokenPart(
        id=pattern.id,
        layers=subject.model.layer_set(pattern.layers),
        layer_bytes=int(each),
        formula=f"{elements} × {subject.kv_dtype_bytes:g} B",
    )


def state_parts_of(subject: Subject, layout: Layout) -> tuple[StatePart, ...]:
    """What one sequence costs in state on a rank, by state of the family.

    Formula: elements / heads × ceil(heads / tensor_parallel) × dtype bytes. Raises PLAN020 when the
    engine's facts do not say in which dtype it keeps a state.
    """
    return tuple(_state_part(subject, layout, pattern) for pattern in subject.family.states)


def _state_part(subject: Subject, layout: Layout, pattern: StatePattern) -> StatePart:
    rule = subject.scope.first(
        [r for r in subject.engine.state_dtypes if r.dtype_class == pattern.dtype_class]
    )
    if rule is None:
        raise HeavyliftError("PLAN020", {"engine": subject.engine.title, "state": pattern.id})
    heads = evaluate(pattern.heads, subject.dims)
    per_head = evaluate(pattern.elements, subject.dims) // heads
    local = ceil_div(heads, layout.tensor_parallel_size)
    width = SAFETENSORS_TYPES[rule.dtype.upper()].bytes
    return StatePart(
        id=pattern.id,
        layers=subject.model.layer_set(pattern.layers),
        layer_bytes=per_head * local * width,
        formula=f"{local} heads × {per_head:,} × {width} B",
    )


def cache_model(subject: Subject, layout: Layout) -> CacheModel:
    """The engine's way of storing, ready for a layout. Raises PLAN021 when its facts lack it."""
    rule = subject.scope.first(subject.engine.caches)
    if rule is None:
        raise HeavyliftError("PLAN021", {"engine": subject.engine.title})
    tokens, states = token_parts(subject, layout), state_parts_of(subject, layout)
    dcp = layout.decode_context_parallel_size
    match rule.layout:
        case "unified_pages":
            return UnifiedPages(rule, tokens, states, dcp)
        case "blocks_and_slots":
            return BlocksAndSlots(rule, tokens, states, dcp, subject.max_num_seqs)
        case "contiguous":
            return Contiguous(rule, tokens, states)
    raise HeavyliftError("PLAN021", {"engine": subject.engine.title})


class UnifiedPages:
    """One page size for all layers.

    Formula: page_tokens = align × ceil(state bytes / (align × token bytes)); layers are dealt into
    groups of as many as the smaller kind has; a block id is one page in each layer of a group. A
    sequence takes ceil(ceil(tokens / dcp) / page_tokens) block ids for attention, and one per state
    group for each state unit.
    Source: vLLM `_align_hybrid_block_size`, `_get_kv_cache_groups_uniform_page_size`.
    """

    def __init__(
        self,
        rule: CacheRule,
        tokens: tuple[TokenPart, ...],
        states: tuple[StatePart, ...],
        dcp: int,
    ) -> None:
        self._rule = rule
        self._tokens = tokens
        self._states = states
        self._dcp = dcp
        token_bytes = sum(part.layer_bytes for part in tokens)
        state_bytes = sum(part.layer_bytes for part in states)
        align = rule.page_alignment_tokens
        raised = align * ceil_div(state_bytes, align * token_bytes) if states else 0
        self.page_tokens: int | None = max(rule.block_tokens, raised)
        self.page_bytes: int | None = self._page_tokens * token_bytes
        self._page_formula = (
            f"page = {align} × ceil({state_bytes:,} B of state / ({align} × {token_bytes:,} B))"
            f" = {self._page_tokens:,} tokens = {self.page_bytes:,} B"
            if raised > rule.block_tokens
            else f"page = {self._page_tokens:,} tokens × {token_bytes:,} B"
        )
        self._attention_layers = tokens[0].layers
        self._state_layers = states[0].layers if states else ()
        kinds = [len(self._attention_layers), len(self._state_layers)]
        self._group_size = min(count for count in kinds if count)
        self._attention_groups = ceil_div(len(self._attention_layers), self._group_size)
        self._state_groups = ceil_div(len(self._state_layers), self._group_size)

    @property
    def _page_tokens(self) -> int:
        return self.page_tokens or 1

    @property
    def _page_bytes(self) -> int:
        return self.page_bytes or 0

    def _pages_per_block(self, stage: Stage) -> int:
        """Layers of the fullest group on the stage: what one block id costs there, in pages."""
        attention = [
            self._attention_layers[index :: self._attention_groups]
            for index in range(self._attention_groups)
        ]
        state = [
            self._state_layers[index :: self._state_groups] for index in range(self._state_groups)
        ]
        if stage.count == 1:
            # Groups that are one layer short are filled up with padding layers.
            return self._group_size
        return max(stage.layers_in(group) for group in (*attention, *state))

    def _block_bytes(self, stage: Stage) -> int:
        return self._pages_per_block(stage) * self._page_bytes

    def _attention_blocks(self, tokens: int) -> int:
        return ceil_div(ceil_div(tokens, self._dcp), self._page_tokens) * self._attention_groups

    def _state_blocks(self, *, reserved: bool) -> int:
        units = self._rule.state_units_high if reserved else self._rule.state_units_low
        return self._state_groups * units

    def _blocks(self, stage: Stage, room_bytes: int) -> int:
        return max(0, room_bytes // self._block_bytes(stage) - self._rule.reserved_pages)

    def kv_parts(self, stage: Stage, tokens: int, sequences: int) -> tuple[Part, ...]:
        """Bytes of the attention blocks."""
        blocks = self._attention_blocks(tokens) * sequences
        pages = self._pages_per_block(stage)
        return (
            Part(
                id=self._tokens[0].id,
                bytes=blocks * self._block_bytes(stage),
                formula=f"{blocks:,} pages of {self._page_tokens:,} tokens × {pages} layers"
                f" × {self._page_bytes:,} B",
                **_decode_context(self._dcp),
                detail=self._page_formula,
                source=self._rule.source,
            ),
        )

    def state_parts(self, stage: Stage, sequences: int, *, reserved: bool) -> tuple[Part, ...]:
        """Bytes of the state blocks: whole pages, padding included."""
        if not self._states:
            return ()
        blocks = self._state_blocks(reserved=reserved) * sequences
        pages = self._pages_per_block(stage)
        return (
            Part(
                id="state_pages",
                bytes=blocks * self._block_bytes(stage),
                formula=f"{blocks:,} pages × {pages} layers × {self._page_bytes:,} B",
                rule="state_groups",
                params={"groups": self._state_groups},
                detail=self._page_formula,
                source=self._rule.source,
            ),
        )

    def sequences_in(self, stage: Stage, room_bytes: int, tokens: int, *, reserved: bool) -> int:
        """Sequences whose blocks, attention and state, the room holds."""
        each = self._attention_blocks(tokens) + self._state_blocks(reserved=reserved)
        return self._blocks(stage, room_bytes) // each

    def tokens_in(self, stage: Stage, room_bytes: int, sequences: int, *, reserved: bool) -> int:
        """Tokens of each of `sequences` after their state blocks are taken."""
        each = self._blocks(stage, room_bytes) // sequences - self._state_blocks(reserved=reserved)
        return max(0, each // self._attention_groups) * self._page_tokens * self._dcp

    def pool_tokens(self, stage: Stage, room_bytes: int) -> int:
        """Tokens if every block held attention."""
        blocks = self._blocks(stage, room_bytes) // self._attention_groups
        return blocks * self._page_tokens * self._dcp


class _ByLayer:
    """What a stage's rank takes per token and per sequence, layer by layer."""

    def __init__(
        self, rule: CacheRule, tokens: tuple[TokenPart, ...], states: tuple[StatePart, ...]
    ) -> None:
        self._rule = rule
        self._tokens = tokens
        self._states = states

    def _token_bytes(self, stage: Stage) -> int:
        return sum(part.layer_bytes * stage.layers_in(part.layers) for part in self._tokens)

    def _state_bytes(self, stage: Stage) -> int:
        return sum(part.layer_bytes * stage.layers_in(part.layers) for part in self._states)

    def _slot_parts(self, stage: Stage, slots: int) -> tuple[Part, ...]:
        """The bytes of `slots` states, by kind of state."""
        return tuple(
            Part(
                id=part.id,
                bytes=slots * part.layer_bytes * stage.layers_in(part.layers),
                formula=f"{slots} × {stage.layers_in(part.layers)} layers × {part.formula}",
                source=self._rule.source,
            )
            for part in self._states
        )


class BlocksAndSlots(_ByLayer):
    """KV in blocks of tokens, state in slots of sequences, in pools of their own."""

    page_tokens: int | None
    page_bytes: int | None

    def __init__(
        self,
        rule: CacheRule,
        tokens: tuple[TokenPart, ...],
        states: tuple[StatePart, ...],
        dcp: int,
        max_num_seqs: int | None,
    ) -> None:
        super().__init__(rule, tokens, states)
        self._dcp = dcp
        self._set_aside = (max_num_seqs or 0) if rule.states_for_max_num_seqs else 0
        self.page_tokens = rule.block_tokens
        self.page_bytes = None

    def _held(self, tokens: int) -> int:
        return round_up(ceil_div(tokens, self._dcp), self._rule.block_tokens)

    def _slots(self, sequences: int, *, reserved: bool) -> int:
        if not reserved:
            return sequences * self._rule.state_units_low
        slots = max(sequences, self._set_aside) * self._rule.state_units_high
        return slots + self._rule.reserved_states

    def _split(self, room_bytes: int) -> tuple[int, int]:
        """KV room and state room where the engine divides the pool by a ratio beforehand."""
        ratio = self._rule.state_to_kv_ratio
        if ratio is None or not self._states:
            return room_bytes, room_bytes
        state = int(room_bytes * ratio / (1 + ratio))
        return room_bytes - state, state

    def kv_parts(self, stage: Stage, tokens: int, sequences: int) -> tuple[Part, ...]:
        """Bytes of the blocks that hold the tokens."""
        return tuple(
            Part(
                id=part.id,
                bytes=self._held(tokens)
                * sequences
                * part.layer_bytes
                * stage.layers_in(part.layers),
                formula=f"{sequences} × {self._held(tokens):,} tokens"
                f" × {stage.layers_in(part.layers)} layers × {part.formula}",
                **_decode_context(self._dcp),
                source=self._rule.source,
            )
            for part in self._tokens
        )

    def state_parts(self, stage: Stage, sequences: int, *, reserved: bool) -> tuple[Part, ...]:
        """Bytes of the slots."""
        return self._slot_parts(stage, self._slots(sequences, reserved=reserved))

    def sequences_in(self, stage: Stage, room_bytes: int, tokens: int, *, reserved: bool) -> int:
        """Sequences that both pools hold."""
        kv_each = self._held(tokens) * self._token_bytes(stage)
        units = self._rule.state_units_high if reserved else self._rule.state_units_low
        state_each = units * self._state_bytes(stage)
        if reserved and self._set_aside:
            rest = room_bytes - self._slots(0, reserved=True) * self._state_bytes(stage)
            return max(0, min(_times_in(rest, kv_each), self._set_aside))
        if reserved and self._rule.state_to_kv_ratio is not None and self._states:
            kv_room, state_room = self._split(room_bytes)
            state_room -= self._rule.reserved_states * self._state_bytes(stage)
            return min(_times_in(kv_room, kv_each), _times_in(state_room, state_each))
        return _times_in(room_bytes, kv_each + state_each)

    def tokens_in(self, stage: Stage, room_bytes: int, sequences: int, *, reserved: bool) -> int:
        """Tokens of each of `sequences` after their slots are taken."""
        kv_room = room_bytes - self._slots(sequences, reserved=reserved) * self._state_bytes(stage)
        if reserved and self._rule.state_to_kv_ratio is not None:
            kv_room = min(kv_room, self._split(room_bytes)[0])
        block = self._rule.block_tokens * self._token_bytes(stage)
        return _times_in(kv_room // sequences, block) * self._rule.block_tokens * self._dcp

    def pool_tokens(self, stage: Stage, room_bytes: int) -> int:
        """Tokens if the room held KV alone."""
        block = self._rule.block_tokens * self._token_bytes(stage)
        return _times_in(room_bytes, block) * self._rule.block_tokens * self._dcp


class Contiguous(_ByLayer):
    """KV cells and a state per slot; the context setting is one pot shared by the slots.

    Formula: cells per slot = ceil(context / slots / 256) × 256.
    Source: llama.cpp `llama_context` (n_ctx_seq) and `llama_memory_recurrent`.
    """

    page_tokens: int | None
    page_bytes: int | None

    def __init__(
        self, rule: CacheRule, tokens: tuple[TokenPart, ...], states: tuple[StatePart, ...]
    ) -> None:
        super().__init__(rule, tokens, states)
        self.page_tokens = None
        self.page_bytes = None

    def _cells(self, tokens: int, sequences: int) -> int:
        per_slot = ceil_div(tokens, sequences) if self._rule.context_shared else tokens
        return round_up(per_slot, _CONTIGUOUS_PAD)

    def kv_parts(self, stage: Stage, tokens: int, sequences: int) -> tuple[Part, ...]:
        """Bytes of all slots' cells."""
        cells = self._cells(tokens, sequences)
        return tuple(
            Part(
                id=part.id,
                bytes=sequences * cells * part.layer_bytes * stage.layers_in(part.layers),
                formula=f"{sequences} slots × {cells:,} cells × {stage.layers_in(part.layers)}"
                f" layers × {part.formula}",
                source=self._rule.source,
            )
            for part in self._tokens
        )

    def state_parts(self, stage: Stage, sequences: int, *, reserved: bool) -> tuple[Part, ...]:
        """Bytes of all slots' states."""
        units = self._rule.state_units_high if reserved else self._rule.state_units_low
        return self._slot_parts(stage, sequences * units)

    def sequences_in(self, stage: Stage, room_bytes: int, tokens: int, *, reserved: bool) -> int:
        """Slots of `tokens` each."""
        units = self._rule.state_units_high if reserved else self._rule.state_units_low
        each = round_up(tokens, _CONTIGUOUS_PAD) * self._token_bytes(stage)
        each += units * self._state_bytes(stage)
        return _times_in(room_bytes, each)

    def tokens_in(self, stage: Stage, room_bytes: int, sequences: int, *, reserved: bool) -> int:
        """The context setting at which `sequences` slots fit."""
        units = self._rule.state_units_high if reserved else self._rule.state_units_low
        rest = room_bytes - sequences * units * self._state_bytes(stage)
        per_slot = _times_in(rest, sequences * self._token_bytes(stage))
        per_slot = per_slot // _CONTIGUOUS_PAD * _CONTIGUOUS_PAD
        return per_slot * sequences if self._rule.context_shared else per_slot

    def pool_tokens(self, stage: Stage, room_bytes: int) -> int:
        """Cells that the room holds."""
        return _times_in(room_bytes, self._token_bytes(stage))


class _Rule(TypedDict, total=False):
    rule: str
    params: dict[str, int]


def _decode_context(dcp: int) -> _Rule:
    """The rule of a cache whose tokens decode context parallelism spreads."""
    return {"rule": "decode_context", "params": {"ways": dcp}} if dcp > 1 else {}


# What a stage that stores nothing of a kind holds of it. Other stages decide.
_WITHOUT_END: Final = 2**62


def _times_in(room_bytes: int, each_bytes: int) -> int:
    """How often `each_bytes` goes into a room; without end when it takes nothing."""
    return max(0, room_bytes // each_bytes) if each_bytes else _WITHOUT_END
