"""A model in a form that the name of a copy says: the usual rule, and what makers leave out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from heavylift.checkpoint.inventory import family_format, from_facts
from heavylift.checkpoint.quantisation import matches
from heavylift.facts.checkpoint_schema import FormFacts
from heavylift.facts.expressions import ExpressionError
from heavylift.facts.schema import (
    FamilyFacts,
    ModelFacts,
    QuantisedFacts,
    TensorPattern,
    VariantFacts,
)

_DENSE_MLP: Final = "dense_mlp"
_EXPERT: Final = "expert"


def in_form(model: ModelFacts, family: FamilyFacts, form: FormFacts) -> VariantFacts | None:
    """The model's variant in a form, with how much more a copy of that name may hold; None where
    the facts do not say which of its layers, or of its experts, are linear: those already packed
    take no other form.
    """
    variant = variant_of(model, form)
    tensors = family_format(family, variant.format).tensors
    packs = [each for each in tensors if each.linear and _is_mlp(each)]
    if variant not in model.variants and not _takes(variant, tensors):
        return None
    if form.most_scheme is not None and variant.id == form.id:
        return _between(model, family, variant, form.most_scheme)
    # A file of one type throughout leaves nothing as it was.
    if not variant.quantised or all(rule.tables for rule in variant.quantised):
        return variant
    usual = from_facts(model, family, variant).bytes_total
    sure = surely(variant.quantised, [each.name for each in packs])
    most = from_facts(model, family, replace(variant, quantised=sure)).bytes_total
    return replace(variant, bytes_more=max(0, most - usual) or None)


def _between(
    model: ModelFacts, family: FamilyFacts, least: VariantFacts, scheme: str
) -> VariantFacts | None:
    """The variant with what another scheme throughout would add; None where a matrix fills neither
    scheme's blocks.
    """
    most = tuple(replace(rule, scheme=scheme) for rule in least.quantised)
    try:
        low = from_facts(model, family, least).bytes_total
        high = from_facts(model, family, replace(least, quantised=most)).bytes_total
    except ExpressionError:
        return None
    return replace(least, bytes_more=max(0, high - low) or None)


def _takes(variant: VariantFacts, tensors: Iterable[TensorPattern]) -> bool:
    """True when the form's rule reaches the experts, or the MLPs of a model without: a rule that
    misses them is of other names, and what it leaves is no such copy.
    """
    listed = list(tensors)
    experts = [each for each in listed if each.shard == _EXPERT and len(each.shape) > 1]
    asked = [each for each in experts if each.linear] if experts else listed
    return any(
        each.linear and matches(pattern, each.name) and (bool(experts) or _is_mlp(each))
        for each in asked
        for rule in variant.quantised
        for pattern in rule.tensors
    )


def _is_mlp(tensor: TensorPattern) -> bool:
    return tensor.shard == _EXPERT or tensor.role == _DENSE_MLP


def variant_of(model: ModelFacts, form: FormFacts) -> VariantFacts:
    """The model's variant in a form: its own where it has one, else by the form's rule."""
    for own in model.variants:
        if own.id in (form.id, form.id.partition("-")[0]):
            return own
    tensors = form.tensors
    if "experts" in model.dims and form.tensors_beside_experts:
        tensors = form.tensors_beside_experts
    rule = QuantisedFacts(scheme=form.scheme, tensors=tensors, group=form.group, tables=form.tables)
    base = model.variants[0]
    return replace(
        base,
        id=form.id,
        title=form.title,
        engines=form.engines,
        default_for=form.engines,
        quantised=(rule,),
        kv_cache_dtype=None,
        bytes_total=None,
        repo=None,
        kind=form.kind,
        source=form.source,
        as_of=form.as_of,
        note=form.note,
    )


def surely(rules: Iterable[QuantisedFacts], names: Iterable[str]) -> tuple[QuantisedFacts, ...]:
    """Of a form's rules what every maker's copy of that name does: MLPs and experts, the `names`.
    Attention, recurrent layers and the head are left as they were by some.
    """
    every = tuple(names)
    found = (
        replace(rule, tensors=tuple(n for n in every if any(matches(p, n) for p in rule.tensors)))
        for rule in rules
    )
    return tuple(rule for rule in found if rule.tensors)
