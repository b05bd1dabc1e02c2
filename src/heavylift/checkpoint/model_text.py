"""A model's facts as a facts file: what `facts/data/models` holds for a model known by its config.

The next model is a config.json and this text; what only people know (other forms, published totals,
who ran it) is added by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from heavylift.checkpoint.inventory import from_facts
from heavylift.facts.schema import FamilyFacts, ModelFacts, QuantisedFacts, VariantFacts

# The unit of a dimension by the last word of its name, and by its whole name.
_UNITS_BY_ENDING = {
    "heads": "heads",
    "layers": "layers",
    "experts": "experts",
    "token": "experts",
    "groups": "groups",
    "embeddings": "tokens",
    "window": "tokens",
    "kernel": "taps",
    "cache": "taps",
}
_UNITS = {"vocab_size": "tokens", "patch_size": "pixels", "tied_embeddings": "flag"}
# Fewer numbers at a distance are shorter one by one.
_LEAST_STEPPED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """What a config does not say of a model: its name, where it is published, who said so when."""

    title: str
    names: tuple[str, ...]
    repo: str
    source: str
    as_of: str
    engines: tuple[str, ...]
    variant_title: str


def model_text(model: ModelFacts, family: FamilyFacts, publication: Publication) -> str:
    """The TOML of a model known only by its config: everything in it is kind `derived`."""
    return "\n".join(_lines(model, family, publication)) + "\n"


def _lines(model: ModelFacts, family: FamilyFacts, publication: Publication) -> Iterator[str]:
    said = publication
    yield f"# {said.title}: known by its config alone; sizes are worked out from it."
    yield f"title = {_text(said.title)}"
    yield f"family = {_text(family.id)}"
    yield f"names = {_texts((said.repo, *said.names))}"
    yield (
        f'provenance = {{ kind = "derived", source = {_text(said.source)}, as_of = {said.as_of} }}'
    )
    yield ""
    yield f'max_context = {{ value = {model.max_context.value}, unit = "tokens" }}'
    if model.hf_architecture is not None:
        named = _text(model.hf_architecture.value)
        yield f'hf_architecture = {{ value = {named}, unit = "class" }}'
    yield ""
    yield "[dims]"
    for name in family.dims:
        value = model.dim(name)
        unit = _unit(name, value, family)
        yield f"{name} = {{ value = {value}, unit = {_text(unit)} }}"
    yield ""
    yield "[layers]"
    for name in family.layer_sets:
        numbers = _text(ranges(model.layer_set(name)))
        yield f'{name} = {{ value = {numbers}, unit = "layer numbers" }}'
    variant = model.variants[0]
    inventory = from_facts(model, family, variant)
    yield from ("", "[totals]")
    yield f"tensors = {inventory.tensors}"
    yield f"bytes = {inventory.bytes_total:_}"
    yield f"parameters = {inventory.params_total:_}"
    yield from variant_lines(variant, publication)


def variant_lines(variant: VariantFacts, publication: Publication) -> Iterator[str]:
    """A `[[variants]]` entry."""
    yield from ("", "[[variants]]")
    yield f"id = {_text(variant.id)}"
    yield f"title = {_text(publication.variant_title)}"
    yield f"format = {_text(variant.format)}"
    if variant.id == "native":
        yield f"default_for = {_texts(publication.engines)}"
    yield f"engines = {_texts(publication.engines)}"
    yield f"repo = {_text(publication.repo)}"
    if variant.kv_cache_dtype is not None:
        yield f"kv_cache_dtype = {_text(variant.kv_cache_dtype)}"
    for rule in variant.quantised:
        yield from _rule_lines(rule)


def _rule_lines(rule: QuantisedFacts) -> Iterator[str]:
    yield from ("", "[[variants.quantised]]")
    yield f"scheme = {_text(rule.scheme)}"
    if rule.group > 1:
        yield f"group = {rule.group}"
    if rule.layers:
        yield f"layers = {_text(ranges(rule.layers))}"
    yield "tensors = ["
    for name in rule.tensors:
        yield f"  {_text(name)},"
    yield "]"


def _unit(name: str, value: int, family: FamilyFacts) -> str:
    if name in family.flags:
        return "flag"
    if value == 0:
        return "count"
    if name in _UNITS:
        return _UNITS[name]
    return _UNITS_BY_ENDING.get(name.rsplit("_", 1)[-1], "channels")


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as short text: `0-2, 5`, or `3-59/4` where they keep a distance."""
    if not numbers:
        return ""
    steps = {after - before for before, after in pairwise(numbers)}
    if len(numbers) >= _LEAST_STEPPED and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}-{numbers[-1]}/{steps.pop()}"
    return ", ".join(_run(first, last) for first, last in _runs(numbers))


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = -1
    for number in numbers:
        if last >= 0 and number == last + 1:
            last = number
            continue
        if last >= 0:
            yield first, last
        first = last = number
    if last >= 0:
        yield first, last


def _run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _texts(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, dict.fromkeys(values)))}]"
