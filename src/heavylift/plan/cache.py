"""KV cache and recurrent state on one rank, as the engine stores them.

Four ways exist. *Unified pages*: one page size for all layers, raised until a page holds a state;
sequences take pages of each group of layers. *Packed groups*: blocks with a page of every layer of
a group. *Blocks and slots*: KV in blocks, states in slots. *Contiguous*: cells and a state per
slot. Each is a `CacheModel` with the same questions.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Final, Protocol

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import CacheRule
from heavylift.plan.arithmetic import ceil_div, round_up
from heavylift.plan.cache_parts import StatePart, TokenPart, state_parts_of, token_parts
from heavylift.plan.packed_groups import PackedGroups
from heavylift.plan.stages import Stage
from heavylift.plan.subject import Subject
from heavylift.plan.unified_pages import WITHOUT_END, UnifiedPages, decode_context
from heavylift.records.plan import Layout, Part

_CONTIGUOUS_PAD: Final = 256


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


def cache_model(subject: Subject, layout: Layout) -> CacheModel:
    """The engine's way of storing, ready for a layout. Raises PLAN021 when its facts lack it."""
    rule = subject.scope.first(subject.engine.caches)
    if rule is None:
        raise HeavyliftError("PLAN021", {"engine": subject.engine.title})
    if subject.state_strategy is not None:
        units = rule.strategies[subject.state_strategy]
        rule = replace(rule, state_units_high=units)
    drafted = subject.draft_tokens * rule.states_per_draft_token
    rule = replace(
        rule,
        state_units_low=rule.state_units_low + drafted,
        state_units_high=rule.state_units_high + drafted,
    )
    tokens, states = token_parts(subject, layout), state_parts_of(subject, layout)
    dcp = layout.decode_context_parallel_size
    match rule.layout:
        case "packed_groups":
            return PackedGroups(rule, subject)
        case "unified_pages":
            return UnifiedPages(rule, tokens, states, dcp, subject.max_num_batched_tokens)
        case "blocks_and_slots":
            return BlocksAndSlots(rule, tokens, states, dcp, subject.max_num_seqs)
        case "contiguous":
            return Contiguous(rule, tokens, states, subject.max_num_batched_tokens)
    raise HeavyliftError("PLAN021", {"engine": subject.engine.title})


