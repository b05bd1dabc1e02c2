"""Inventory: every tensor of a checkpoint as groups of like ones, with bytes, parameters and rules.

A group is one name pattern: the tensors in it differ only in layer and expert number. The groups of
a model are rebuilt from facts, without the checkpoint, or filled from its headers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from heavylift.checkpoint.formats import bytes_of
from heavylift.checkpoint.quantisation import matches, scheme_of, stored
from heavylift.errors import HeavyliftError
from heavylift.facts.expressions import evaluate
from heavylift.facts.schema import (
    CheckpointFormat,
    FamilyFacts,
    ModelFacts,
    QuantisedFacts,
    TensorPattern,
    VariantFacts,
)

_TABLE: Final = "embed"


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorGroup:
    """Tensors of one name pattern.

    `layers` are the layer numbers they exist in, None when there is a single one outside the
    layers. `per_layer` counts the tensors in each (the experts), `bytes_each` and `params_each`
    are of one tensor. `split_size` is the length of the axis that tensor parallelism splits.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    shard: str
    axis: int
    layers: tuple[int, ...] | None
    per_layer: int
    bytes_each: int
    params_each: int
    heads: int = 1
    is_draft: bool = False

    @property
    def count(self) -> int:
        """Tensors in the group."""
        return (1 if self.layers is None else len(self.layers)) * self.per_layer

    @property
    def bytes_total(self) -> int:
        """Bytes of the whole group."""
        return self.count * self.bytes_each

    @property
    def params_total(self) -> int:
        """Logical parameters of the whole group: a byte of packed 4-bit weights counts as two."""
        return self.count * self.params_each

    @property
    def split_size(self) -> int:
        """Length of the split axis; 1 for a tensor without one."""
        return self.shape[self.axis] if self.shape else 1

    @property
    def is_vision(self) -> bool:
        """True for the tower and projector that a text-only start leaves out."""
        return self.shard == "vision"


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """All groups of a checkpoint. `source` names where the numbers are from; `is_read` = they are
    those of its files. `cut_by_name` = no family listed the tensors: how ranks cut them follows
    from what they are called.
    """

    groups: tuple[TensorGroup, ...]
    source: str
    is_read: bool = False
    cut_by_name: bool = False

    @property
    def tensors(self) -> int:
        """Number of tensors."""
        return sum(group.count for group in self.groups)

    @property
    def bytes_total(self) -> int:
        """Bytes of all tensors, without file headers."""
        return sum(group.bytes_total for group in self.groups)

    @property
    def params_total(self) -> int:
        """Logical parameters."""
        return sum(group.params_total for group in self.groups)

    def by(self, key: Callable[[TensorGroup], str]) -> dict[str, int]:
        """Bytes summed by any property of a group: `by(lambda group: group.role)`."""
        sums: dict[str, int] = {}
        for group in self.groups:
            sums[key(group)] = sums.get(key(group), 0) + group.bytes_total
        return sums

    def active_params(self, model: ModelFacts) -> int:
        """Parameters that one text token touches: all but the vision part, prediction heads and the
        embedding table, and of the routed experts the chosen ones.

        Formula: dense + routed × experts_per_token / experts.
        """
        active = 0
        for group in self.groups:
            if group.is_vision or group.is_draft or group.role == "embed":
                continue
            if group.shard == "expert":
                chosen = group.params_total * model.dim("experts_per_token")
                active += chosen // model.dim("experts")
            else:
                active += group.params_total
        return active


def family_format(family: FamilyFacts, identifier: str) -> CheckpointFormat:
    """The family's tensor list in a file format. Raises FACT014 when it has none."""
    for entry in family.formats:
        if entry.id == identifier:
            return entry
    raise HeavyliftError("FACT014", {"family": family.id, "format": identifier})


def from_facts(model: ModelFacts, family: FamilyFacts, variant: VariantFacts) -> Inventory:
    """The inventory rebuilt from the family's patterns and the model's dimensions.

    Raises FACT014 when the family has no tensor list for the variant's format, and
    `ExpressionError` when the facts do not fit together (`Catalog.check` finds that before).
    """
    groups: list[TensorGroup] = []
    stored = {name: replace(model.dims[name], value=size) for name, size in variant.dims.items()}
    model = replace(model, dims={**model.dims, **stored})
    for pattern in family_format(family, variant.format).tensors:
        groups += _groups(pattern, model, variant)
    return Inventory(groups=tuple(groups), source=variant.source)


