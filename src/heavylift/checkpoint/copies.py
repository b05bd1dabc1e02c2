"""A model in a form that the name of a copy says: the usual rule, and what makers leave out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from heavylift.checkpoint.inventory import family_format, from_facts
from heavylift.checkpoint.quantisation import matches
from heavylift.facts.checkpoint_schema import FormFacts
from heavylift.facts.schema import FamilyFacts, ModelFacts, QuantisedFacts, VariantFacts

_MLPS: Final = (
    "model.layers.{l}.mlp.gate_proj.weight",
    "model.layers.{l}.mlp.experts.{e}.gate_proj.weight",
)
_ALWAYS: Final = ("*.mlp.*",)


def in_form(model: ModelFacts, family: FamilyFacts, form: FormFacts) -> VariantFacts | None:
    """The model's variant in a form, with how much more a copy of that name may hold; None where
    the facts do not say which of its layers, or of its experts, are linear: those already packed
    take no other form.
    """
    variant = variant_of(model, form)
    if variant not in model.variants:
        tensors = family_format(family, variant.format).tensors
        experts = [each for each in tensors if each.shard == "expert"]
        if not any(each.linear for each in experts or tensors):
            return None
    # A file of one type throughout leaves nothing as it was.
    if not variant.quantised or all(rule.tables for rule in variant.quantised):
        return variant
    usual = from_facts(model, family, variant).bytes_total
    sure = replace(variant, quantised=surely(variant.quantised))
    most = from_facts(model, family, sure).bytes_total if sure.quantised else usual
    return replace(variant, bytes_more=max(0, most - usual) or None)


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


def surely(rules: Iterable[QuantisedFacts]) -> tuple[QuantisedFacts, ...]:
    """Of a form's rules what every maker's copy of that name does: MLPs and experts. Attention,
    recurrent layers and the head are left as they were by some.
    """
    return tuple(
        replace(rule, tensors=_ALWAYS)
        for rule in rules
        if any(matches(pattern, name) for pattern in rule.tensors for name in _MLPS)
    )
