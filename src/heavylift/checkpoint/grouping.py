"""Half a million tensors as a few dozen groups, and the groups beside those of an inventory."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from heavylift.checkpoint.inventory import Inventory, TensorGroup
from heavylift.checkpoint.safetensors import HeaderTable, byte_length

TensorKey = tuple[str, str, tuple[int, ...], int]
"""Name with `{e}` for the expert number, dtype, shape, bytes: what experts of a layer share."""

# [0-9] and a literal start, not \d and a look-behind: this runs over all names, and is five times
# faster so.
_EXPERT_NUMBER: Final = re.compile(r"\.experts\.[0-9]+")
_LAYER_NUMBER: Final = re.compile(
    r"(?:^|\.)(?:layers?|blocks?|blk|h|mtp)\.(?P<layer>0|[1-9][0-9]{0,5})(?=\.)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderGroup:
    """Tensors that differ only in layer and expert number.

    `pattern` is the name with `{l}` and `{e}`; `layers` the layers that have it, None where the
    name has no layer; `per_layer` how many each of them has (experts; else 1). Layers with another
    number of experts, dtype or shape are a group of their own.
    """

    pattern: str
    dtype: str
    shape: tuple[int, ...]
    bytes_each: int
    layers: tuple[int, ...] | None
    per_layer: int

    @property
    def count(self) -> int:
        """Tensors in the group."""
        return self.per_layer * (1 if self.layers is None else len(self.layers))

    @property
    def bytes(self) -> int:
        """Bytes of all tensors of the group, as the data offsets say."""
        return self.bytes_each * self.count


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchedGroup:
    """Tensors of the files (`found`) and the group of an inventory that claims them."""

    expected: TensorGroup
    found: HeaderGroup

    @property
    def agrees(self) -> bool:
        """False when the file's shape, or its number of experts, is not the expected one.

        The dtype is the file's own affair: the same network is published in several.
        """
        found, expected = self.found, self.expected
        return (found.shape, found.per_layer) == (expected.shape, expected.per_layer)

    @property
    def resolved(self) -> TensorGroup:
        """The expected group's role and rules with the file's dtype, shape, layers and bytes."""
        elements = math.prod(self.expected.shape)
        scaled = self.expected.params_each * math.prod(self.found.shape)
        return replace(
            self.expected,
            dtype=self.found.dtype,
            shape=self.found.shape,
            layers=self.found.layers,
            per_layer=self.found.per_layer,
            bytes_each=self.found.bytes_each,
            params_each=scaled // elements if elements else 0,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingTensors:
    """Tensors that are expected and not in the files: `per_layer` in each of `layers`."""

    expected: TensorGroup
    layers: tuple[int, ...] | None
    per_layer: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """Groups of the files against those of an inventory."""

    matched: tuple[MatchedGroup, ...]
    unmatched: tuple[HeaderGroup, ...]
    missing: tuple[MissingTensors, ...]

    def inventory(self, source: str) -> Inventory:
        """The matched tensors, as the files have them. `source` names the files."""
        return Inventory(groups=tuple(each.resolved for each in self.matched), source=source)


def tally(table: HeaderTable) -> Counter[TensorKey]:
    """How many tensors of a file share a key. Tallies of several files add up."""
    names = _without_expert_numbers(table.names)
    return Counter(zip(names, table.dtypes, table.shapes, table.lengths, strict=True))


def lengths_agree(tallied: Iterable[TensorKey]) -> bool:
    """True when every key's bytes are its dtype × shape."""
    return all(length == byte_length(dtype, shape) for _, dtype, shape, length in tallied)


def group(tallied: Mapping[TensorKey, int]) -> tuple[HeaderGroup, ...]:
    """The groups of a tally, in the order of their patterns."""
    layers_of: dict[tuple[str, str, tuple[int, ...], int, int], list[int]] = {}
    for (name, dtype, shape, length), count in tallied.items():
        pattern, layer = _without_layer_number(name)
        layers = layers_of.setdefault((pattern, dtype, shape, length, count), [])
        if layer is not None:
            layers.append(layer)
    groups = [
        HeaderGroup(
            pattern=pattern,
            dtype=dtype,
            shape=shape,
            bytes_each=length,
            layers=tuple(sorted(layers)) or None,
            per_layer=count,
        )
        for (pattern, dtype, shape, length, count), layers in layers_of.items()
    ]
    return tuple(sorted(groups, key=lambda each: (each.pattern, each.layers or ())))


def match(groups: Iterable[HeaderGroup], expected: Iterable[TensorGroup]) -> Match:
    """Which expected group claims which tensors, which nobody claims, which are not there.

    Groups that share a name are told apart by their layers: each takes those of its own. A dtype
    or shape that differs is still a match that does not agree: bytes come from the files.
    """
    unclaimed: dict[str, list[HeaderGroup]] = {}
    for each in groups:
        unclaimed.setdefault(each.pattern, []).append(each)
    matched: list[MatchedGroup] = []
    missing: list[MissingTensors] = []
    for wanted in expected:
        claimed, left = _claim(unclaimed.get(wanted.name, []), wanted.layers)
        unclaimed[wanted.name] = left
        matched += [MatchedGroup(expected=wanted, found=each) for each in claimed]
        missing += _missing(wanted, claimed)
    return Match(
        matched=tuple(matched),
        unmatched=tuple(each for left in unclaimed.values() for each in left),
        missing=tuple(missing),
    )


def _claim(
    groups: Iterable[HeaderGroup], layers: tuple[int, ...] | None
) -> tuple[list[HeaderGroup], list[HeaderGroup]]:
    """`groups` cut in two: what lies in `layers`, and the rest."""
    claimed: list[HeaderGroup] = []
    left: list[HeaderGroup] = []
    for each in groups:
        if layers is None or each.layers is None:
            (claimed if layers is each.layers else left).append(each)
            continue
        wanted = frozenset(layers)
        inside = tuple(layer for layer in each.layers if layer in wanted)
        outside = tuple(layer for layer in each.layers if layer not in wanted)
        if inside:
            claimed.append(replace(each, layers=inside))
        if outside:
            left.append(replace(each, layers=outside))
    return claimed, left


def _missing(expected: TensorGroup, claimed: Iterable[HeaderGroup]) -> list[MissingTensors]:
    found: Counter[int | None] = Counter()
    for each in claimed:
        for place in each.layers or (None,):
            found[place] += each.per_layer
    layers_by_gap: dict[int, list[int]] = {}
    for place in expected.layers or (None,):
        gap = expected.per_layer - found[place]
        if gap > 0:
            layers_by_gap.setdefault(gap, []).extend(() if place is None else (place,))
    return [
        MissingTensors(expected=expected, layers=tuple(short) or None, per_layer=gap)
        for gap, short in layers_by_gap.items()
    ]


def _without_expert_numbers(names: tuple[str, ...]) -> list[str]:
    """`names` with `{e}` for the expert number.

    One substitution over all names joined takes a fifth of the time of one per name. A name that
    holds the separator itself would shift all that follow, so such names go one by one.
    """
    joined = _EXPERT_NUMBER.sub(".experts.{e}", "\n".join(names)).split("\n")
    if len(joined) == len(names) or not names:
        return joined if names else []
    return [_EXPERT_NUMBER.sub(".experts.{e}", name) for name in names]


def _without_layer_number(name: str) -> tuple[str, int | None]:
    """`name` with `{l}` for its layer number, and that number; None where it has none."""
    found = _LAYER_NUMBER.search(name)
    if found is None:
        return name, None
    begin, end = found.span("layer")
    return f"{name[:begin]}{{l}}{name[end:]}", int(found["layer"])
