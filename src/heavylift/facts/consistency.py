"""How facts files must agree with one another: references, scopes, expressions, layers, names.

The decoder finds what is wrong inside one file. These checks take the decoded records and return
the defects between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Final

from heavylift.facts import vocabulary
from heavylift.facts.defects import Defect
from heavylift.facts.expressions import ExpressionError, evaluate, names
from heavylift.facts.registry_schema import ListedNames, RegistryFacts
from heavylift.facts.schema import (
    CachePattern,
    CheckpointFormat,
    EngineFacts,
    FamilyFacts,
    GpuFacts,
    KvDtypeRule,
    MemoryRule,
    MemoryShareRule,
    ModelFacts,
    NodeFacts,
    RecipeBook,
    RecipeFacts,
    Rule,
    Showcase,
    StatePattern,
    TensorPattern,
    VariantFacts,
)
from heavylift.facts.variant_schema import VariantReportBook
from heavylift.facts.vocabulary import RankNumbers
from heavylift.units import GB, GIB, plain_width

MOST_LAYERS: Final = 10_000
"""No model comes near; what counts its layers apart stays below it too."""

MAX_CONTEXT: Final = "max_context"
"""Not a dimension, but read from a config.json like one."""


@dataclass(frozen=True, kw_only=True)
class Everything:
    """All records that load. `ids` are those of all files of a kind, loadable or not: what refers
    to a broken file is not broken itself.
    """

    sources: frozenset[str]
    ids: Mapping[str, Sequence[str]]
    gpus: Sequence[GpuFacts]
    nodes: Sequence[NodeFacts]
    engines: Sequence[EngineFacts]
    families: Sequence[FamilyFacts]
    models: Sequence[ModelFacts]
    books: Sequence[RecipeBook]
    showcases: Sequence[Showcase]
    shares: Sequence[Sequence[MemoryShareRule]] = ()
    reports: Sequence[VariantReportBook] = ()
    registries: Mapping[str, RegistryFacts] = field(default_factory=dict)


def defects(everything: Everything) -> Iterator[Defect]:
    """Every defect between the records."""
    for node in everything.nodes:
        if node.gpu not in everything.ids["gpus"]:
            yield Defect(f"nodes/{node.id}.toml: gpu", "unknown_gpu", node.gpu)
    for gpu in everything.gpus:
        yield from _gpu_defects(gpu, everything)
    for engine in everything.engines:
        yield from _engine_defects(engine, everything)
    for family in everything.families:
        yield from _family_defects(family)
    for model in everything.models:
        yield from _model_defects(model, everything)
    for book in everything.books:
        yield from _book_defects(book, everything)
    for registry in everything.registries.values():
        yield from _registry_defects(registry, everything)
    yield from _book_reference_defects(everything)
    yield from _all_name_defects(everything)


def _book_reference_defects(everything: Everything) -> Iterator[Defect]:
    for reports in everything.reports:
        yield from _report_defects(reports, everything)
    for showcase in everything.showcases:
        if showcase.model not in everything.ids["models"]:
            yield Defect("showcase.toml: model", "unknown_model", showcase.model)


# --- names ---------------------------------------------------------------------------------------


def name_key(name: str) -> str:
    """A name as it is compared: case, spaces, dashes, dots and underscores do not matter."""
    return "".join(character for character in plain_width(name).lower() if character.isalnum())


def _all_name_defects(everything: Everything) -> Iterator[Defect]:
    gpus = {gpu.id: (gpu.title, *gpu.aliases) for gpu in everything.gpus}
    models = {model.id: (model.title, *model.names) for model in everything.models}
    engines = {engine.id: (engine.title, *engine.names) for engine in everything.engines}
    for kind, others in (("gpus", gpus), ("models", models), ("engines", engines)):
        yield from _name_defects(kind, others)
    # A family that stands in for another answers to the same types.
    types = {
        family.id: family.hf_model_types
        for family in everything.families
        if family.instead_of not in everything.ids["families"]
    }
    owner: dict[str, str] = {}
    for identifier, model_types in types.items():
        for model_type in model_types:
            if owner.setdefault(model_type, identifier) != identifier:
                path = f"families/{identifier}/architecture.toml: hf_model_types"
                yield Defect(path, "shared_name", f"{model_type}: {owner[model_type]}")


def _name_defects(kind: str, others: Mapping[str, Iterable[str]]) -> Iterator[Defect]:
    """No two things of a kind may answer to the same name, and a name must have letters in it."""
    owner: dict[str, str] = {}
    for identifier, spellings in others.items():
        for name in sorted({name_key(spelling) for spelling in (identifier, *spellings)}):
            if not name:
                yield Defect(f"{kind}/{identifier}.toml", "blank_name")
            elif owner.setdefault(name, identifier) != identifier:
                yield Defect(f"{kind}/{identifier}.toml", "shared_name", f"{name}: {owner[name]}")


def _repeated(path: str, identifiers: Iterable[str]) -> Iterator[Defect]:
    """Ids within one file must differ."""
    for identifier, count in Counter(identifiers).items():
        if count > 1:
            yield Defect(f"{path}: {identifier}", "shared_name", identifier)


# --- cards ---------------------------------------------------------------------------------------


def _gpu_defects(gpu: GpuFacts, everything: Everything) -> Iterator[Defect]:
    file = f"gpus/{gpu.id}.toml"
    if gpu.node not in everything.ids["nodes"]:
        yield Defect(f"{file}: node", "unknown_node", gpu.node)
    for node in everything.nodes:
        if node.id == gpu.node and node.gpu != gpu.id:
            yield Defect(f"{file}: node", "node_of_another_card", f"{node.id}: {node.gpu}")
    sold = gpu.memory_nameplate.value
    shown = gpu.memory_visible.value
    yield from _share_defects(f"{file}: memory_share", gpu, everything)
    # Some makers' nameplate "GB" are GiB, so the driver may show that much, never more. Less than
    # half is a slip of the unit (a count of MiB), not what firmware keeps back.
    if not sold * GB / 2 <= shown <= sold * GIB:
        yield Defect(f"{file}: memory_visible", "not_the_nameplate", f"{shown:,} B, {sold:g} GB")


def _share_defects(where: str, gpu: GpuFacts, everything: Everything) -> Iterator[Defect]:
    """A rule of shared memory must exist, and the driver show no more than it allows."""
    if gpu.memory_share is None or not everything.shares:
        return
    rules = {rule.id: rule for shares in everything.shares for rule in shares}
    rule = rules.get(gpu.memory_share)
    if rule is None:
        yield Defect(where, "unknown_share", gpu.memory_share)
    elif gpu.memory_visible.value > rule.most_bytes(int(gpu.memory_nameplate.value * GIB)):
        yield Defect(where, "more_than_shared", f"{gpu.memory_visible.value:,} B")


# --- families and models -------------------------------------------------------------------------


def _family_defects(family: FamilyFacts) -> Iterator[Defect]:
    """What a family says of a config.json must be about its own dimensions."""
    file = f"families/{family.id}/architecture.toml"
    for name in family.config_dims:
        if name not in (*family.dims, MAX_CONTEXT):
            yield Defect(f"{file}: config_dims.{name}", "unknown_dim", name)
    for name, expression in family.dim_defaults.items():
        where = f"{file}: dim_defaults.{name}"
        if name not in family.dims:
            yield Defect(where, "unknown_dim", name)
        yield from _expression_defects(where, expression, set(family.dims) - {name})
    for name in family.config_layers:
        if name not in family.layer_sets:
            yield Defect(f"{file}: config_layers.{name}", "unknown_layer_set", name)
    grown: tuple[CachePattern | StatePattern, ...] = (*family.caches, *family.states)
    yield from _repeated(file, (entry.id for entry in grown))


def _expression_defects(
    where: str, expression: str | int, known: Iterable[str]
) -> Iterator[Defect]:
    try:
        used = names(expression)
    except ExpressionError as error:
        yield Defect(where, "expression", str(error))
        return
    for name in sorted(used.difference(known)):
        yield Defect(where, "expression", f"{expression}: {name}")


def _model_defects(model: ModelFacts, everything: Everything) -> Iterator[Defect]:
    file = f"models/{model.id}.toml"
    if model.family not in everything.ids["families"]:
        yield Defect(f"{file}: family", "unknown_family", model.family)
    engines = everything.ids["engines"]
    for variant in model.variants:
        for engine in dict.fromkeys((*variant.engines, *variant.default_for)):
            if engine not in engines:
                yield Defect(f"{file}: variants.{variant.id}", "unknown_engine", engine)
    yield from _repeated(file, (name_key(variant.id) for variant in model.variants))
    for family in everything.families:
        if family.id == model.family:
            yield from _family_model_defects(file, model, family)


def _family_model_defects(file: str, model: ModelFacts, family: FamilyFacts) -> Iterator[Defect]:
    """A model must state every dimension and layer set of its family, and the family's patterns
    must come out as whole sizes above zero with them.
    """
    missing = [
        *(f"dims.{name}" for name in family.dims if name not in model.dims),
        *(f"layers.{name}" for name in family.layer_sets if name not in model.layers),
    ]
    yield from (Defect(f"{file}: {where}", "missing") for where in missing)
    if missing:
        return
    # A tower and prediction heads count their layers apart from those of the decoder.
    apart = {
        pattern.layers
        for entry in family.formats
        for pattern in entry.tensors
        if pattern.draft or pattern.shard == "vision"
    }
    for name, layers in model.layers.items():
        most = MOST_LAYERS if name in apart else model.dim("layers")
        yield from _layer_defects(f"{file}: layers.{name}", layers.value, most)
    yield from _variant_defects(file, model.variants, family)
    for entry in family.formats:
        for pattern in entry.tensors:
            where = f"families/{family.id}/{entry.id}.toml: {pattern.name}"
            yield from _pattern_defects(where, pattern, model)
    yield from _cache_defects(family, model)


def _layer_defects(where: str, layers: tuple[int, ...], count: int) -> Iterator[Defect]:
    if any(layer >= count for layer in layers):
        yield Defect(where, "layer_out_of_range", str(count))
    if any(before >= after for before, after in pairwise(layers)):
        yield Defect(where, "layers_not_ascending")


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
    if pattern.shard == "kv_heads":
        sizes.append(pattern.heads)
    if pattern.layers is not None and pattern.layers not in model.layers:
        yield Defect(where, "unknown_layer_set", pattern.layers)
    conditions = [name for name in (pattern.unless, pattern.when) if name is not None]
    for name in conditions:
        if name not in model.dims:
            yield Defect(where, "unknown_dim", name)
    if all(name in model.dims for name in conditions):
        yield from _size_defects(where, sizes, model, there=_is_there(pattern, model))
    if pattern.axis >= len(pattern.shape):
        yield Defect(where, "axis_out_of_range", str(pattern.axis))


def _is_there(pattern: TensorPattern, model: ModelFacts) -> bool:
    """True when the model has tensors of the pattern; sizes of others may be 0."""
    if pattern.layers in model.layers and not model.layer_set(str(pattern.layers)):
        return False
    absent = pattern.unless is not None and model.dim(pattern.unless) > 0
    return not absent and (pattern.when is None or model.dim(pattern.when) > 0)


def _cache_defects(family: FamilyFacts, model: ModelFacts) -> Iterator[Defect]:
    grown: tuple[CachePattern | StatePattern, ...] = (*family.caches, *family.states)
    for entry in grown:
        where = f"families/{family.id}/architecture.toml: {entry.id}"
        if entry.layers not in model.layers:
            yield Defect(where, "unknown_layer_set", entry.layers)
        elif model.layer_set(entry.layers):
            yield from _size_defects(where, (entry.elements, entry.heads), model)


def _size_defects(
    where: str, sizes: Iterable[str | int], model: ModelFacts, *, there: bool = True
) -> Iterator[Defect]:
    """Sizes must come out whole and, for what is there, above zero."""
    for size in sizes:
        try:
            value = evaluate(size, model.dim_values)
        except ExpressionError as error:
            yield Defect(where, "expression", f"{model.id}: {error}")
            continue
        if value < 1 and there:
            yield Defect(where, "no_size", f"{model.id}: {size} = {value:,}")


# --- engines -------------------------------------------------------------------------------------


def _engine_defects(engine: EngineFacts, everything: Everything) -> Iterator[Defect]:
    file = f"engines/{engine.id}.toml"
    versions = [version.id for version in engine.versions]
    if engine.registry is not None and engine.registry not in everything.registries:
        yield Defect(f"{file}: registry", "unknown_registry", engine.registry)
    if engine.default_version not in versions:
        yield Defect(f"{file}: default_version", "unknown_version", engine.default_version)
    yield from _repeated(f"{file}: versions", versions)
    for where, rule in _rules_of(engine):
        yield from _scope_defects(f"{file}: {where}", rule, everything)
        yield from _version_defects(f"{file}: {where}", rule, versions)
    for index, budget in enumerate(engine.budgets):
        if budget.default_reserved is not None:
            where = f"{file}: budgets[{index}].default_reserved"
            yield from _reserve_defects(where, budget.default_reserved)
    for memory in engine.memory:
        yield from _memory_defects(f"{file}: memory.{memory.id}", memory, everything)
    yield from _role_defects(file, engine, everything)
    yield from _kv_dtype_defects(file, engine.kv_dtypes)


def _registry_defects(registry: RegistryFacts, everything: Everything) -> Iterator[Defect]:
    """Versions of a registry must be those read, what comes and goes be listed, and a library
    that stands in be there.
    """
    file = f"registries/{registry.engine}.toml"
    if registry.fallback is not None and registry.fallback not in everything.registries:
        yield Defect(f"{file}: fallback", "unknown_registry", registry.fallback)
    for name, table in (
        ("architectures", registry.architectures),
        ("quantisations", registry.quantisations),
    ):
        if table is not None:
            yield from _listed_defects(f"{file}: {name}", table, registry.read)
    for own in registry.known_as.values():
        if own not in registry.architectures.names:
            yield Defect(f"{file}: known_as", "not_listed", own)


def _listed_defects(where: str, table: ListedNames, read: Sequence[str]) -> Iterator[Defect]:
    for key, changes in (("since", table.since), ("until", table.until)):
        for name, version in changes.items():
            if name not in table.names:
                yield Defect(f"{where}.{key}", "not_listed", name)
            if version not in read:
                yield Defect(f"{where}.{key}", "unknown_version", version)


def _rules_of(engine: EngineFacts) -> Iterator[tuple[str, Rule]]:
    """Every rule of an engine, with its place in the file."""
    for entry in fields(engine):
        listed = getattr(engine, entry.name)
        if isinstance(listed, tuple):
            for index, rule in enumerate(listed):
                if isinstance(rule, Rule):
                    yield f"{entry.name}[{index}]", rule


def _scope_defects(where: str, rule: Rule, everything: Everything) -> Iterator[Defect]:
    """A scope that names nothing that is known would silently never hold.

    Architectures are not looked at: rules name ones no card of the catalogue has.
    """
    vendors = {gpu.vendor for gpu in everything.gpus}
    all_load = len(everything.gpus) == len(everything.ids["gpus"])
    for vendor in rule.vendors:
        if all_load and vendor not in vendors:
            yield Defect(f"{where}.vendors", "unknown_vendor", vendor)
    for family in rule.families:
        if family not in everything.ids["families"]:
            yield Defect(f"{where}.families", "unknown_family", family)


def _version_defects(where: str, rule: Rule, versions: Sequence[str]) -> Iterator[Defect]:
    for key, version in (("since", rule.since), ("until", rule.until)):
        if version is not None and version not in versions:
            yield Defect(f"{where}.{key}", "unknown_version", version)
            return
    if rule.since is None or rule.until is None:
        return
    if versions.index(rule.since) >= versions.index(rule.until):
        yield Defect(where, "empty_scope", f"{rule.since} ≥ {rule.until}")


def _reserve_defects(where: str, expression: str) -> Iterator[Defect]:
    """What a computed memory fraction leaves free must use its names and come out whole."""
    unknown = tuple(_expression_defects(where, expression, frozenset(vocabulary.LEAST_RESERVE)))
    yield from unknown
    if unknown:
        return
    try:
        evaluate(expression, vocabulary.LEAST_RESERVE)
    except ExpressionError as error:
        yield Defect(where, "expression", str(error))


def _memory_defects(where: str, rule: MemoryRule, everything: Everything) -> Iterator[Defect]:
    """The bounds of a memory rule must use known names, come out whole, and be in order.

    They are worked out for every model in scope, on the smallest rank there is and on an ordinary
    one; a defect is reported once however many models show it.
    """
    found: dict[Defect, None] = {}
    for family in everything.families:
        if rule.families and family.id not in rule.families:
            continue
        known = vocabulary.memory_names(family.dims, family.layer_sets)
        unknown = tuple(
            defect
            for bound in (rule.low, rule.high)
            if bound is not None
            for defect in _expression_defects(where, bound, known)
        )
        found.update(dict.fromkeys(unknown))
        if not unknown:
            for model in everything.models:
                if model.family == family.id and _states_all(model, family):
                    found.update(dict.fromkeys(_bounds_defects(where, rule, model)))
    yield from found


_PROBES: Final = ((vocabulary.LEAST, 0), (vocabulary.LATER_STAGE, 1))
"""Ranks that bounds are worked out for, with the layers of every set on their stage."""


def _bounds_defects(where: str, rule: MemoryRule, model: ModelFacts) -> Iterator[Defect]:
    for numbers, layers in _PROBES:
        values = _numbers(model, numbers, layers)
        try:
            low = evaluate(rule.low, values)
            high = None if rule.high is None else evaluate(rule.high, values)
        except ExpressionError as error:
            yield Defect(where, "expression", str(error))
            continue
        if low < 0:
            yield Defect(where, "negative", f"{low:,}")
        if high is not None and high < low:
            yield Defect(where, "high_below_low", f"{high:,} < {low:,}")


def _numbers(model: ModelFacts, numbers: RankNumbers, layers: int) -> dict[str, int]:
    values = {**model.dim_values, **numbers.stated()}
    for name, fact in model.layers.items():
        values[vocabulary.set_layers(name)] = len(fact.value)
        values[vocabulary.stage_layers(name)] = min(layers, len(fact.value))
    return values


def _states_all(model: ModelFacts, family: FamilyFacts) -> bool:
    return set(family.dims) <= set(model.dims) and set(family.layer_sets) <= set(model.layers)


def _role_defects(file: str, engine: EngineFacts, everything: Everything) -> Iterator[Defect]:
    """Roles that rules name must be roles of some tensor, or the rule does nothing."""
    for index, override in enumerate(engine.shard_overrides):
        where = f"{file}: shard_overrides[{index}]"
        yield from _unknown_roles(where, override, (override.role,), everything)
        for family in everything.families:
            size = override.divides
            if size is not None and family.id in override.families and size not in family.dims:
                yield Defect(f"{where}.divides", "unknown_dim", f"{family.id}: {size}")
    for index, rule in enumerate(engine.pipelines):
        where = f"{file}: pipelines[{index}]"
        named = (*rule.everywhere, *rule.on_host, *rule.seen_everywhere)
        yield from _unknown_roles(where, rule, named, everything)
        if rule.seen_source is not None and rule.seen_source not in everything.sources:
            yield Defect(f"{where}.seen_source", "unknown_source", rule.seen_source)


def _unknown_roles(
    where: str, rule: Rule, named: Iterable[str], everything: Everything
) -> Iterator[Defect]:
    if len(everything.families) < len(everything.ids["families"]):
        return  # the roles of a family that does not load are not known
    known = {
        pattern.role
        for family in everything.families
        if not rule.families or family.id in rule.families
        for entry in family.formats
        for pattern in entry.tensors
    }
    for role in named:
        if role not in known:
            yield Defect(where, "unknown_role", role)


def _kv_dtype_defects(file: str, rules: Iterable[KvDtypeRule]) -> Iterator[Defect]:
    """A name of a KV dtype must not stand for two of them in the same scope."""
    owner: dict[tuple[object, ...], str] = {}
    for rule in rules:
        scope = (rule.since, rule.until, rule.vendors, rule.architectures, rule.families)
        for name in dict.fromkeys((rule.name, *rule.aliases)):
            if owner.setdefault((*scope, name), rule.name) != rule.name:
                detail = f"{name}: {owner[(*scope, name)]}"
                yield Defect(f"{file}: kv_dtypes.{rule.name}", "shared_name", detail)


# --- recipes -------------------------------------------------------------------------------------


def _book_defects(book: RecipeBook, everything: Everything) -> Iterator[Defect]:
    """Recipes must have ids of their own, known cards, and a layout that uses all their GPUs.

    Engines and variants need not be known: others publish recipes for what is not planned for.
    """
    file = f"recipes/{book.model}.toml"
    if book.model not in everything.ids["models"]:
        yield Defect(f"{file}: model", "unknown_model", book.model)
    yield from _repeated(file, (recipe.id for recipe in book.recipes))
    engines = {engine.id: engine for engine in everything.engines}
    for recipe in book.recipes:
        where = f"{file}: {recipe.id}"
        yield from _scope_defects(where, recipe, everything)
        if recipe.engine in engines:
            yield from _recipe_engine_defects(where, recipe, engines[recipe.engine])
        for gpu_id in recipe.gpu_ids:
            if gpu_id not in everything.ids["gpus"]:
                yield Defect(where, "unknown_gpu", gpu_id)
        if recipe.gpus is not None and (_ranks(recipe) or recipe.gpus) != recipe.gpus:
            yield Defect(where, "layout_mismatch", str(recipe.gpus))


def _recipe_engine_defects(
    where: str, recipe: RecipeFacts, engine: EngineFacts
) -> Iterator[Defect]:
    yield from _version_defects(where, recipe, [version.id for version in engine.versions])
    for flag in dict.fromkeys(budget.fraction_flag for budget in engine.budgets):
        value = recipe.settings.get(flag)
        if value is not None and (isinstance(value, str) or not 0 < value <= 1):
            yield Defect(f"{where}.settings.{flag}", "not_a_fraction", str(value))


def _ranks(recipe: RecipeFacts) -> int | None:
    """Ranks of the stated layout; None when no layout is stated."""
    if recipe.tensor_parallel_size is None:
        return None
    return recipe.tensor_parallel_size * recipe.pipeline_parallel_size * recipe.data_parallel_size


# --- reports on variants
# ---------------------------------------------------------------------------


def _report_defects(book: VariantReportBook, everything: Everything) -> Iterator[Defect]:
    """Reports must be of a known model, and what they refer to must be there."""
    file = f"variants/{book.model}.toml"
    if book.model not in everything.ids["models"]:
        yield Defect(f"{file}: model", "unknown_model", book.model)
    known = {report.id for report in book.reports}
    yield from _repeated(file, (report.id for report in book.reports))
    variants = {
        variant.id
        for model in everything.models
        if model.id == book.model
        for variant in model.variants
    }
    for report in book.reports:
        where = f"{file}: {report.id}"
        if report.dominated_by is not None and report.dominated_by not in known:
            yield Defect(f"{where}.dominated_by", "unknown_report", report.dominated_by)
        if report.variant is not None and variants and report.variant not in variants:
            yield Defect(f"{where}.variant", "unknown_variant", report.variant)
        if report.plans_on is not None and report.plans_on not in everything.ids["engines"]:
            yield Defect(f"{where}.plans_on", "unknown_engine", report.plans_on)
