"""Tensors of files given the place a family describes for their module.

The same network is published in many forms: a quantised layer is several tensors where the family
lists one, the experts of a layer may be one tensor, and models with a vision tower wrap their text
part. A tensor belongs to the module its name says; how it is cut follows from the module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from heavylift.checkpoint.census import DRAFT as _DRAFT_ROLE
from heavylift.checkpoint.census import role_finder
from heavylift.checkpoint.grouping import HeaderGroup
from heavylift.checkpoint.inventory import Inventory, TensorGroup
from heavylift.checkpoint.quantisation_config import canonical
from heavylift.facts.checkpoint_schema import TensorBook
from heavylift.facts.schema import ModelFacts

UNSAID: Final = "unsaid"
"""How a tensor meets the ranks whose place in the network nobody described."""

_EXPERTS: Final = "expert"
_APART: Final = frozenset({"vision", "projector", "audio"})
_OTHER_ROLE: Final = "other"
_PLAIN: Final = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"})
_MAIN: Final = frozenset({"weight", "weight_packed", "qweight"})
_EXPERT: Final = ".{e}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """A tensor whose shape, or number, is not the one its family and config give it."""

    found: HeaderGroup
    expected: TensorGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class Adoption:
    """The tensors of files by a family: `groups` to plan with, what is `missing` (tensors of a
    group that no file holds), and what `disagrees`.
    """

    groups: tuple[TensorGroup, ...]
    missing: tuple[TensorGroup, ...]
    disagrees: tuple[Disagreement, ...]

    def inventory(self, source: str, *, cut_by_name: bool = False) -> Inventory:
        """The tensors as the files have them. `source` names the files."""
        return Inventory(groups=self.groups, source=source, is_read=True, cut_by_name=cut_by_name)

    @property
    def unsaid(self) -> tuple[TensorGroup, ...]:
        """Tensors whose place nobody described."""
        return tuple(group for group in self.groups if group.shard == UNSAID)


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """What a tensor's name says where no family does: its role, and how ranks cut it."""

    role_of: Callable[[str], str]
    cuts: tuple[tuple[str, int, tuple[re.Pattern[str], ...]], ...] = ()
    """Shard, axis and the names that are cut so; the first that is found counts."""
    layers: int | None = None
    """Layers of the network; what lies beyond them drafts tokens."""
    kv_heads: int | None = None

    def drafts(self, group: HeaderGroup) -> bool:
        """True for what is loaded only to speculate."""
        if self.role_of(group.pattern) == _DRAFT_ROLE:
            return True
        if self.layers is None or not group.layers or group.layers[0] < self.layers:
            return False
        # Towers count their layers apart.
        return self.role_of(group.pattern) not in _APART

    def cut(self, group: HeaderGroup) -> tuple[str, int]:
        """How ranks cut it: shard and axis."""
        name = canonical(group.pattern)
        if self.role_of(group.pattern) in _APART:
            return UNSAID, 0
        for shard, axis, names in self.cuts:
            if not any(each.search(name) for each in names):
                continue
            if shard == "kv_heads" and self.kv_heads is None:
                return UNSAID, 0
            if math.prod(group.shape) <= 1:
                return "replicated", 0
            return shard, axis if axis < len(group.shape) else 0
        return UNSAID, 0


def names_of(book: TensorBook, *, with_cuts: bool, model: ModelFacts | None = None) -> Names:
    """The names of a book; `with_cuts` = for a model whose family lists no tensors."""
    dims = {} if model is None else model.dim_values
    experts = {"experts", "experts_per_token", "moe_intermediate_size"} <= set(dims)
    return Names(
        role_of=role_finder(book),
        cuts=tuple(
            (each.shard, each.axis, tuple(map(re.compile, each.names)))
            for each in book.cuts
            if with_cuts and (experts or each.shard != _EXPERTS)
        ),
        layers=dims.get("layers"),
        kv_heads=dims.get("kv_heads"),
    )


