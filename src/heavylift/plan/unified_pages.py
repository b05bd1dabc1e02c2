"""Unified pages: one pool of pages of one size, from which every kind of layer takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypedDict

from heavylift.facts.schema import CacheRule
from heavylift.plan.arithmetic import ceil_div
from heavylift.plan.cache_parts import StatePart, TokenPart
from heavylift.plan.stages import Stage
from heavylift.records.plan import Part

# Kinds whose layer counts differ by less than this are padded to the larger one.
_PADDED_UP_TO: Final = Fraction(3, 2)

# What a stage that stores nothing of a kind holds of it. Other stages decide.
WITHOUT_END: Final = 2**62


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """Layers that are stored alike: their parts, bytes of one token of one layer, and the tokens a
    page holds. `states` instead of parts for layers that keep a state.
    """

    layers: tuple[int, ...]
    parts: tuple[TokenPart, ...] = ()
    states: tuple[StatePart, ...] = ()
    token_bytes: int = 0
    page_tokens: int = 1
    window: int = 0
    groups: int = 1


class UnifiedPages:
    """One page size for all layers.

    Formula: page_tokens = align × ceil(state bytes / (align × token bytes)); layers are dealt into
    groups of as many as the smallest kind has; a block id is one page in each layer of a group. A
    sequence takes ceil(ceil(tokens / dcp) / page_tokens) block ids for each group of full layers,
    those of a window and of the tokens in flight and one more for a windowed group, and one per
    state group for each state unit. Layers that all keep all tokens share one group.
    Source: vLLM `_align_hybrid_block_size`, `unify_kv_cache_spec_page_size`,
    `_get_kv_cache_groups_uniform_page_size`, `SlidingWindowSpec`.
    """

    def __init__(
        self,
        rule: CacheRule,
        tokens: tuple[TokenPart, ...],
        states: tuple[StatePart, ...],
        dcp: int,
        batched_tokens: int | None,
    ) -> None:
        self._rule = rule
        self._dcp = dcp
        self._in_flight = (batched_tokens or 0) * rule.batches_in_flight
        attention, stateful = _token_kinds(tokens), _state_kinds(states)
        state_bytes = max((kind.token_bytes for kind in stateful), default=0)
        full = [kind for kind in attention if not kind.window]
        token_bytes = next((kind.token_bytes for kind in (*full, *attention)), 1)
        align = rule.page_alignment_tokens
        raised = align * ceil_div(state_bytes, align * token_bytes) if states else 0
        base = max(rule.block_tokens, raised)
        self._shares_a_group = not stateful and len(full) == len(attention)
        largest = max((kind.token_bytes for kind in attention), default=0)
        page_bytes = max(base * largest, state_bytes)
        self.page_tokens: int | None = base
        self.page_bytes: int | None = base * token_bytes if self._shares_a_group else page_bytes
        self._page_formula = (
            f"page = {align} × ceil({state_bytes:,} B of state / ({align} × {token_bytes:,} B))"
            f" = {base:,} tokens = {self.page_bytes:,} B"
            if raised > rule.block_tokens
            else f"page = {base:,} tokens × {token_bytes:,} B"
        )
        self._page_bytes = self.page_bytes
        counts = [len(kind.layers) for kind in (*attention, *stateful)]
        self._group_size = _group_size(counts)
        self._attention = tuple(self._grouped(kind, base, page_bytes) for kind in attention)
        self._stateful = tuple(self._grouped(kind, base, page_bytes) for kind in stateful)
        self._full = tuple(kind for kind in self._attention if not kind.window)

    def _grouped(self, kind: _Kind, base: int, page_bytes: int) -> _Kind:
        """The kind with the tokens of its page and its number of groups."""
        groups, page_tokens = 1, base
        if not self._shares_a_group:
            groups = ceil_div(len(kind.layers), self._group_size)
            times, rest = divmod(page_bytes, base * kind.token_bytes) if kind.parts else (1, 0)
            # A smaller page that goes into the larger one evenly holds more tokens; any other is
            # padded.
            page_tokens = base if rest else base * times
        return _Kind(
            layers=kind.layers,
            parts=kind.parts,
            states=kind.states,
            token_bytes=kind.token_bytes,
            page_tokens=page_tokens,
            window=kind.window,
            groups=groups,
        )

    def _pages_per_block(self, stage: Stage) -> int:
        """Layers of the fullest group on the stage: what one block id costs there, in pages."""
        if stage.count == 1:
            # Groups that are one layer short are filled up with padding layers.
            return self._group_size
        kinds = (*self._attention, *self._stateful)
        groups = (kind.layers[i :: kind.groups] for kind in kinds for i in range(kind.groups))
        return max((stage.layers_in(group) for group in groups), default=0)

    def _block_bytes(self, stage: Stage) -> int:
        if self._shares_a_group:
            base = self.page_tokens or 1
            return base * sum(
                kind.token_bytes * stage.layers_in(kind.layers) for kind in self._attention
            )
        return self._pages_per_block(stage) * (self._page_bytes or 0)

    def _kind_blocks(self, kind: _Kind, tokens: int) -> int:
        if not kind.window:
            return ceil_div(ceil_div(tokens, self._dcp), kind.page_tokens) * kind.groups
        held = min(kind.window - 1 + self._in_flight, tokens)
        # A window need not begin where a page does.
        return (ceil_div(held, kind.page_tokens) + 1) * kind.groups

    def _attention_blocks(self, tokens: int) -> int:
        if self._shares_a_group:
            base = self.page_tokens or 1
            return ceil_div(ceil_div(tokens, self._dcp), base) if self._attention else 0
        return sum(self._kind_blocks(kind, tokens) for kind in self._attention)

    def _state_blocks(self, *, reserved: bool) -> int:
        units = self._rule.state_units_high if reserved else self._rule.state_units_low
        return sum(kind.groups for kind in self._stateful) * units

    def blocks_of_states(self, stage: Stage, room_bytes: int) -> int | None:
        """Blocks that the room holds, where states lie in them."""
        return self._blocks(stage, room_bytes) if self._stateful else None

    def _blocks(self, stage: Stage, room_bytes: int) -> int:
        block = self._block_bytes(stage)
        if not block:
            return WITHOUT_END
        return max(0, room_bytes // block - self._rule.reserved_pages)

    def kv_parts(self, stage: Stage, tokens: int, sequences: int) -> tuple[Part, ...]:
        """Bytes of the attention blocks, by kind of layer."""
        if self._shares_a_group:
            return self._shared_parts(stage, tokens, sequences)
        pages, page_bytes = self._pages_per_block(stage), self._page_bytes or 0
        found = []
        for kind in self._attention:
            blocks = self._kind_blocks(kind, tokens) * sequences
            found.append(
                Part(
                    id=kind.parts[0].id,
                    bytes=blocks * self._block_bytes(stage),
                    formula=f"{blocks:,} pages of {kind.page_tokens:,} tokens × {pages} layers"
                    f" × {page_bytes:,} B",
                    **decode_context(1 if kind.window else self._dcp),
                    detail=self._page_formula,
                    source=self._rule.source,
                )
            )
        return tuple(found)

    def _shared_parts(self, stage: Stage, tokens: int, sequences: int) -> tuple[Part, ...]:
        base = self.page_tokens or 1
        blocks = self._attention_blocks(tokens) * sequences
        parts = [part for kind in self._attention for part in kind.parts]
        return tuple(
            Part(
                id=part.id,
                bytes=blocks
                * stage.layers_in(part.layers)
                * ceil_div(base * part.layer_bytes, part.tokens_per_entry),
                formula=f"{blocks:,} pages of {base:,} tokens"
                f" × {stage.layers_in(part.layers)} layers"
                f" × {ceil_div(base * part.layer_bytes, part.tokens_per_entry):,} B",
                **decode_context(self._dcp),
                detail=self._page_formula,
                source=self._rule.source,
            )
            for part in parts
        )

    def state_parts(self, stage: Stage, sequences: int, *, reserved: bool) -> tuple[Part, ...]:
        """Bytes of the state blocks: whole pages, padding included."""
        if not self._stateful:
            return ()
        blocks = self._state_blocks(reserved=reserved) * sequences
        pages = self._pages_per_block(stage)
        return (
            Part(
                id="state_pages",
                bytes=blocks * self._block_bytes(stage),
                formula=f"{blocks:,} pages × {pages} layers × {self._page_bytes or 0:,} B",
                rule="state_groups",
                params={"groups": sum(kind.groups for kind in self._stateful)},
                detail=self._page_formula,
                source=self._rule.source,
            ),
        )

    def sequences_in(self, stage: Stage, room_bytes: int, tokens: int, *, reserved: bool) -> int:
        """Sequences whose blocks, attention and state, the room holds."""
        each = self._attention_blocks(tokens) + self._state_blocks(reserved=reserved)
        return self._blocks(stage, room_bytes) // each if each else WITHOUT_END

    def tokens_in(self, stage: Stage, room_bytes: int, sequences: int, *, reserved: bool) -> int:
        """Tokens of each of `sequences` after their state and window blocks are taken."""
        if not self._full:
            return WITHOUT_END
        each = self._blocks(stage, room_bytes) // sequences - self._state_blocks(reserved=reserved)
        each -= self._window_blocks()
        return max(0, each // self._full_groups) * self._full[0].page_tokens * self._dcp

    def pool_tokens(self, stage: Stage, room_bytes: int) -> int:
        """Tokens if every block held attention: one endless sequence, its window apart."""
        if not self._full:
            return WITHOUT_END
        blocks = max(0, self._blocks(stage, room_bytes) - self._window_blocks())
        return blocks // self._full_groups * self._full[0].page_tokens * self._dcp

    @property
    def _full_groups(self) -> int:
        return 1 if self._shares_a_group else sum(kind.groups for kind in self._full)

    def _window_blocks(self) -> int:
        """Blocks that the windowed layers of one long sequence take."""
        kinds = (kind for kind in self._attention if kind.window)
        return sum(self._kind_blocks(kind, WITHOUT_END) for kind in kinds)


def _token_kinds(parts: Sequence[TokenPart]) -> list[_Kind]:
    """Caches of the same layers and the same window are one page of those layers."""
    found: dict[tuple[tuple[int, ...], int], list[TokenPart]] = {}
    for part in parts:
        found.setdefault((part.layers, part.window), []).append(part)
    return [
        _Kind(
            layers=layers,
            parts=tuple(members),
            token_bytes=ceil_of(sum(Fraction(p.layer_bytes, p.tokens_per_entry) for p in members)),
            window=window,
        )
        for (layers, window), members in found.items()
    ]


def _state_kinds(states: Sequence[StatePart]) -> list[_Kind]:
    found: dict[tuple[int, ...], list[StatePart]] = {}
    for state in states:
        found.setdefault(state.layers, []).append(state)
    return [
        _Kind(
            layers=layers,
            states=tuple(members),
            token_bytes=sum(state.layer_bytes for state in members),
        )
        for layers, members in found.items()
    ]


def _group_size(counts: Sequence[int]) -> int:
    """Layers in a group: as many as the smallest kind has, or the largest where that is little
    more.
    """
    if not counts:
        return 1
    least, most = min(counts), max(counts)
    return most if most < least * _PADDED_UP_TO else least


def ceil_of(value: Fraction | int) -> int:
    """The least whole number that is not below `value`."""
    return -(-value.numerator // value.denominator)


class _Rule(TypedDict, total=False):
    rule: str
    params: dict[str, int]


def decode_context(dcp: int) -> _Rule:
    """The rule of a cache whose tokens decode context parallelism spreads."""
    return {"rule": "decode_context", "params": {"ways": dcp}} if dcp > 1 else {}
