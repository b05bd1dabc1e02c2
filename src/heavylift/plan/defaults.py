"""Filling in what nobody said: from the published recipe, else the engine, else ours. All listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heavylift.errors import HeavyliftError, Scalar
from heavylift.facts.expressions import evaluate
from heavylift.facts.schema import (
    BudgetRule,
    EngineFacts,
    EngineVersion,
    GpuFacts,
    KvDtypeRule,
    NodeFacts,
    RecipeFacts,
    VariantFacts,
)
from heavylift.plan.rules import Scope, find_version
from heavylift.plan.subject import ModelKnowledge, Subject
from heavylift.records.plan import PlanRequest, Rack, ResolvedDefault
from heavylift.records.receipt import Receipt
from heavylift.units import GIB

DEFAULT_CONTEXT_TOKENS: Final = 16_384
DEFAULT_CONCURRENCY: Final = 1
OURS: Final = "heavylift"

_POSITIVE: Final = ("verified", "reported", "unverified")


@dataclass
class _Ledger:
    """Collects defaults as they are taken."""

    entries: list[ResolvedDefault]

    def take(self, name: str, value: Scalar, origin: str, source: str) -> None:
        self.entries.append(ResolvedDefault(name=name, value=value, origin=origin, source=source))


def recipes_for(
    knowledge: ModelKnowledge, engine: str, gpu: GpuFacts, rack: Rack | None
) -> tuple[RecipeFacts, ...]:
    """Published recipes of this model for an engine and card, the most fitting first.

    Order: those naming the card and its count, then the card, then those for any card; within each
    verified before reported before unverified, and the newer first. Recipes their source refuses or
    calls broken lend no settings.
    """
    fitting = [
        recipe
        for recipe in knowledge.book.recipes
        if recipe.engine == engine
        and recipe.status in _POSITIVE
        and recipe.phase is None
        and recipe.variant is None
        and (gpu.id in recipe.gpu_ids or recipe.for_any_gpu)
    ]

    def order(recipe: RecipeFacts) -> tuple[int, int, int, int]:
        same_count = rack is not None and recipe.gpus == rack.gpu_count
        return (
            0 if gpu.id in recipe.gpu_ids else 1,
            0 if same_count else 1,
            _POSITIVE.index(recipe.status),
            -recipe.as_of.toordinal(),
        )

    return tuple(sorted(fitting, key=order))


def resolve(  # noqa: PLR0915 - one line per setting, in the order the user sees them
    request: PlanRequest,
    knowledge: ModelKnowledge,
    engine: EngineFacts,
    gpu: GpuFacts,
    node: NodeFacts,
    *,
    receipt: Receipt | None = None,
) -> Subject:
    """The subject of the plan: every setting of the request, filled in where it was not said.

    Raises PLAN010 (context beyond the model), PLAN011 (no such variant), PLAN012 (variant not for
    this engine), PLAN013 (KV dtype), PLAN014 (MoE backend), PLAN015 (output beyond context).
    """
    ledger = _Ledger([])
    recipes = recipes_for(knowledge, engine.id, gpu, request.rack)
    version, version_text, is_read = _version(request, knowledge, engine, gpu, recipes, ledger)
    scope = _scope(knowledge, engine, gpu, version)
    settings = _settings(recipes)
    variant = _variant(request, knowledge, engine, ledger)
    vision = _vision(request, knowledge, ledger)
    context = _context(request, knowledge, ledger)
    concurrency = request.concurrency
    if concurrency is None:
        concurrency = DEFAULT_CONCURRENCY
        ledger.take("concurrency", concurrency, OURS, OURS)
    batched = _number(
        "max_num_batched_tokens", request.max_num_batched_tokens, settings, scope, gpu, ledger
    )
    seqs = _number("max_num_seqs", request.max_num_seqs, settings, scope, gpu, ledger)
    dtype = _kv_dtype(request, settings, scope, ledger)
    backend, multiple = _moe_backend(request, settings, scope, knowledge, ledger)
    fraction = _fraction(request, settings, scope, gpu, batched, ledger, vision=vision)
    return Subject(
        knowledge=knowledge,
        variant=variant,
        scope=scope,
        version_text=version_text,
        version_is_read=is_read,
        gpu=gpu,
        node=node,
        rack=request.rack,
        context_tokens=context,
        output_tokens=request.output_tokens or 0,
        concurrency=concurrency,
        kv_dtype=dtype.name,
        kv_dtype_bytes=dtype.bytes_per_element,
        gpu_memory_utilization=fraction,
        max_num_batched_tokens=batched,
        max_num_seqs=seqs,
        moe_backend=backend,
        moe_backend_multiple=multiple,
        vision=vision,
        defaults=tuple(ledger.entries),
        receipt=receipt,
    )


_Settings = Mapping[str, tuple[int | float | str, RecipeFacts]]


def _settings(recipes: Iterable[RecipeFacts]) -> _Settings:
    """Each setting from the most fitting recipe that states it."""
    found: dict[str, tuple[int | float | str, RecipeFacts]] = {}
    for recipe in recipes:
        for name, value in recipe.settings.items():
            found.setdefault(name, (value, recipe))
    return found


def _scope(
    knowledge: ModelKnowledge, engine: EngineFacts, gpu: GpuFacts, version: EngineVersion
) -> Scope:
    return Scope(
        engine=engine,
        version=version,
        vendor=gpu.vendor,
        architecture=gpu.architecture,
        family=knowledge.family.id,
    )


def _version(
    request: PlanRequest,
    knowledge: ModelKnowledge,
    engine: EngineFacts,
    gpu: GpuFacts,
    recipes: tuple[RecipeFacts, ...],
    ledger: _Ledger,
) -> tuple[EngineVersion, str, bool]:
    """The version whose rules are taken, the version as named, and whether its rules are known.

    Not stated: that of a published recipe for the card; else the one the engine's facts name for
    the family and vendor; else the newest read.
    """
    newest = find_version(engine, engine.default_version)
    if newest is None:
        raise HeavyliftError("FACT013", {"engine": engine.id, "version": engine.default_version})
    if request.engine_version is not None:
        version = find_version(engine, request.engine_version)
        if version is None:
            return newest, request.engine_version, False
        return version, version.id, version.read
    for recipe in recipes:
        stated = recipe.engine_version and find_version(engine, recipe.engine_version)
        if stated and stated.read:
            ledger.take("engine_version", stated.id, "recipe", recipe.id)
            return stated, stated.id, True
    scope = _scope(knowledge, engine, gpu, newest)
    for rule in scope.all(engine.defaults):
        named = find_version(engine, str(rule.value)) if rule.name == "engine_version" else None
        if named is not None:
            ledger.take("engine_version", named.id, "recipe", rule.source)
            return named, named.id, named.read
    ledger.take("engine_version", newest.id, "engine", newest.source)
    return newest, newest.id, newest.read


def _variant(
    request: PlanRequest, knowledge: ModelKnowledge, engine: EngineFacts, ledger: _Ledger
) -> VariantFacts:
    offered = [variant for variant in knowledge.model.variants if engine.id in variant.engines]
    if request.variant is not None:
        wanted = knowledge.variant(request.variant.lower().replace("_", "-"))
        known = ", ".join(variant.id for variant in knowledge.model.variants)
        if wanted is None:
            raise HeavyliftError("PLAN011", {"variant": request.variant, "known": known})
        if wanted not in offered:
            raise HeavyliftError(
                "PLAN012",
                {
                    "variant": wanted.id,
                    "engine": engine.title,
                    "offered": ", ".join(variant.id for variant in offered),
                },
            )
        return wanted
    default = [variant for variant in offered if engine.id in variant.default_for] or offered
    if not default:
        raise HeavyliftError(
            "PLAN012",
            {"variant": knowledge.model.title, "engine": engine.title, "offered": ""},
        )
    ledger.take("variant", default[0].id, OURS, default[0].source)
    return default[0]


def _vision(request: PlanRequest, knowledge: ModelKnowledge, ledger: _Ledger) -> bool:
    has_vision = "vision" in knowledge.model.layers
    if request.vision is None and has_vision:
        ledger.take("vision", value=True, origin=OURS, source=OURS)
    return has_vision and request.vision is not False


def _context(request: PlanRequest, knowledge: ModelKnowledge, ledger: _Ledger) -> int:
    most = knowledge.model.max_context.value
    if request.context_tokens is None:
        context = min(DEFAULT_CONTEXT_TOKENS, most)
        ledger.take("context_tokens", context, OURS, OURS)
    else:
        context = request.context_tokens
    if context > most:
        raise HeavyliftError(
            "PLAN010", {"model": knowledge.model.title, "context": context, "most": most}
        )
    if (request.output_tokens or 0) >= context:
        raise HeavyliftError("PLAN015", {"output": request.output_tokens or 0, "context": context})
    return context


def _number(
    name: str,
    stated: int | None,
    settings: _Settings,
    scope: Scope,
    gpu: GpuFacts,
    ledger: _Ledger,
) -> int | None:
    if stated is not None:
        return stated
    if name in settings:
        value, recipe = settings[name]
        ledger.take(name, value, "recipe", recipe.id)
        return int(value)
    memory = gpu.memory_visible.value // GIB
    for rule in scope.all(scope.engine.defaults):
        if rule.name == name and memory >= rule.min_memory_gib and rule.value is not None:
            ledger.take(name, rule.value, "engine", rule.source)
            return int(rule.value)
    return None


def _kv_dtype(
    request: PlanRequest, settings: _Settings, scope: Scope, ledger: _Ledger
) -> KvDtypeRule:
    wanted = request.kv_cache_dtype
    if wanted is None and "kv_cache_dtype" in settings:
        value, recipe = settings["kv_cache_dtype"]
        wanted = str(value)
        ledger.take("kv_cache_dtype", wanted, "recipe", recipe.id)
    if wanted is None:
        for rule in scope.all(scope.engine.defaults):
            if rule.name == "kv_cache_dtype":
                wanted = str(rule.value)
                ledger.take("kv_cache_dtype", wanted, "engine", rule.source)
                break
    offered = scope.all(scope.engine.kv_dtypes)
    for dtype in offered:
        if wanted is not None and wanted.lower() in (dtype.name, *dtype.aliases):
            return dtype
    raise HeavyliftError(
        "PLAN013",
        {
            "dtype": str(wanted),
            "engine": scope.engine.title,
            "offered": ", ".join(dtype.name for dtype in offered),
        },
    )


def _moe_backend(
    request: PlanRequest,
    settings: _Settings,
    scope: Scope,
    knowledge: ModelKnowledge,
    ledger: _Ledger,
) -> tuple[str | None, int | None]:
    if "experts" not in knowledge.model.dims:
        return None, None
    backends = scope.all(scope.engine.moe_backends)
    wanted = request.moe_backend
    if wanted is None and "moe_backend" in settings:
        value, recipe = settings["moe_backend"]
        wanted = str(value)
        ledger.take("moe_backend", wanted, "recipe", recipe.id)
    if wanted in (None, "auto"):
        chosen = next((backend for backend in backends if backend.default), None)
        if chosen is None:
            return None, None
        ledger.take("moe_backend", chosen.name, "engine", chosen.source)
        return chosen.name, chosen.intermediate_multiple
    for backend in backends:
        if backend.name == wanted:
            return backend.name, backend.intermediate_multiple
    raise HeavyliftError(
        "PLAN014",
        {
            "backend": str(wanted),
            "engine": scope.engine.title,
            "offered": ", ".join(dict.fromkeys(backend.name for backend in backends)),
        },
    )


def _fraction(
    request: PlanRequest,
    settings: _Settings,
    scope: Scope,
    gpu: GpuFacts,
    batched: int | None,
    ledger: _Ledger,
    *,
    vision: bool,
) -> float | None:
    rule = scope.first(scope.engine.budgets)
    if rule is None or rule.base == "none":
        return None
    if request.gpu_memory_utilization is not None:
        return request.gpu_memory_utilization
    if rule.fraction_flag in settings:
        value, recipe = settings[rule.fraction_flag]
        ledger.take(rule.fraction_flag, float(value), "recipe", recipe.id)
        return float(value)
    default = _engine_fraction(rule, gpu, batched, request, vision=vision)
    if default is not None:
        ledger.take(rule.fraction_flag, default, "engine", rule.source)
    return default


def _engine_fraction(
    rule: BudgetRule, gpu: GpuFacts, batched: int | None, request: PlanRequest, *, vision: bool
) -> float | None:
    if rule.default is not None:
        return rule.default
    if rule.default_reserved is None or batched is None:
        return None
    names = {"max_num_batched_tokens": batched, "ranks": request.rack.gpu_count}
    reserved = max(evaluate(rule.default_reserved, names), rule.default_reserved_floor_bytes)
    total = gpu.memory_visible.value
    fraction = round((total - reserved) / total, 3)
    return fraction * (rule.default_vision_factor if vision else 1.0)