class _ByLayer:
    """What a stage's rank takes per token and per sequence, layer by layer."""

    def __init__(
        self, rule: CacheRule, tokens: tuple[TokenPart, ...], states: tuple[StatePart, ...]
    ) -> None:
        self._rule = rule
        self._tokens = tokens
        self._states = states

    def _token_bytes(self, stage: Stage) -> Fraction:
        """Bytes of each further token over the stage's layers; those behind a window apart."""
        per_layer = (
            part.layer_bytes_per_token * stage.layers_in(part.layers) for part in self._tokens
        )
        return sum(per_layer, Fraction(0))

    def _part_bytes(self, part: TokenPart, stage: Stage, tokens: int) -> int:
        """Bytes of one cache for the tokens of a sequence that it keeps."""
        entries = ceil_div(self._kept(part, tokens), part.tokens_per_entry)
        return entries * part.layer_bytes * stage.layers_in(part.layers)

    def _kept(self, part: TokenPart, tokens: int) -> int:
        """Tokens a cache keeps of a sequence that takes room for `tokens`."""
        return part.kept(tokens)

    def _sequence_bytes(self, stage: Stage, tokens: int) -> int:
        return sum(self._part_bytes(part, stage, tokens) for part in self._tokens)

    def _window_bytes(self, stage: Stage) -> int:
        """Bytes that the windowed layers take for one long sequence."""
        windowed = (part for part in self._tokens if part.window)
        return sum(self._part_bytes(part, stage, WITHOUT_END) for part in windowed)

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
        held = self._held(tokens)
        return tuple(
            Part(
                id=part.id,
                bytes=sequences * self._part_bytes(part, stage, held),
                formula=f"{sequences} × {self._kept(part, held):,} tokens"
                f" × {stage.layers_in(part.layers)} layers × {part.formula}"
                + (f" / {part.tokens_per_entry}" if part.tokens_per_entry > 1 else ""),
                **decode_context(self._dcp),
                source=self._rule.source,
            )
            for part in self._tokens
        )

    def state_parts(self, stage: Stage, sequences: int, *, reserved: bool) -> tuple[Part, ...]:
        """Bytes of the slots."""
        return self._slot_parts(stage, self._slots(sequences, reserved=reserved))

    def sequences_in(self, stage: Stage, room_bytes: int, tokens: int, *, reserved: bool) -> int:
        """Sequences that both pools hold."""
        held = self._held(tokens)
        kv_each = self._sequence_bytes(stage, held)
        units = self._rule.state_units_high if reserved else self._rule.state_units_low
        state_each = units * self._state_bytes(stage)
        if reserved and self._set_aside:
            rest = room_bytes - self._slots(0, reserved=True) * self._state_bytes(stage)
            return max(0, min(_times_in(rest, kv_each), self._set_aside))
        if reserved and self._rule.state_to_kv_ratio is not None and self._states:
            kv_room, state_room = self._split(room_bytes)
            state_room -= self._rule.reserved_states * self._state_bytes(stage)
            return min(_times_in(kv_room, kv_each), _times_in(state_room, state_each))
        if reserved and self._rule.window_to_full_ratio is not None:
            in_pools = self._pool_sequences(stage, room_bytes, held)
            return min(in_pools, _times_in(room_bytes, kv_each + state_each))
        return _times_in(room_bytes, kv_each + state_each)

    def _pool_sequences(self, stage: Stage, room_bytes: int, held: int) -> int:
        """Sequences that both pools hold, that of the windowed layers sized by its ratio."""
        slots = self._pool_slots(stage, room_bytes)
        ratio = self._rule.window_to_full_ratio or 0
        limits = [
            _times_in(int(slots * ratio), part.window) if part.window else _times_in(slots, held)
            for part in self._tokens
        ]
        return min(limits, default=WITHOUT_END)

    def _pool_slots(self, stage: Stage, room_bytes: int) -> int:
        """Tokens of the full layers' pool beside a pool of windowed layers."""
        ratio = Fraction(self._rule.window_to_full_ratio or 0).limit_denominator(1000)
        each = self._token_bytes(stage)
        for part in self._tokens:
            if part.window:
                each += ratio * part.layer_bytes * stage.layers_in(part.layers)
        return _times_in(room_bytes, each)

    def tokens_in(self, stage: Stage, room_bytes: int, sequences: int, *, reserved: bool) -> int:
        """Tokens of each of `sequences` after their slots are taken."""
        kv_room = room_bytes - self._slots(sequences, reserved=reserved) * self._state_bytes(stage)
        if reserved and self._rule.state_to_kv_ratio is not None:
            kv_room = min(kv_room, self._split(room_bytes)[0])
        block = self._rule.block_tokens * self._token_bytes(stage)
        room = kv_room // sequences - self._window_bytes(stage)
        return _times_in(room, block) * self._rule.block_tokens * self._dcp

    def pool_tokens(self, stage: Stage, room_bytes: int) -> int:
        """Tokens if the room held KV alone."""
        if self._rule.window_to_full_ratio is not None:
            return self._pool_slots(stage, room_bytes) * self._dcp
        block = self._rule.block_tokens * self._token_bytes(stage)
        return _times_in(room_bytes, block) * self._rule.block_tokens * self._dcp


