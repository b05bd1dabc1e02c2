"""Filling in what nobody said: from a published recipe, else the engine, else ours; all listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from heavylift.errors import HeavyliftError, Scalar
from heavylift.facts.schema import (
    DefaultRule,
    EngineFacts,
    EngineVersion,
    GpuFacts,
    KvDtypeRule,
    MoeBackendRule,
    NodeFacts,
    RecipeFacts,
    VariantFacts,
)
from heavylift.plan.fraction import computed_fraction
from heavylift.plan.rules import Scope, find_version, nearest_version
from heavylift.plan.subject import ModelKnowledge, Same, Subject
from heavylift.records.plan import Layout, PlanRequest, Rack, ResolvedDefault
from heavylift.records.receipt import Receipt
from heavylift.units import GIB

DEFAULT_CONTEXT_TOKENS: Final = 16_384
DEFAULT_CONCURRENCY: Final = 1
OURS: Final = "heavylift"

_POSITIVE: Final = ("verified", "reported", "unverified")


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


def resolve(
    request: PlanRequest,
    knowledge: ModelKnowledge,
    engine: EngineFacts,
    gpu: GpuFacts,
    node: NodeFacts,
    *,
    receipt: Receipt | None = None,
    cards: tuple[GpuFacts, ...] = (),
) -> Subject:
    """The subject of the plan: every setting of the request, filled in where it was not said.
    `cards` are those of each rank where the rack has several kinds.

    Raises PLAN010 (context beyond the model), PLAN011 (no such variant), PLAN012 (variant not for
    this engine), PLAN013 (KV dtype), PLAN014 (MoE backend), PLAN015 (output beyond context),
    PLAN018 (way to keep states).
    """
    filling = _Filling(request, knowledge, engine, gpu)
    variant = filling.variant()
    vision = filling.vision(variant)
    context = filling.context()
    concurrency = filling.concurrency()
    batched = filling.number("max_num_batched_tokens", request.max_num_batched_tokens)
    seqs = filling.sequences(concurrency)
    dtype = filling.kv_dtype(variant)
    backend = filling.moe_backend()
    fraction = filling.fraction(batched, vision=vision)
    return Subject(
        knowledge=knowledge,
        variant=variant,
        scope=filling.scope,
        version_text=filling.version_text,
        version_is_read=filling.version_is_read,
        gpu=gpu,
        node=node,
        rack=request.rack,
        context_tokens=context,
        output_tokens=request.output_tokens or 0,
        concurrency=concurrency,
        kv_dtype=dtype.name,
        kv_dtype_bytes=dtype.bytes_per_element,
        kv_scale_bytes=dtype.scale_bytes_per_vector,
        draft_tokens=request.draft_tokens,
        drafter=request.drafter,
        state_strategy=filling.state_strategy(),
        gpu_memory_utilization=fraction,
        captured_batches=filling.captured_batches,
        max_num_batched_tokens=batched,
        max_num_seqs=seqs,
        moe_backend=None if backend is None else backend.name,
        moe_backend_multiple=None if backend is None else backend.intermediate_multiple,
        moe_backend_hidden_multiple=None if backend is None else backend.hidden_multiple,
        vision=vision,
        defaults=tuple(filling.taken),
        receipt=receipt,
        cards=cards,
    )


def with_kv_dtype(subject: Subject, dtype: KvDtypeRule) -> Subject:
    """The subject that `resolve` makes where this KV dtype of its engine is stated."""
    return replace(
        subject,
        kv_dtype=dtype.name,
        kv_dtype_bytes=dtype.bytes_per_element,
        kv_scale_bytes=dtype.scale_bytes_per_vector,
        defaults=tuple(each for each in subject.defaults if each.name != "kv_cache_dtype"),
    )


def takes_whole_context(engine: EngineFacts) -> bool:
    """True for an engine that plans one sequence of the model's whole context where nobody states a
    limit, and does not start where its pool is smaller.
    """
    return any(rule.name == "context_tokens" and rule.value is None for rule in engine.defaults)


def _reads(engine: EngineFacts, variant: VariantFacts) -> bool:
    """Engines that split tensors over ranks read safetensors folders."""
    return variant.format == "safetensors" and _splits_tensors(engine)


def _splits_tensors(engine: EngineFacts) -> bool:
    return bool(engine.layouts) and all(rule.splits == "ranks" for rule in engine.layouts)


class _Filling:
    """One request being filled in; `taken` lists what was."""

    def __init__(
        self,
        request: PlanRequest,
        knowledge: ModelKnowledge,
        engine: EngineFacts,
        gpu: GpuFacts,
    ) -> None:
        self._request = request
        self._knowledge = knowledge
        self._engine = engine
        self._gpu = gpu
        self._recipes = recipes_for(knowledge, engine.id, gpu, request.rack)
        self._settings = _settings(self._recipes)
        self.taken: list[ResolvedDefault] = []
        # Known where the memory fraction is the engine's own to work out, layout by layout.
        self.captured_batches: int | None = None
        version, self.version_text, self.version_is_read = self._version()
        self.scope = self._scope(version)

    def _take(self, name: str, value: Scalar, origin: str, source: str) -> None:
        self.taken.append(ResolvedDefault(name=name, value=value, origin=origin, source=source))

    def _scope(self, version: EngineVersion) -> Scope:
        gpu, family = self._gpu, self._knowledge.family.id
        # Cards of one architecture share the scope, and with it which rules hold.
        return self._knowledge.remembered(
            ("scope", Same(self._engine), version.id, gpu.vendor, gpu.architecture),
            lambda: Scope(
                engine=self._engine,
                version=version,
                vendor=gpu.vendor,
                architecture=gpu.architecture,
                family=family,
            ),
        )

    def _version(self) -> tuple[EngineVersion, str, bool]:
        """The version whose rules are taken, the version as named, whether its rules are known.

        Not stated: that of a published recipe for the card; else the one the engine's facts name
        for the family and vendor; else the newest read. Facts are checked to list their default.
        """
        engine = self._engine
        newest = find_version(engine, engine.default_version)
        if newest is None:
            params = {"engine": engine.id, "version": engine.default_version}
            raise HeavyliftError("FACT013", params)
        stated = self._request.engine_version
        if stated is not None:
            version = find_version(engine, stated)
            if version is None:
                return nearest_version(engine, stated) or newest, stated, False
            return version, version.id, version.read
        version, origin, source = self._usual_version(newest)
        self._take("engine_version", version.id, origin, source)
        return version, version.id, version.read

    def _usual_version(self, newest: EngineVersion) -> tuple[EngineVersion, str, str]:
        for recipe in self._recipes:
            named = recipe.engine_version and find_version(self._engine, recipe.engine_version)
            if named and named.read:
                return named, "recipe", recipe.id
        for rule in self._scope(newest).all(self._engine.defaults):
            usual = rule.name == "engine_version" and find_version(self._engine, str(rule.value))
            if usual:
                return usual, "recipe", rule.source
        return newest, "engine", newest.source

    def variant(self) -> VariantFacts:
        """The variant asked for, or the engine's usual one."""
        model, engine, wanted = self._knowledge.model, self._engine, self._request.variant
        offered = [variant for variant in model.variants if engine.id in variant.engines]
        if not offered:
            # Nobody said that it loads it, nor that it does not: what files of that kind would take
            # is worked out, and support stays unknown.
            offered = [each for each in model.variants if _reads(engine, each)]
        if wanted is not None:
            variant = self._knowledge.variant(wanted)
            if variant is None:
                known = ", ".join((*(entry.id for entry in model.variants), *self._knowledge.mixes))
                raise HeavyliftError("PLAN011", {"variant": wanted, "known": known})
            if engine.id not in variant.engines:
                raise self._no_variant(variant.id, offered)
            return variant
        usual = [variant for variant in offered if engine.id in variant.default_for] or offered
        if usual:
            self._take("variant", usual[0].id, OURS, usual[0].source)
            return usual[0]
        # What an engine that was asked for fetches of a place where no file is named.
        named = self._word("variant", None) if self._request.engine else None
        fetched = None if named is None else self._knowledge.variant(named)
        if fetched is None:
            raise self._no_variant(model.title, offered)
        return fetched

    def _no_variant(self, named: str, offered: Sequence[VariantFacts]) -> HeavyliftError:
        forms = (*(each.id for each in offered), *self._knowledge.offered(self._engine.id))
        params = {
            "variant": named,
            "engine": self._engine.title,
            "offered": ", ".join(dict.fromkeys(forms)) or "-",
        }
        return HeavyliftError("PLAN012", params)

    def _holds_vision(self, variant: VariantFacts) -> bool:
        """Whether the variant's files hold a tower; a size alone says as little as its format."""
        return self._knowledge.remembered(
            ("tower", variant.format), lambda: self._tower_in(variant.format)
        )

    def _tower_in(self, file_format: str) -> bool:
        known = self._knowledge
        same_format = [v.id for v in known.model.variants if v.format == file_format]
        inventories = [known.inventories[name] for name in same_format if name in known.inventories]
        return any(group.is_vision for each in inventories for group in each.groups)

    def vision(self, variant: VariantFacts) -> bool:
        """Whether the vision tower is loaded: yes, where there is one and nobody said no."""
        # Engines that read GGUF keep the tower in a file of its own.
        has_vision = _splits_tensors(self._engine) and self._holds_vision(variant)
        if has_vision and self._request.vision is None:
            self._take("vision", value=True, origin=OURS, source=OURS)
        return has_vision and self._request.vision is not False

    def context(self) -> int:
        """Tokens of one sequence, within what the model reads."""
        model, context = self._knowledge.model, self._request.context_tokens
        most, output = model.max_context.value, self._request.output_tokens or 0
        if context is None:
            context = min(DEFAULT_CONTEXT_TOKENS, most)
            self._take("context_tokens", context, OURS, OURS)
        if context > most:
            params: dict[str, Scalar] = {"model": model.title, "context": context, "most": most}
            raise HeavyliftError("PLAN010", params)
        if output >= context:
            raise HeavyliftError("PLAN015", {"output": output, "context": context})
        return context

    def concurrency(self) -> int:
        """Sequences at once."""
        if self._request.concurrency is not None:
            return self._request.concurrency
        self._take("concurrency", DEFAULT_CONCURRENCY, OURS, OURS)
        return DEFAULT_CONCURRENCY

    def number(self, name: str, stated: int | None) -> int | None:
        """A whole number: stated, from a recipe, from the engine, or not known."""
        if stated is not None:
            return stated
        if name in self._settings:
            value, recipe = self._settings[name]
            self._take(name, value, "recipe", recipe.id)
            return int(value)
        rule = self._default(name)
        if rule is None or rule.value is None:
            return None
        self._take(name, rule.value, "engine", rule.source)
        return int(rule.value)

    def _default(self, name: str) -> DefaultRule | None:
        """The engine's default with a value for a rack of these cards."""
        memory, ranks = self._gpu.memory_visible.value // GIB, self._request.rack.gpu_count
        return next(
            (
                rule
                for rule in self.scope.all(self._engine.defaults)
                if rule.name == name
                and memory >= rule.min_memory_gib
                and ranks >= rule.min_ranks
                and rule.value is not None
            ),
            None,
        )

    def _captured_batches(self) -> int:
        """The most sequences a decode graph is captured for: no more than are admitted."""
        rule = self._default("captured_batches")
        usual = 0 if rule is None else int(rule.value or 0)
        return min(usual, self._request.max_num_seqs or usual)

    def sequences(self, concurrency: int) -> int | None:
        """How many sequences the engine may admit. A usual value below what was asked for at once
        is raised to that; a stated one is a contradiction, PLAN016.
        """
        stated = self._request.max_num_seqs
        if stated is not None and stated < concurrency:
            raise HeavyliftError("PLAN016", {"concurrency": concurrency, "seqs": stated})
        usual = self.number("max_num_seqs", stated)
        if usual is None or usual >= concurrency:
            return usual
        self.taken = [entry for entry in self.taken if entry.name != "max_num_seqs"]
        self._take("max_num_seqs", concurrency, OURS, OURS)
        return concurrency

    def _word(self, name: str, stated: str | None) -> str | None:
        """A setting that is a word: stated, from a recipe, from the engine, or not known."""
        if stated is not None:
            return stated
        if name in self._settings:
            value, recipe = self._settings[name]
            self._take(name, value, "recipe", recipe.id)
            return str(value)
        for rule in self.scope.all(self._engine.defaults):
            if rule.name == name:
                self._take(name, rule.value, "engine", rule.source)
                return str(rule.value)
        return None

    def kv_dtype(self, variant: VariantFacts) -> KvDtypeRule:
        """The KV dtype and its width: as stated, else what the checkpoint has scales for, where the
        engine offers it, else the engine's own. Raises PLAN013 when it has none of that name.
        """
        offered = self.scope.all(self._engine.kv_dtypes)
        stated, brought = self._request.kv_cache_dtype, variant.kv_cache_dtype
        if stated in (None, "auto") and brought in {dtype.name for dtype in offered}:
            stated = brought
            self._take("kv_cache_dtype", str(brought), "engine", variant.source)
        wanted = self._word("kv_cache_dtype", stated) or ""
        # `fp8 e4m3`, `auto (bf16)`: as people write down what an engine chose.
        word = wanted.partition("(")[0].strip().replace(" ", "_").lower()
        for dtype in offered:
            if word in (dtype.name, *dtype.aliases):
                return dtype
        names = ", ".join(dtype.name for dtype in offered)
        params = {"dtype": wanted, "engine": self._engine.title, "offered": names}
        raise HeavyliftError("PLAN013", params)

    def moe_backend(self) -> MoeBackendRule | None:
        """The MoE backend; None for a model without experts, or where nothing is known of this
        card. Raises PLAN014 when the engine has none of that name here.
        """
        if "experts" not in self._knowledge.model.dims:
            return None
        backends = self.scope.all(self._engine.moe_backends)
        wanted = self._word("moe_backend", self._request.moe_backend)
        if wanted in (None, "auto"):
            usual = next((backend for backend in backends if backend.default), None)
            if usual is not None:
                self._take("moe_backend", usual.name, "engine", usual.source)
            return usual
        for backend in backends:
            if backend.name == wanted.lower():
                return backend
        names = ", ".join(dict.fromkeys(backend.name for backend in backends))
        params = {"backend": str(wanted), "engine": self._engine.title, "offered": names}
        raise HeavyliftError("PLAN014", params)

    def state_strategy(self) -> str | None:
        """The engine's way to keep states; None = its usual one. Raises PLAN018 for another."""
        wanted = self._request.state_strategy
        if wanted is None:
            return None
        rule = self.scope.first(self._engine.caches)
        offered = {} if rule is None else rule.strategies
        name = wanted.lower().replace("-", "_")
        if name not in offered:
            names = ", ".join(offered)
            params = {"strategy": wanted, "engine": self._engine.title, "offered": names}
            raise HeavyliftError("PLAN018", params)
        return name

    def fraction(self, batched: int | None, *, vision: bool) -> float | None:
        """The memory fraction in the engine's own sense; None where none exists or is known."""
        rule = self.scope.first(self._engine.budgets)
        if rule is None or rule.base == "none":
            return None
        if self._request.gpu_memory_utilization is not None:
            return self._request.gpu_memory_utilization
        if rule.fraction_flag in self._settings:
            value, recipe = self._settings[rule.fraction_flag]
            self._take(rule.fraction_flag, float(value), "recipe", recipe.id)
            return float(value)
        default = rule.default
        if vision and rule.default_with_vision is not None:
            default = rule.default_with_vision
        if default is None and rule.default_reserved is not None and batched is not None:
            self.captured_batches = self._captured_batches()
            default = computed_fraction(
                rule,
                self._gpu.memory_visible.value,
                batched=batched,
                ranks=self._request.rack.gpu_count,
                captured_batches=self.captured_batches,
                vision=vision,
                layout=Layout(),
            )
        if default is not None:
            self._take(rule.fraction_flag, default, "engine", rule.source)
        return default


_Settings = Mapping[str, tuple[int | float | str, RecipeFacts]]


def _settings(recipes: Iterable[RecipeFacts]) -> _Settings:
    """Each setting from the most fitting recipe that states it."""
    found: dict[str, tuple[int | float | str, RecipeFacts]] = {}
    for recipe in recipes:
        for name, value in recipe.settings.items():
            found.setdefault(name, (value, recipe))
    return found
