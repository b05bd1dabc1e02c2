"""The subject of a plan: everything known that it rests on, resolved and ready to compute with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, TypeVar

from heavylift.checkpoint.inventory import Inventory
from heavylift.facts import expressions
from heavylift.facts.registry_schema import RegistryFacts
from heavylift.facts.schema import (
    EngineFacts,
    FamilyFacts,
    GpuFacts,
    ModelFacts,
    NodeFacts,
    RecipeBook,
    VariantFacts,
)
from heavylift.plan.rules import Scope
from heavylift.records.plan import Rack, ResolvedDefault
from heavylift.records.receipt import Receipt

T = TypeVar("T")

_VISIBLE: Final = "visible_bytes"
_NOT_IN_ACCOUNTS: Final = frozenset(
    [
        "knowledge",
        "variant",
        "scope",
        "version_text",
        "version_is_read",
        "gpu",
        "node",
        "rack",
        "defaults",
        "receipt",
        "overrides",
        "output_tokens",
        "gpu_memory_utilization",
        "captured_batches",
    ]
)
_NOT_IN_WEIGHTS: Final = frozenset(
    [
        "context_tokens",
        "concurrency",
        "kv_dtype",
        "kv_dtype_bytes",
        "max_num_batched_tokens",
        "max_num_seqs",
        "state_strategy",
        "drafter",
    ]
)

# The "vendor" of a machine without a card: its memory is the host's own.
HOST_VENDOR: Final = "host"
UNNAMED_VENDOR: Final = "unnamed"
"""Of a card that nobody named, or that is not known by its name: its memory is all there is."""


class Same:
    """Stands for an object itself, not for what is in it: facts are compared by being the same."""

    __slots__ = ("_of",)

    def __init__(self, of: object) -> None:
        self._of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._of is self._of

    def __hash__(self) -> int:
        return id(self._of)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelKnowledge:
    """A model with its family, the recipes published for it, and its inventory by variant id.

    A variant without a tensor list (only a published size) has no entry in `inventories`.
    `registries` are the lists of engines and libraries by id; `methods` what checkpoints call each
    scheme of quantisation. `mixes` are forms that a quantiser makes and nobody need have published;
    they are planned when asked for by name.
    """

    model: ModelFacts
    family: FamilyFacts
    book: RecipeBook
    inventories: Mapping[str, Inventory]
    registries: Mapping[str, RegistryFacts] = field(default_factory=dict)
    methods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mixes: Mapping[str, VariantFacts] = field(default_factory=dict)
    memo: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What a search has worked out of this model, by everything it depends on: cards of one
    architecture, and layouts that differ in what a term does not ask for, share it.
    """

    def shortened(self, key: Hashable) -> int:
        """A number that stands for a long key, the same for the same key."""
        return self.remembered(("key", key), lambda: len(self.memo) + 1)

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives for a key, made once."""
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = make()
        remembered: T = found
        return remembered

    def variant(self, identifier: str) -> VariantFacts | None:
        """The variant of that id, or None. Case and underscores do not matter."""
        wanted = identifier.lower().replace("_", "-")
        published = (entry for entry in self.model.variants if entry.id == wanted)
        return next(published, None) or self.mixes.get(wanted)

    def offered(self, engine: str) -> tuple[str, ...]:
        """Ids of the forms that an engine takes, the published ones first."""
        published = (entry.id for entry in self.model.variants if engine in entry.engines)
        made = (name for name, mix in _there(self.mixes) if engine in mix.engines)
        return tuple(dict.fromkeys((*published, *made)))


def _there(mixes: Mapping[str, VariantFacts]) -> Iterator[tuple[str, VariantFacts]]:
    """The mixes that suit the model."""
    for name in mixes:
        mix = mixes.get(name)
        if mix is not None:
            yield name, mix


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One model, variant, engine version and rack, with every setting filled in."""

    knowledge: ModelKnowledge
    variant: VariantFacts
    scope: Scope
    version_text: str
    version_is_read: bool
    gpu: GpuFacts
    node: NodeFacts
    rack: Rack
    context_tokens: int
    output_tokens: int
    concurrency: int
    kv_dtype: str
    kv_dtype_bytes: float
    gpu_memory_utilization: float | None
    captured_batches: int | None
    max_num_batched_tokens: int | None
    max_num_seqs: int | None
    moe_backend: str | None
    moe_backend_multiple: int | None
    moe_backend_hidden_multiple: int | None
    vision: bool
    defaults: tuple[ResolvedDefault, ...]
    receipt: Receipt | None = None
    overrides: Mapping[str, int] = field(default_factory=dict)
    kv_scale_bytes: float = 0.0
    draft_tokens: int = 0
    state_strategy: str | None = None
    drafter: str | None = None
    """A model of its own that drafts beside this one; its size is not known here."""
    cards: tuple[GpuFacts, ...] = ()
    """Of a machine with cards of several kinds, the card of each rank; `gpu` has the least
    memory of them.
    """

    @property
    def engine(self) -> EngineFacts:
        """The engine's facts."""
        return self.scope.engine

    @property
    def model(self) -> ModelFacts:
        """The model's facts."""
        return self.knowledge.model

    @property
    def family(self) -> FamilyFacts:
        """The family's facts."""
        return self.knowledge.family

    @property
    def inventory(self) -> Inventory | None:
        """The tensors of the variant; None when only its size is known."""
        return self.knowledge.inventories.get(self.variant.id)

    @cached_property
    def weights_key(self) -> Hashable:
        """Everything that the weights of a layout depend on."""
        return self._key(_WEIGHTS_FIELDS)

    @cached_property
    def account_key(self) -> Hashable:
        """Everything that the terms of a layout depend on. The card's memory only where a rule
        asks.
        """
        asked = any(
            _VISIBLE in expressions.names(bound)
            for rule in self.scope.all(self.engine.memory)
            for bound in (rule.low, rule.high or 0)
        )
        memory = self.gpu.memory_visible.value if asked else None
        return self.knowledge.shortened((self._key(_ACCOUNT_FIELDS), memory))

    def _key(self, names: tuple[str, ...]) -> Hashable:
        values = tuple(getattr(self, name) for name in names)
        key = (
            Same(self.engine),
            self.scope.signature,
            self.runs_on_host,
            Same(self.variant),
            values,
        )
        return self.knowledge.shortened(key)

    @property
    def visible_bytes_total(self) -> int:
        """What the drivers of all cards show together."""
        if self.cards:
            return sum(card.memory_visible.value for card in self.cards)
        return self.gpu.memory_visible.value * self.rack.gpu_count

    @property
    def draft(self) -> bool:
        """True when the prediction heads are loaded."""
        return self.draft_tokens > 0

    @property
    def runs_on_host(self) -> bool:
        """True when the model runs in host memory, on no card."""
        return self.gpu.vendor == HOST_VENDOR

    @cached_property
    def dims(self) -> dict[str, int]:
        """The model's dimensions, and the size of each layer set as `<set>_layers`."""
        counted = {f"{name}_layers": len(fact.value) for name, fact in self.model.layers.items()}
        return {**counted, **self.model.dim_values}


# Every field counts but for those named: one that is added later is never forgotten.
_ACCOUNT_FIELDS: Final = tuple(
    each.name for each in fields(Subject) if each.name not in _NOT_IN_ACCOUNTS
)
_WEIGHTS_FIELDS: Final = tuple(name for name in _ACCOUNT_FIELDS if name not in _NOT_IN_WEIGHTS)