class Contiguous(_ByLayer):
    """KV cells and a state per slot; the context setting is one pot shared by the slots.

    Formula: cells per slot = ceil(context / slots / 256) × 256; of a windowed layer at most
    ceil((window + batch) / 256) × 256.
    Source: llama.cpp `llama_context` (n_ctx_seq), `llama_kv_cache_iswa` and
    `llama_memory_recurrent`.
    """

    page_tokens: int | None
    page_bytes: int | None

    def __init__(
        self,
        rule: CacheRule,
        tokens: tuple[TokenPart, ...],
        states: tuple[StatePart, ...],
        batched_tokens: int | None,
    ) -> None:
        super().__init__(rule, tokens, states)
        self._batched = batched_tokens or 0
        self.page_tokens = None
        self.page_bytes = None

    def _cells(self, tokens: int, sequences: int) -> int:
        per_slot = ceil_div(tokens, sequences) if self._rule.context_shared else tokens
        return round_up(per_slot, _CONTIGUOUS_PAD)

    def _kept(self, part: TokenPart, tokens: int) -> int:
        if not part.window:
            return tokens
        return min(tokens, round_up(part.window + self._batched, _CONTIGUOUS_PAD))

    def kv_parts(self, stage: Stage, tokens: int, sequences: int) -> tuple[Part, ...]:
        """Bytes of all slots' cells."""
        cells = self._cells(tokens, sequences)
        if self._rule.window_shared:
            return self._with_shared_windows(stage, cells, sequences)
        return tuple(
            Part(
                id=part.id,
                bytes=sequences * self._part_bytes(part, stage, cells),
                formula=f"{sequences} slots × {self._kept(part, cells):,} cells"
                f" × {stage.layers_in(part.layers)} layers × {part.formula}",
                source=self._rule.source,
            )
            for part in self._tokens
        )

    def _with_shared_windows(self, stage: Stage, cells: int, sequences: int) -> tuple[Part, ...]:
        """Bytes where the windows of all slots share one cache, and its room for a batch.

        Formula: min(all cells, ceil((sequences × window + batch) / 256) × 256).
        """
        found = []
        for part in self._tokens:
            kept = sequences * cells
            if part.window:
                kept = min(kept, round_up(sequences * part.window + self._batched, _CONTIGUOUS_PAD))
            layers = stage.layers_in(part.layers)
            entries = ceil_div(kept, part.tokens_per_entry)
            found.append(
                Part(
                    id=part.id,
                    bytes=entries * part.layer_bytes * layers,
                    formula=f"{kept:,} cells × {layers} layers × {part.formula}",
                    source=self._rule.source,
                )
            )
        return tuple(found)

    def state_parts(self, stage: Stage, sequences: int, *, reserved: bool) -> tuple[Part, ...]:
        """Bytes of all slots' states."""
        units = self._rule.state_units_high if reserved else self._rule.state_units_low
        return self._slot_parts(stage, sequences * units)

    def sequences_in(self, stage: Stage, room_bytes: int, tokens: int, *, reserved: bool) -> int:
        """Slots of `tokens` each."""
        units = self._rule.state_units_high if reserved else self._rule.state_units_low
        each = self._sequence_bytes(stage, round_up(tokens, _CONTIGUOUS_PAD))
        each += units * self._state_bytes(stage)
        return _times_in(room_bytes, each)

    def tokens_in(self, stage: Stage, room_bytes: int, sequences: int, *, reserved: bool) -> int:
        """The context setting at which `sequences` slots fit."""
        units = self._rule.state_units_high if reserved else self._rule.state_units_low
        rest = room_bytes - sequences * units * self._state_bytes(stage)
        rest -= sequences * self._window_bytes(stage)
        per_slot = _times_in(rest, sequences * self._token_bytes(stage))
        per_slot = per_slot // _CONTIGUOUS_PAD * _CONTIGUOUS_PAD
        return per_slot * sequences if self._rule.context_shared else per_slot

    def pool_tokens(self, stage: Stage, room_bytes: int) -> int:
        """Cells that the room holds."""
        return _times_in(room_bytes, self._token_bytes(stage))


def _times_in(room_bytes: int, each_bytes: Fraction | int) -> int:
    """How often `each_bytes` goes into a room; without end when it takes nothing."""
    if not each_bytes:
        return WITHOUT_END
    return max(0, int(Fraction(room_bytes) // Fraction(each_bytes)))