def exists(pattern: TensorPattern, dims: Mapping[str, int]) -> bool:
    """True when a model of these dimensions has the tensors of the pattern."""
    absent = pattern.unless is not None and dims[pattern.unless] > 0
    return not absent and (pattern.when is None or dims[pattern.when] > 0)


def _groups(
    pattern: TensorPattern, model: ModelFacts, variant: VariantFacts
) -> Iterator[TensorGroup]:
    """The groups of a pattern: one, or one for each form its layers are stored in."""
    if not exists(pattern, model.dim_values):
        return
    layers = None if pattern.layers is None else model.layer_set(pattern.layers)
    if layers == ():
        return
    if pattern.dtype == "*" and variant.typed:
        yield from _typed(pattern, model, layers, variant)
        return
    whole = _group(pattern, model, layers, variant.tensor_types)
    if not variant.quantised or not (pattern.linear or _is_table(pattern, variant)):
        yield whole
        return
    forms: dict[QuantisedFacts | None, list[int]] = {}
    for layer in layers or (-1,):
        rule = scheme_of(variant.quantised, pattern.name, layer)
        forms.setdefault(rule, []).append(layer)
    for rule, members in forms.items():
        kept = None if layers is None else tuple(members)
        if rule is None:
            yield replace(whole, layers=kept)
        else:
            yield from quantised(replace(whole, layers=kept), rule)


def _typed(
    pattern: TensorPattern, model: ModelFacts, layers: tuple[int, ...] | None, variant: VariantFacts
) -> Iterator[TensorGroup]:
    """The groups of a pattern whose layers have types of their own."""
    by_type: dict[str | None, list[int]] = {}
    for layer in layers or (-1,):
        found = next(
            (
                entry.type
                for entry in variant.typed
                if (not entry.layers or layer in entry.layers)
                and any(matches(name, pattern.name) for name in entry.tensors)
            ),
            None,
        )
        by_type.setdefault(found, []).append(layer)
    for found, members in by_type.items():
        kept = None if layers is None else tuple(members)
        types = variant.tensor_types if found is None else {"*": found}
        yield _group(pattern, model, kept, types)


def _is_table(pattern: TensorPattern, variant: VariantFacts) -> bool:
    return pattern.role == _TABLE and any(rule.tables for rule in variant.quantised)


def quantised(group: TensorGroup, rule: QuantisedFacts) -> Iterator[TensorGroup]:
    """The tensors in which a scheme stores the matrices of a group."""
    module = group.name.removesuffix(".weight")
    for piece in stored(rule.scheme, group.shape, group.axis, rule.group):
        yield replace(
            group,
            name=f"{module}.{piece.suffix}",
            dtype=piece.dtype,
            shape=piece.shape,
            shard=group.shard
            if piece.axis is not None or group.shard == "expert"
            else "replicated",
            axis=piece.axis or 0,
            bytes_each=piece.bytes,
            params_each=piece.params,
        )


def _group(
    pattern: TensorPattern,
    model: ModelFacts,
    layers: tuple[int, ...] | None,
    tensor_types: Mapping[str, str],
) -> TensorGroup:
    dims = model.dim_values
    shape = tuple(evaluate(size, dims) for size in pattern.shape)
    dtype = pattern.dtype
    if dtype == "*":
        dtype = (
            tensor_types.get(pattern.name) or tensor_types.get(pattern.role) or tensor_types["*"]
        )
    return TensorGroup(
        name=pattern.name,
        dtype=dtype,
        shape=shape,
        role=pattern.role,
        shard=pattern.shard,
        axis=pattern.axis,
        layers=layers,
        per_layer=1 if pattern.experts is None else evaluate(pattern.experts, dims),
        bytes_each=bytes_of(dtype, shape),
        params_each=math.prod(shape) * pattern.params_per_element,
        heads=evaluate(pattern.heads, dims) if pattern.shard == "kv_heads" else 1,
        is_draft=pattern.draft,
    )
