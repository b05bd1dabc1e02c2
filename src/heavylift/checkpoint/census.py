"""A checkpoint counted: parameters, bytes by dtype, role and layer, what is quantised."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from heavylift.checkpoint.grouping import HeaderGroup
from heavylift.checkpoint.inventory import Inventory
from heavylift.checkpoint.packing import UNREAD, Hints, Packing, packing, unpacked
from heavylift.facts.checkpoint_schema import TensorBook
from heavylift.records.inspection import LayerBytes, Share, Stored

RoleOf = Callable[[str], str]

OTHER: Final = "other"
DRAFT: Final = "draft"
EXPERTS: Final = "experts"
EMBED: Final = "embed"
LM_HEAD: Final = "lm_head"
_NOT_FOR_TEXT: Final = frozenset({"vision", "projector", "audio", DRAFT})
_MANY_LAYERS: Final = 10_000
_MOST_BITS: Final = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """What a config or a GGUF header says of the network; None where it does not."""

    experts_per_token: int | None = None
    experts: int | None = None
    layers: int | None = None
    packing: Hints = field(default_factory=Hints)
    model_type: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """A group with its role. `of` is the packing of its weights; None for a side tensor."""

    group: HeaderGroup
    role: str
    of: Packing | None
    has_scales: bool = False

    @property
    def parameters(self) -> int | None:
        """Weights of all its tensors; None when not known."""
        if self.of is None:
            return 0
        return None if self.of.parameters is None else self.of.parameters * self.group.count


@dataclass(frozen=True, kw_only=True, slots=True)
class Census:
    """All groups, counted."""

    counted: tuple[Counted, ...]
    stated: Stated

    @property
    def uncounted_tensors(self) -> int:
        """Tensors whose packing is not known."""
        return sum(each.group.count for each in self.counted if each.parameters is None)

    @property
    def total_params(self) -> int | None:
        """Logical weights of everything; None when some are not known."""
        return _sum(each.parameters for each in self.counted)

    @property
    def experts(self) -> int | None:
        """Routed experts of a layer; None without any."""
        return max((self._experts(each.group) for each in self._routed()), default=None)

    @property
    def active_params(self) -> int | None:
        """Weights that one text token touches; None when not known.

        Formula: dense + routed × experts_per_token / experts, without vision, audio, draft layers
        and the embedding table where there is an output head beside it.
        """
        roles = {each.role for each in self.counted}
        left_out = _NOT_FOR_TEXT | ({EMBED} if LM_HEAD in roles else set())
        used = [each for each in self.counted if each.role not in left_out]
        routed = [each for each in used if each.role == EXPERTS]
        chosen = self.stated.experts_per_token
        if routed and chosen is None:
            return None
        active: int | None = _sum(each.parameters for each in used if each.role != EXPERTS)
        for each in routed:
            if each.parameters is None or active is None or chosen is None:
                return None
            experts = self._experts(each.group)
            active += each.parameters * min(chosen, experts) // experts
        return active

    def dtypes(self) -> tuple[Share, ...]:
        """Bytes by dtype, the largest first."""
        return _shares(self.counted, lambda each: each.group.dtype, parameters=False)

    def roles(self) -> tuple[Share, ...]:
        """Bytes and parameters by role, the largest first."""
        return _shares(self.counted, lambda each: each.role, parameters=True)

    def stored(self) -> tuple[Stored, ...]:
        """Bytes by role and way of storing, the largest first; scales stand with their weights."""
        rows: dict[tuple[str, str, float | None, bool], list[Counted]] = defaultdict(list)
        scale_bytes: dict[str, int] = defaultdict(int)
        scale_tensors: dict[str, int] = defaultdict(int)
        for each in self.counted:
            if each.of is None:
                scale_bytes[each.role] += each.group.bytes
                scale_tensors[each.role] += each.group.count
                continue
            quantised = each.of.quantised or each.has_scales
            rows[each.role, each.group.dtype, each.of.bits, quantised].append(each)
        found = []
        for (role, dtype, bits, quantised), members in rows.items():
            # The scales of a role stand with its largest quantised row.
            sizes = {
                key: sum(each.group.bytes for each in others)
                for key, others in rows.items()
                if key[0] == role and key[3]
            }
            largest = max(sizes, key=lambda key: sizes[key], default=None)
            mine = largest == (role, dtype, bits, quantised)
            scales = scale_bytes[role] if mine else 0
            found.append(
                Stored(
                    role=role,
                    dtype=dtype,
                    bits_per_weight=bits,
                    quantised=quantised,
                    tensors=sum(each.group.count for each in members)
                    + (scale_tensors[role] if mine else 0),
                    bytes=sum(each.group.bytes for each in members) + scales,
                    scale_bytes=scales,
                    parameters=_sum(each.parameters for each in members),
                )
            )
        return tuple(sorted(found, key=lambda row: (-row.bytes, row.role, row.dtype)))

    def layers(self) -> tuple[tuple[LayerBytes, ...], int]:
        """Bytes of the text model's layers, and of everything that lies in none."""
        of_layer: dict[int, int] = defaultdict(int)
        outside = 0
        for each in self.counted:
            if each.group.layers is None or each.role in _NOT_FOR_TEXT - {DRAFT}:
                outside += each.group.bytes
                continue
            for layer in each.group.layers:
                of_layer[layer] += each.group.bytes_each * each.group.per_layer
        same: dict[int, list[int]] = defaultdict(list)
        for layer, size in sorted(of_layer.items()):
            same[size].append(layer)
        found = tuple(
            LayerBytes(layers=tuple(layers), bytes_each=size) for size, layers in same.items()
        )
        return found, outside

    def _experts(self, group: HeaderGroup) -> int:
        """Experts of a layer: a tensor each, or stacked in the first axis of one."""
        if "{e}" in group.pattern:
            return group.per_layer
        if self.stated.experts is not None:
            return self.stated.experts
        return max(group.shape[0], 1) if group.shape else 1

    def _routed(self) -> Iterable[Counted]:
        return (each for each in self.counted if each.role == EXPERTS)