def adopt(
    groups: Iterable[HeaderGroup],
    expected: Iterable[TensorGroup],
    names: Names | None = None,
) -> Adoption:
    """Every tensor of the files with the role and rules of the module it belongs to.

    `expected` are the family's groups in their plain form. A module is there when any tensor of it
    is; prediction heads may be left out of files. `names` speak for tensors of no module.
    """
    book = _Book(expected)
    found: list[TensorGroup] = []
    disagrees: list[Disagreement] = []
    for each in groups:
        for part, owner in book.owners(each):
            if owner is None:
                found += _by_name(part, names)
                continue
            if not _agrees(part, owner):
                disagrees.append(Disagreement(found=part, expected=owner))
            found.append(_placed(part, owner))
    return Adoption(groups=tuple(found), missing=tuple(book.missing()), disagrees=tuple(disagrees))


class _Book:
    """The family's groups, by name, by module and by the module that holds experts."""

    def __init__(self, expected: Iterable[TensorGroup]) -> None:
        self._all = [replace(group, name=canonical(group.name)) for group in expected]
        self._by_name: dict[str, list[int]] = {}
        self._by_module: dict[str, list[int]] = {}
        for index, group in enumerate(self._all):
            module = _module(group.name)
            self._by_name.setdefault(group.name, []).append(index)
            self._by_module.setdefault(module, []).append(index)
            if _EXPERT in module:
                holder = module[: module.index(_EXPERT)]
                self._by_module.setdefault(holder, []).append(index)
        self._seen: dict[int, set[int]] = {index: set() for index in range(len(self._all))}

    def owners(self, found: HeaderGroup) -> Iterator[tuple[HeaderGroup, TensorGroup | None]]:
        """The parts of a group of the files, each with the family's group that it belongs to."""
        name = canonical(found.pattern)
        module = _module(name)
        candidates = self._by_name.get(name) or self._by_module.get(module, [])
        # The module of a tensor that is named without a last word, as fused experts are.
        left = None if found.layers is None else set(found.layers)
        for index in candidates:
            group = self._all[index]
            places = self._places(group, found.layers)
            if left is None:
                if group.layers is None:
                    self._see(candidates, None)
                    yield found, group
                    return
                continue
            taken = left & places
            if taken:
                left -= taken
                self._see(candidates, taken)
                yield replace(found, layers=tuple(sorted(taken))), group
        if left is None:
            yield found, None
        elif left:
            yield replace(found, layers=tuple(sorted(left))), None

    def _places(self, group: TensorGroup, layers: tuple[int, ...] | None) -> set[int]:
        """Layers of the files that a group covers. Prediction heads with layers of their own are
        counted from 0 in some files.
        """
        own = set(group.layers or ())
        if group.is_draft and layers is not None and not own & set(layers):
            return set(layers) if len(layers) <= len(own) else set()
        return own

    def _see(self, indices: Sequence[int], layers: set[int] | None) -> None:
        for index in indices:
            group = self._all[index]
            if layers is None:
                self._seen[index].add(-1)
            elif group.is_draft:
                self._seen[index].update(group.layers or ())
            else:
                self._seen[index].update(layers)

    def missing(self) -> Iterator[TensorGroup]:
        """Groups no tensor of the files belongs to, with the layers that lack them.

        A matrix must be there; what only goes with one (a bias, a correction) is in some files of a
        family and not in others, and is not missed where its module is there.
        """
        for index, group in enumerate(self._all):
            if group.is_draft:
                continue
            seen = self._seen_with(index, group)
            if group.layers is None:
                if not seen:
                    yield group
                continue
            gone = tuple(layer for layer in group.layers if layer not in seen)
            if gone:
                yield replace(group, layers=gone)

    def _seen_with(self, index: int, group: TensorGroup) -> set[int]:
        """The layers in which a group was seen; of what goes with a matrix, those of its module."""
        if group.name.rpartition(".")[2] in _MAIN:
            return self._seen[index]
        module = self._by_module.get(_module(group.name), [])
        return self._seen[index].union(*(self._seen[other] for other in module))


