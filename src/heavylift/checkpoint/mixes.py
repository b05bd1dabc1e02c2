"""The form of a model that a quantiser's mix makes: a type for every tensor, layer by layer."""

from __future__ import annotations

from heavylift.checkpoint.formats import GGUF_TYPES
from heavylift.checkpoint.inventory import exists
from heavylift.checkpoint.quantisation import matches
from heavylift.facts.expressions import evaluate
from heavylift.facts.mix_schema import MixBook, MixFacts, MixRule
from heavylift.facts.schema import (
    FactKind,
    FamilyFacts,
    ModelFacts,
    TensorPattern,
    TypedFacts,
    VariantFacts,
)

FORMAT = "gguf"
_ANY = "*"
_OF_VECTORS = "F32"
_LAST_RESORT = "F16"


def takes_mixes(family: FamilyFacts) -> bool:
    """True when the types of a family's tensors in the format are left to the form."""
    return any(pattern.dtype == _ANY for pattern in _patterns(family))


def _patterns(family: FamilyFacts) -> tuple[TensorPattern, ...]:
    return next((entry.tensors for entry in family.formats if entry.id == FORMAT), ())


def mixed(model: ModelFacts, family: FamilyFacts, mix: MixFacts, book: MixBook) -> VariantFacts:
    """The variant of a model in a mix: as its quantiser makes it of the maker's weights, which is
    not to say that anybody published it.
    """
    typed: list[TypedFacts] = []
    for pattern in _patterns(family):
        if pattern.dtype != _ANY or not exists(pattern, model.dim_values):
            continue
        layers = (-1,) if pattern.layers is None else model.layer_set(pattern.layers)
        by_type: dict[str, list[int]] = {}
        for layer in layers:
            found = _fitting(_type(model, mix, pattern, layer), pattern, model, book)
            by_type.setdefault(found, []).append(layer)
        for found, members in by_type.items():
            numbers = () if pattern.layers is None else tuple(members)
            typed.append(TypedFacts(type=found, tensors=(pattern.name,), layers=numbers))
    return VariantFacts(
        id=mix.id,
        title=mix.title,
        format=FORMAT,
        engines=book.engines,
        tensor_types={_ANY: mix.type},
        typed=tuple(typed),
        kind=FactKind.DERIVED,
        source=mix.source,
        as_of=mix.as_of,
        note=mix.note,
    )


def _type(model: ModelFacts, mix: MixFacts, pattern: TensorPattern, layer: int) -> str:
    for rule in mix.rules:
        if any(matches(name, pattern.name) for name in rule.tensors) and _holds(rule, model, layer):
            return rule.type
    return mix.type


def _holds(rule: MixRule, model: ModelFacts, layer: int) -> bool:
    dims = model.dim_values
    count = dims["layers"]
    gathered = dims.get("heads", 1) // dims.get("kv_heads", dims.get("heads", 1))
    return (
        (layer < 0 or rule.layers.holds(layer, count))
        and rule.experts in (None, dims.get("experts"))
        and rule.layer_count in (None, count)
        and gathered >= rule.heads_per_kv_head
        and (not rule.tied or dims.get("tied_embeddings", 0) > 0)
        and (not rule.families or model.family in rule.families)
    )


def _fitting(wanted: str, pattern: TensorPattern, model: ModelFacts, book: MixBook) -> str:
    """The type, or the one that stands in for it where a row is not whole blocks."""
    shape = [evaluate(size, model.dim_values) for size in pattern.shape]
    if len(shape) == 1:
        return _OF_VECTORS
    for found in (wanted, book.fallbacks.get(wanted, _LAST_RESORT)):
        if shape[-1] % GGUF_TYPES[found].elements == 0:
            return found
    return _LAST_RESORT