def census(
    groups: Sequence[HeaderGroup],
    stated: Stated,
    book: TensorBook,
    weights_each: Mapping[str, int] | None = None,
) -> Census:
    """Every group with its role and what it counts as.

    `weights_each` are the weights of one tensor by pattern, where facts know them.
    """
    known = weights_each or {}
    role_of = role_finder(book)
    groups = [part for group in groups for part in _cut(group, stated.layers, role_of)]
    ends = sorted(book.words.side_tensors, key=len, reverse=True)
    four_bit = frozenset(book.words.four_bit_states)
    unread = tuple(
        each if each.startswith(":") else f".{each}" for each in book.words.unread_weights
    )
    split = [_stem(group.pattern, ends) for group in groups]
    mains: dict[str, list[HeaderGroup]] = defaultdict(list)
    sides: dict[str, list[tuple[str, HeaderGroup]]] = defaultdict(list)
    for group, (stem, end) in zip(groups, split, strict=True):
        if end:
            sides[stem].append((end, group))
        else:
            mains[stem].append(group)
    counted = []
    for group, (stem, end) in zip(groups, split, strict=True):
        role = role_of(group.pattern)
        if stated.layers is not None and _lies_beyond(group, stated.layers, role):
            role = DRAFT
        if end and stem in mains:
            counted.append(Counted(group=group, role=role, of=None))
            continue
        beside = {} if end else _beside(group, sides.get(stem, ()))
        if group.pattern in known:
            found = unpacked(group, known[group.pattern])
        elif group.pattern.endswith(unread):
            found = UNREAD
        else:
            found = packing(group, beside, stated.packing, four_bit)
        is_weight = not group.pattern.endswith("bias")
        counted.append(
            Counted(group=group, role=role, of=found, has_scales=bool(beside) and is_weight)
        )
    return Census(counted=tuple(counted), stated=stated)


def groups_of_inventory(inventory: Inventory) -> tuple[HeaderGroup, ...]:
    """The groups that files of this inventory would have."""
    return tuple(
        HeaderGroup(
            pattern=group.name,
            dtype=group.dtype,
            shape=group.shape,
            bytes_each=group.bytes_each,
            layers=group.layers,
            per_layer=group.per_layer,
        )
        for group in inventory.groups
    )


def stated_in_config(document: Mapping[str, Any], book: TensorBook) -> Stated:
    """What a config.json says. A field of the wrong kind counts as not stated."""
    words = book.words
    tables = [document, *(document.get(name) for name in words.nests)]
    nested = [table for table in tables if isinstance(table, Mapping)]
    described = [
        table[name]
        for table in nested
        for name in words.quantisation
        if isinstance(table.get(name), Mapping)
    ]
    deep = [part for table in described for part in (table, *_weight_groups(table))]
    kind = document.get("model_type")
    return Stated(
        experts_per_token=_first_number(nested, words.experts_per_token, _MANY_LAYERS),
        experts=_first_number(nested, words.experts, _MANY_LAYERS),
        layers=_first_number(nested, words.layers, _MANY_LAYERS),
        packing=Hints(
            bits=_only_number(deep, words.bits, _MOST_BITS),
            group_size=_only_number(deep, words.group_size, 2**20),
        ),
        model_type=kind if isinstance(kind, str) else None,
    )