def _module(name: str) -> str:
    """What a tensor belongs to. Some quantisers hang their tables on the weight itself."""
    module, hung, _ = name.partition(".weight.")
    return module if hung else name.rpartition(".")[0]


def _by_name(found: HeaderGroup, names: Names | None) -> Iterator[TensorGroup]:
    """A tensor of no module; with what its name says where names speak."""
    if names is None:
        yield _unsaid(found)
        return
    for part in _inside_and_beyond(found, names.layers):
        shard, axis = names.cut(part)
        group = replace(_unsaid(part), shard=shard, axis=axis, is_draft=names.drafts(part))
        if shard != UNSAID:
            group = replace(group, role=names.role_of(part.pattern), heads=names.kv_heads or 1)
        yield group


def _inside_and_beyond(found: HeaderGroup, layers: int | None) -> Iterator[HeaderGroup]:
    """A group cut where the network ends."""
    if found.layers is None or layers is None:
        yield found
        return
    inside = tuple(layer for layer in found.layers if layer < layers)
    beyond = tuple(layer for layer in found.layers if layer >= layers)
    yield from (replace(found, layers=part) for part in (inside, beyond) if part)


def _unsaid(found: HeaderGroup) -> TensorGroup:
    plain = found.dtype in _PLAIN
    return TensorGroup(
        name=found.pattern,
        dtype=found.dtype,
        shape=found.shape,
        role=_OTHER_ROLE,
        shard=UNSAID,
        axis=0,
        layers=found.layers,
        per_layer=found.per_layer,
        bytes_each=found.bytes_each,
        params_each=math.prod(found.shape) if plain else 0,
    )


def _placed(found: HeaderGroup, owner: TensorGroup) -> TensorGroup:
    axis = _axis(found.shape, owner)
    shard = owner.shard
    if axis is None and shard in ("tensor", "kv_heads"):
        shard = "replicated"
    return replace(
        owner,
        name=found.pattern,
        dtype=found.dtype,
        shape=found.shape,
        shard=shard,
        axis=axis or 0,
        layers=found.layers,
        per_layer=found.per_layer,
        bytes_each=found.bytes_each,
        params_each=_params(found, owner),
    )


def _axis(shape: tuple[int, ...], owner: TensorGroup) -> int | None:
    """The axis along which a tensor of a module is cut; None when it is too small to be.

    The family's axis where its length goes with the cut one; else, for a form that stores the
    matrix the other way round, the axis whose length does.
    """
    if math.prod(shape) <= 1:
        return None
    length = owner.split_size
    places = (owner.axis, *range(len(shape)))
    fits = [
        place
        for place in places
        if place < len(shape) and shape[place] > 1 and _goes_with(shape[place], length)
    ]
    return fits[0] if fits else None


def _goes_with(size: int, length: int) -> bool:
    return length % size == 0 or size % length == 0


def _params(found: HeaderGroup, owner: TensorGroup) -> int:
    """Logical parameters of a tensor: as many as it has numbers; of packed ones, the module's."""
    name = canonical(found.pattern)
    if name == owner.name and found.shape == owner.shape:
        return owner.params_each
    if found.dtype in _PLAIN:
        is_scale = name != owner.name and name.rpartition(".")[2] not in _MAIN
        in_one = _EXPERT in owner.name and _EXPERT not in name
        return math.prod(found.shape) if in_one or not is_scale else 0
    return owner.params_each if name.rpartition(".")[2] in _MAIN else 0


def _agrees(found: HeaderGroup, owner: TensorGroup) -> bool:
    """False when the tensor of that very name, stored plainly, has another shape or number."""
    if canonical(found.pattern) != owner.name or found.dtype not in _PLAIN:
        return True
    if owner.is_draft or not owner.params_each:
        return found.shape == owner.shape or owner.is_draft
    return (found.shape, found.per_layer) == (owner.shape, owner.per_layer)
