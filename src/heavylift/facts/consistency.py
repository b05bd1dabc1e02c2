"""How facts files must agree with one another: references, expressions, layers, names.

The decoder finds what is wrong inside one file. These checks take the decoded records and return
the defects between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from heavylift.facts.decode import Defect
from heavylift.facts.expressions import ExpressionError, evaluate, names
from heavylift.facts.schema import (
    CachePattern,
    CheckpointFormat,
    EngineFacts,
    FamilyFacts,
    ModelFacts,
    RecipeBook,
    RecipeFacts,
    StatePattern,
    TensorPattern,
    VariantFacts,
)

MAX_CONTEXT: Final = "max_context"
"""Not a dimension, but read from a config.json like one."""


def reference_defects(
    file: str, key: str, identifier: str, known: Iterable[str]
) -> Iterator[Defect]:
    """`identifier`, stated under `key`, must be one of `known`."""
    if identifier not in known:
        yield Defect(f"{file}: {key}", f"unknown_{key}", identifier)


def name_defects(kind: str, names_by_id: Mapping[str, Iterable[str]]) -> Iterator[Defect]:
    """No two things of a kind may answer to the same name."""
    owner: dict[str, str] = {}
    for identifier, spellings in names_by_id.items():
        for name in sorted(spellings):
            if owner.setdefault(name, identifier) != identifier:
                yield Defect(f"{kind}/{identifier}.toml", "shared_name", f"{name}: {owner[name]}")


def family_defects(family: FamilyFacts) -> Iterator[Defect]:
    """What a family says of a config.json must be about its own dimensions."""
    file = f"families/{family.id}/architecture.toml"
    for name in family.config_dims:
        if name not in (*family.dims, MAX_CONTEXT):
            yield Defect(f"{file}: config_dims.{name}", "unknown_dim")
    for name, expression in family.dim_defaults.items():
        where = f"{file}: dim_defaults.{name}"
        if name not in family.dims:
            yield Defect(where, "unknown_dim")
        yield from _expression_defects(where, expression, set(family.dims) - {name})


def _expression_defects(where: str, expression: str, known: set[str]) -> Iterator[Defect]:
    try:
        used = names(expression)
    except ExpressionError as error:
        yield Defect(where, "expression", str(error))
        return
    for name in sorted(used - known):
        yield Defect(where, "expression", f"{expression}: {name}")


def model_defects(model: ModelFacts, family: FamilyFacts) -> Iterator[Defect]:
    """A model must state every dimension and layer set of its family, and the family's patterns
    must come out as whole sizes with them.
    """
    file = f"models/{model.id}.toml"
    missing = [
        *(f"dims.{name}" for name in family.dims if name not in model.dims),
        *(f"layers.{name}" for name in family.layer_sets if name not in model.layers),
    ]
    yield from (Defect(f"{file}: {where}", "missing") for where in missing)
    if missing:
        return
    for name, layers in model.layers.items():
        if any(not 0 <= layer < model.dim("layers") for layer in layers.value):
            yield Defect(f"{file}: layers.{name}", "layer_out_of_range", str(model.dim("layers")))
    yield from _variant_defects(file, model.variants, family)
    for entry in family.formats:
        for pattern in entry.tensors:
            where = f"families/{family.id}/{entry.id}.toml: {pattern.name}"
            yield from _pattern_defects(where, pattern, model)
    yield from _cache_defects(family, model)


def _variant_defects(
    file: str, variants: Iterable[VariantFacts], family: FamilyFacts
) -> Iterator[Defect]:
    formats = {entry.id: entry for entry in family.formats}
    default_for: Counter[str] = Counter()
    for variant in variants:
        where = f"{file}: variants.{variant.id}"
        default_for.update(variant.default_for)
        # A variant of published size may do without a tensor list.
        if variant.bytes_total is None and variant.format not in formats:
            yield Defect(f"{where}.format", "unknown_format", variant.format)
        elif variant.bytes_total is None:
            yield from _tensor_type_defects(where, variant, formats[variant.format])
    for engine, count in default_for.items():
        if count > 1:
            yield Defect(f"{file}: variants", "several_defaults", engine)


def _tensor_type_defects(
    where: str, variant: VariantFacts, entry: CheckpointFormat
) -> Iterator[Defect]:
    """Every tensor whose dtype is left to the variant (`*`) must be given one by it."""
    for pattern in entry.tensors:
        if pattern.dtype == "*" and not {pattern.name, pattern.role, "*"} & set(
            variant.tensor_types
        ):
            yield Defect(f"{where}.tensor_types", "missing", pattern.name)


def _pattern_defects(where: str, pattern: TensorPattern, model: ModelFacts) -> Iterator[Defect]:
    sizes = [*pattern.shape, *([] if pattern.experts is None else [pattern.experts])]
    yield from _size_defects(where, sizes, model)
    if pattern.layers is not None and pattern.layers not in model.layers:
        yield Defect(where, "unknown_layer_set", pattern.layers)
    if pattern.unless is not None and pattern.unless not in model.dims:
        yield Defect(where, "unknown_dim", pattern.unless)
    if pattern.axis >= len(pattern.shape):
        yield Defect(where, "axis_out_of_range", str(pattern.axis))


def _cache_defects(family: FamilyFacts, model: ModelFacts) -> Iterator[Defect]:
    grown: tuple[CachePattern | StatePattern, ...] = (*family.caches, *family.states)
    for entry in grown:
        where = f"families/{family.id}/architecture.toml: {entry.id}"
        yield from _size_defects(where, (entry.elements, entry.heads), model)
        if entry.layers not in model.layers:
            yield Defect(where, "unknown_layer_set", entry.layers)


def _size_defects(where: str, sizes: Iterable[str | int], model: ModelFacts) -> Iterator[Defect]:
    for size in sizes:
        try:
            evaluate(size, model.dim_values)
        except ExpressionError as error:
            yield Defect(where, "expression", f"{model.id}: {error}")


def engine_defects(engine: EngineFacts) -> Iterator[Defect]:
    """The default version must be a listed one; memory bounds must be expressions."""
    file = f"engines/{engine.id}.toml"
    versions = [version.id for version in engine.versions]
    yield from reference_defects(file, "default_version", engine.default_version, versions)
    for rule in engine.memory:
        for bound in (rule.low, rule.high):
            try:
                names(bound or 0)
            except ExpressionError as error:
                yield Defect(f"{file}: memory.{rule.id}", "expression", str(error))


def recipe_defects(book: RecipeBook, gpu_ids: Iterable[str]) -> Iterator[Defect]:
    """Recipes must have ids of their own, known cards, and a layout that uses all their GPUs.

    Engines need no file: others publish recipes for engines that are not planned for.
    """
    known = set(gpu_ids)
    counted = Counter(recipe.id for recipe in book.recipes)
    for recipe in book.recipes:
        file = f"recipes/{book.model}.toml"
        if counted[recipe.id] > 1:
            yield Defect(f"{file}: {recipe.id}", "shared_name", recipe.id)
        for gpu_id in recipe.gpu_ids:
            if gpu_id not in known:
                yield Defect(f"{file}: {recipe.id}", "unknown_gpu", gpu_id)
        if recipe.gpus is not None and (_ranks(recipe) or recipe.gpus) != recipe.gpus:
            yield Defect(f"{file}: {recipe.id}", "layout_mismatch", str(recipe.gpus))


def _ranks(recipe: RecipeFacts) -> int | None:
    """Ranks of the stated layout; None when no layout is stated."""
    if recipe.tensor_parallel_size is None:
        return None
    return recipe.tensor_parallel_size * recipe.pipeline_parallel_size * recipe.data_parallel_size
