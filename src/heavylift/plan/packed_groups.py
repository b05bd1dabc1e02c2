"""Packed groups: one pool of blocks, each of which holds one page of every layer of some group."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from heavylift.facts.expressions import evaluate
from heavylift.facts.schema import CacheRule
from heavylift.plan.arithmetic import ceil_div, round_up
from heavylift.plan.stages import Stage
from heavylift.plan.subject import Subject
from heavylift.plan.unified_pages import WITHOUT_END
from heavylift.records.plan import Part

_LONGEST: Final = 2**24
"""More tokens than any model reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Page:
    """A cache's page: one block of one layer."""

    layers: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bucket:
    """Caches whose blocks are given out together."""

    id: str
    pages: tuple[_Page, ...]
    block_tokens: int
    window: int

    def counts(self, stage: Stage) -> tuple[int, ...]:
        """Layers of each of its caches on a stage."""
        return tuple(stage.layers_in(page.layers) for page in self.pages)

    def most_layers(self, stage: Stage) -> int:
        """Layers of its largest page size."""
        return max(self._by_size(stage).values(), default=0)

    def is_balanced(self, stage: Stage) -> bool:
        """True when it has as many layers of every page size: a pattern that repeats."""
        return len(set(self._by_size(stage).values())) == 1

    def sizes(self, stage: Stage) -> int:
        """How many page sizes it has."""
        return len(self._by_size(stage))

    def widest(self, stage: Stage, groups: int) -> int:
        """Bytes of the largest of the groups it is split into."""
        return sum(ceil_div(count, groups) * size for size, count in self._by_size(stage).items())

    def _by_size(self, stage: Stage) -> dict[int, int]:
        found: dict[int, int] = {}
        for page, count in zip(self.pages, self.counts(stage), strict=True):
            if count:
                found[page.bytes] = found.get(page.bytes, 0) + count
        return found


class PackedGroups:
    """Caches of unlike page sizes in one pool.

    Formula: a page is its block's bytes rounded up to the alignment. Buckets whose layers are alike
    in number for every page size are split into groups of about as many repeats as the largest
    mixed one has, so that little is padded; a block holds the widest group. A sequence takes
    ceil(tokens / block) blocks of each group that keeps all, and of a windowed one those of the
    window and of the tokens in flight, and one more.
    Source: vLLM `_get_packed_kv_cache_groups`, `_approximate_gcd`, `SlidingWindowSpec`.
    """

    def __init__(self, rule: CacheRule, subject: Subject) -> None:
        self._rule = rule
        self._in_flight = (subject.max_num_batched_tokens or 0) * rule.batches_in_flight
        self._buckets = _buckets(rule, subject)
        self.page_tokens: int | None = rule.block_tokens
        self.page_bytes: int | None = None

    def _groups(self, stage: Stage) -> tuple[tuple[_Bucket, int], ...]:
        """The buckets on a stage, each with the groups it is split into."""
        here = [bucket for bucket in self._buckets if bucket.most_layers(stage)]
        balanced = [bucket for bucket in here if bucket.is_balanced(stage)]
        mixed = [bucket.most_layers(stage) for bucket in balanced if bucket.sizes(stage) > 1]
        if not mixed:
            return tuple((bucket, 1) for bucket in here)
        counts = [bucket.most_layers(stage) for bucket in balanced]
        repeats = _least_padding(counts, max(mixed))
        return tuple(
            (bucket, ceil_div(bucket.most_layers(stage), repeats) if bucket in balanced else 1)
            for bucket in here
        )

    def _block_bytes(self, stage: Stage) -> int:
        return max(
            (bucket.widest(stage, count) for bucket, count in self._groups(stage)), default=0
        )

    def _blocks(self, bucket: _Bucket, groups: int, tokens: int) -> int:
        if not bucket.window:
            return ceil_div(tokens, bucket.block_tokens) * groups
        held = min(bucket.window - 1 + self._in_flight, tokens)
        # A window need not begin where a block does.
        return (ceil_div(held, bucket.block_tokens) + 1) * groups

    def _sequence_blocks(self, stage: Stage, tokens: int) -> int:
        return sum(self._blocks(bucket, count, tokens) for bucket, count in self._groups(stage))

    def _room_blocks(self, stage: Stage, room_bytes: int) -> int:
        block = self._block_bytes(stage)
        if not block:
            return WITHOUT_END
        return max(0, room_bytes // block - self._rule.reserved_pages)

    def kv_parts(self, stage: Stage, tokens: int, sequences: int) -> tuple[Part, ...]:
        """Bytes of the blocks, a part for each bucket."""
        block = self._block_bytes(stage)
        return tuple(
            Part(
                id=bucket.id,
                bytes=sequences * self._blocks(bucket, count, tokens) * block,
                formula=f"{sequences} × {self._blocks(bucket, count, tokens):,} blocks"
                f" × {block:,} B ({bucket.block_tokens} tokens, {count} groups)",
                source=self._rule.source,
            )
            for bucket, count in self._groups(stage)
        )

    def state_parts(self, stage: Stage, sequences: int, *, reserved: bool) -> tuple[Part, ...]:  # noqa: ARG002
        """None: what is not compressed yet lies in windowed blocks of the same pool."""
        return ()

    def sequences_in(self, stage: Stage, room_bytes: int, tokens: int, *, reserved: bool) -> int:  # noqa: ARG002
        """Sequences that the blocks hold."""
        each = self._sequence_blocks(stage, tokens)
        return self._room_blocks(stage, room_bytes) // each if each else WITHOUT_END

    def tokens_in(self, stage: Stage, room_bytes: int, sequences: int, *, reserved: bool) -> int:  # noqa: ARG002
        """The longest length at which each of the sequences has its blocks."""
        blocks = self._room_blocks(stage, room_bytes) // sequences
        lengths = range(_LONGEST + 1)
        longest = bisect_right(lengths, blocks, key=lambda n: self._sequence_blocks(stage, n))
        return max(0, longest - 1)

    def pool_tokens(self, stage: Stage, room_bytes: int) -> int:
        """Tokens of one endless sequence, beside its windows."""
        blocks = self._room_blocks(stage, room_bytes)
        fixed = full = 0
        for bucket, count in self._groups(stage):
            if bucket.window:
                fixed += self._blocks(bucket, count, _LONGEST)
            else:
                full += count
        if not full:
            return WITHOUT_END
        return max(0, blocks - fixed) // full * self._rule.block_tokens


def _buckets(rule: CacheRule, subject: Subject) -> tuple[_Bucket, ...]:
    """The rule's caches by bucket, in the KV dtype of the subject."""
    found: dict[str, list[tuple[_Page, int, int]]] = {}
    for each in rule.packed:
        if each.dtype not in (None, subject.kv_dtype):
            continue
        page = _Page(
            layers=subject.model.layer_set(each.layers),
            bytes=round_up(evaluate(each.bytes, subject.dims), each.alignment_bytes),
        )
        window = evaluate(each.window, subject.dims)
        found.setdefault(each.bucket, []).append((page, each.block_tokens, window))
    return tuple(
        _Bucket(
            id=name,
            pages=tuple(page for page, _, _ in members),
            block_tokens=members[0][1],
            window=members[0][2],
        )
        for name, members in found.items()
    )


def _least_padding(counts: Sequence[int], least: int) -> int:
    """Of the sizes from `least` up the one that pads the counts least; of equals the largest."""
    sizes = range(least, max(*counts, least) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in counts), -size))
