"""The subject of a plan: everything known that it rests on, resolved and ready to compute with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from heavylift.checkpoint.inventory import Inventory
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

# The "vendor" of a machine without a card: its memory is the host's own.
HOST_VENDOR: Final = "host"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelKnowledge:
    """A model with its family, the recipes published for it, and its inventory by variant id.

    A variant without a tensor list (only a published size) has no entry in `inventories`.
    """

    model: ModelFacts
    family: FamilyFacts
    book: RecipeBook
    inventories: Mapping[str, Inventory]

    def variant(self, identifier: str) -> VariantFacts | None:
        """The variant of that id, or None. Case and underscores do not matter."""
        wanted = identifier.lower().replace("_", "-")
        return next((entry for entry in self.model.variants if entry.id == wanted), None)


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
    max_num_batched_tokens: int | None
    max_num_seqs: int | None
    moe_backend: str | None
    moe_backend_multiple: int | None
    vision: bool
    defaults: tuple[ResolvedDefault, ...]
    receipt: Receipt | None = None
    overrides: Mapping[str, int] = field(default_factory=dict)
    kv_scale_bytes: float = 0.0
    draft_tokens: int = 0

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