def stated_in_gguf(metadata: Mapping[str, Any]) -> Stated:
    """What the header of a GGUF file says."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        return Stated()

    def number(key: str) -> int | None:
        value = metadata.get(f"{architecture}.{key}")
        return value if type(value) is int and 0 < value <= _MANY_LAYERS else None

    layers = number("block_count")
    drafts = number("nextn_predict_layers") or 0
    return Stated(
        experts_per_token=number("expert_used_count"),
        experts=number("expert_count"),
        layers=None if layers is None else max(layers - drafts, 0),
        model_type=architecture,
    )


def _weight_groups(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The `weights` of the groups that compressed-tensors writes."""
    groups = table.get("config_groups")
    if not isinstance(groups, Mapping):
        return []
    found = [each.get("weights") for each in groups.values() if isinstance(each, Mapping)]
    return [each for each in found if isinstance(each, Mapping)]


def _first_number(
    tables: Iterable[Mapping[str, Any]], names: Iterable[str], most: int
) -> int | None:
    for table in tables:
        for name in names:
            value = table.get(name)
            if type(value) is int and 0 < value <= most:
                return value
    return None


def _only_number(
    tables: Iterable[Mapping[str, Any]], names: Sequence[str], most: int
) -> int | None:
    """The number under any of these names when all that state one state the same."""
    found = {
        table[name]
        for table in tables
        for name in names
        if type(table.get(name)) is int and 0 < table[name] <= most
    }
    return found.pop() if len(found) == 1 else None


def role_finder(book: TensorBook) -> RoleOf:
    """The role of a tensor by its name."""
    compiled = [(each.role, [re.compile(name) for name in each.names]) for each in book.roles]

    def role_of(pattern: str) -> str:
        for role, expressions in compiled:
            if any(expression.search(pattern) for expression in expressions):
                return role
        return OTHER

    return role_of


def _stem(pattern: str, ends: Sequence[str]) -> tuple[str, str]:
    """What a weight and its side tensors have in common, and the end that makes it a side tensor.

    An end that begins with `_` continues a word; others follow a dot.
    """
    for end in ends:
        joint = "" if end.startswith("_") else "."
        if pattern.endswith(joint + end):
            return pattern[: -len(joint + end)], end
    for end in (".weight_packed", ".qweight", ".weight", "_blocks", "_packed", "_quantized"):
        if pattern.endswith(end):
            return pattern[: -len(end)], ""
    return pattern, ""


def _beside(group: HeaderGroup, sides: Iterable[tuple[str, HeaderGroup]]) -> dict[str, HeaderGroup]:
    """Side tensors that lie in the same layers as `group`."""
    wanted = None if group.layers is None else frozenset(group.layers)
    return {
        end: side
        for end, side in sides
        if wanted is None or side.layers is None or not wanted.isdisjoint(side.layers)
    }


def _cut(group: HeaderGroup, layers: int | None, role_of: RoleOf) -> tuple[HeaderGroup, ...]:
    """A group cut where the network ends: layers after its last one draft tokens."""
    if group.layers is None or layers is None or role_of(group.pattern) in _NOT_FOR_TEXT:
        return (group,)
    inside = tuple(layer for layer in group.layers if layer < layers)
    beyond = tuple(layer for layer in group.layers if layer >= layers)
    return tuple(replace(group, layers=part) for part in (inside, beyond) if part)


def _lies_beyond(group: HeaderGroup, layers: int, role: str) -> bool:
    return group.layers is not None and role not in _NOT_FOR_TEXT and group.layers[0] >= layers


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _shares(
    counted: Iterable[Counted], key: Callable[[Counted], str], *, parameters: bool
) -> tuple[Share, ...]:
    members: dict[str, list[Counted]] = defaultdict(list)
    for each in counted:
        members[key(each)].append(each)
    shares = [
        Share(
            name=name,
            tensors=sum(each.group.count for each in group),
            bytes=sum(each.group.bytes for each in group),
            parameters=_sum(each.parameters for each in group) if parameters else None,
        )
        for name, group in members.items()
    ]
    return tuple(sorted(shares, key=lambda share: (-share.bytes, share.name)))
