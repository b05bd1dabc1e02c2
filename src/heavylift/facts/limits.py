"""What the values of facts may be: units, ranges and closed lists of words, field by field.

The decoder knows types; these tables know that memory is in bytes and above zero. Every number of
the facts is finite and above zero, except in the fields listed here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from heavylift.facts.checkpoint_schema import CutNames
from heavylift.facts.defects import Defect
from heavylift.facts.price_schema import AssumptionFacts
from heavylift.facts.schema import (
    BudgetRule,
    CachePattern,
    CacheRule,
    CheckFacts,
    ConfigLayers,
    DefaultRule,
    EngineSupportRule,
    Fact,
    FamilyFacts,
    GpuFacts,
    KvDtypeRule,
    LayoutRule,
    MemoryRule,
    MemoryShareRule,
    ModelFacts,
    NodeFacts,
    PackedCache,
    PipelineRule,
    QuantisedFacts,
    RecipeFacts,
    RecipeStatus,
    ShardOverrideRule,
    StateDtypeRule,
    StatePattern,
    TensorPattern,
    TypedFacts,
)
from heavylift.facts.serving_schema import ServingCommon
from heavylift.facts.speed_schema import (
    AcceptanceFacts,
    SpeedClassFacts,
    SpeedModelFacts,
    SpeedSpreadFacts,
)
from heavylift.facts.symptom_schema import LogMark
from heavylift.facts.thumb_schema import ThumbRuleFacts
from heavylift.facts.variant_schema import VariantReportFacts
from heavylift.traffic.shape import TrafficShape

_Field = tuple[type, str]

FLAG: Final = "flag"
"""The unit of a dimension that is 0 or 1."""

COUNT: Final = "count"
"""The unit of a dimension that may be 0: how many of something a model has, if any."""

_DIMENSION_UNITS: Final = (
    "channels",
    COUNT,
    "experts",
    FLAG,
    "groups",
    "heads",
    "layers",
    "patches",
    "pixels",
    "taps",
    "tokens",
    "weights per scale",
)

UNITS: Final[Mapping[_Field, tuple[str, ...]]] = {
    (ModelFacts, "dims"): _DIMENSION_UNITS,
    (ModelFacts, "layers"): ("layer numbers",),
    (ModelFacts, "max_context"): ("tokens",),
    (ModelFacts, "licence"): ("name",),
    (ModelFacts, "hf_architecture"): ("class",),
    (ModelFacts, "published_total_gb"): ("GB",),
    (GpuFacts, "memory_nameplate"): ("GB",),
    (GpuFacts, "memory_visible"): ("bytes",),
    (GpuFacts, "memory_bandwidth"): ("TB/s",),
    (GpuFacts, "link_bandwidth"): ("GB/s one way",),
    (GpuFacts, "native_formats"): ("names",),
    (ModelFacts, "recurrent_state_dtype"): ("dtype",),
    (GpuFacts, "dense_bf16"): ("TFLOPS",),
    (GpuFacts, "dense_fp8"): ("TFLOPS",),
    (GpuFacts, "dense_fp4"): ("TFLOPS",),
    (GpuFacts, "power"): ("W",),
    (NodeFacts, "gpus_per_node"): ("GPUs",),
    (NodeFacts, "gpus_per_link_domain"): ("GPUs",),
    (NodeFacts, "most_nodes"): ("machines",),
    (GpuFacts, "pci_ids"): ("ids",),
    (SpeedModelFacts, "memory_efficiency"): ("part of the peak bandwidth",),
    (SpeedModelFacts, "compute_efficiency"): ("part of the dense BF16 peak",),
    (SpeedModelFacts, "prefill_floor"): ("us per layer",),
    (SpeedModelFacts, "network_bandwidth"): ("GB/s one way per GPU",),
    (SpeedModelFacts, "version_drift"): ("times faster",),
    (SpeedModelFacts, "prefill_pool_use"): ("part of the pool's rate",),
    (SpeedModelFacts, "decode_pool_use"): ("part of the pool's rate",),
    (ServingCommon, "read_bandwidth"): ("GB/s",),
    (ServingCommon, "start_allowance"): ("s",),
    (ServingCommon, "stop_grace"): ("s",),
    (ServingCommon, "shared_memory"): ("bytes",),
    (SpeedModelFacts, "load_bandwidth"): ("GB/s per machine",),
}
"""The unit of every field that is a `Fact`: the planner computes in it and does not convert."""

_MAY_BE_ZERO: Final[frozenset[_Field]] = frozenset(
    {
        (ModelFacts, "layers"),
        (TrafficShape, "turn_tokens"),
        (TrafficShape, "turn_spread"),
        (TrafficShape, "shared_tokens"),
        (TrafficShape, "pause_s"),
        (TensorPattern, "axis"),
        (CutNames, "axis"),
        (TensorPattern, "params_per_element"),
        (ConfigLayers, "counts_from"),
        (FamilyFacts, "config_only"),
        (BudgetRule, "default_reserved_floor_bytes"),
        (BudgetRule, "floor_over_gib"),
        (BudgetRule, "least_chunk_tokens"),
        (BudgetRule, "wide_batches_over"),
        (DefaultRule, "min_memory_gib"),
        (DefaultRule, "min_ranks"),
        (CacheRule, "reserved_pages"),
        (CacheRule, "reserved_states"),
        (CacheRule, "states_per_draft_token"),
        (CachePattern, "window"),
        (PackedCache, "window"),
        (CachePattern, "attends"),
        (KvDtypeRule, "scale_bytes_per_vector"),
        (QuantisedFacts, "layers"),
        (TypedFacts, "layers"),
        (MemoryRule, "low"),
        (MemoryRule, "high"),
        (MemoryShareRule, "kept_bytes"),
        (CheckFacts, "values"),
        (AcceptanceFacts, "accepted_tokens"),
        (AssumptionFacts, "value"),
        (AssumptionFacts, "low"),
        (AssumptionFacts, "high"),
        (SpeedClassFacts, "fixed_us_per_layer"),
        (SpeedSpreadFacts, "fixed_us_per_layer"),
        (LogMark, "reach"),
        (RecipeFacts, "settings"),  # a switch may be off
    }
)

_FRACTIONS: Final[frozenset[_Field]] = frozenset(
    {
        (BudgetRule, "default"),
        (BudgetRule, "default_vision_factor"),
        (BudgetRule, "default_with_vision"),
        (MemoryShareRule, "default_ratio"),
        (ThumbRuleFacts, "low_ratio"),
        (ThumbRuleFacts, "high_ratio"),
        (SpeedModelFacts, "memory_efficiency"),
        (SpeedModelFacts, "compute_efficiency"),
        (SpeedModelFacts, "prefill_pool_use"),
        (SpeedModelFacts, "decode_pool_use"),
    }
)

_SHARDS: Final = ("tensor", "kv_heads", "replicated", "expert", "vision", "on_disk")
_SEGMENTS: Final = ("weights", "kv_cache", "recurrent_state", "workspace", "outside_pool")

WORDS: Final[Mapping[_Field, tuple[str, ...]]] = {
    (TensorPattern, "shard"): _SHARDS,
    (CachePattern, "split"): ("heads", "replicated"),
    (ConfigLayers, "absent"): ("all", "none"),
    (StatePattern, "dtype_class"): ("recurrent", "conv", "compressor"),
    (StateDtypeRule, "dtype_class"): ("recurrent", "conv", "compressor"),
    (BudgetRule, "base"): ("total", "free_before_load", "free_after_load", "none"),
    (BudgetRule, "inside"): _SEGMENTS,
    (DefaultRule, "name"): (
        "captured_batches",
        "context_tokens",
        "engine_version",
        "kv_cache_dtype",
        "max_num_batched_tokens",
        "max_num_seqs",
        "moe_backend",
        "variant",
    ),
    (ShardOverrideRule, "shard"): (*_SHARDS, "all_ranks"),
    (ShardOverrideRule, "when"): (
        "always",
        "data_parallel",
        "no_data_parallel",
        "sequence_parallel",
    ),
    (CacheRule, "layout"): ("unified_pages", "packed_groups", "blocks_and_slots", "contiguous"),
    (PipelineRule, "remainder"): ("before_last", "last", "proportional"),
    (LayoutRule, "expert_parallel"): ("none", "tensor_times_data", "free"),
    (LayoutRule, "splits"): ("ranks", "layers"),
    (MemoryRule, "segment"): ("weights", "workspace", "outside_pool"),
    (ThumbRuleFacts, "base"): ("memory", "weights"),
    (VariantReportFacts, "host"): ("gpus", "unified", "ram", "stream"),
    (VariantReportFacts, "confidence"): ("reported", "confirmed", "claimed"),
    (EngineSupportRule, "status"): (*RecipeStatus, "unknown"),
}
"""Fields whose words the planner tells apart; any other word would be taken for something else."""


def value_defects(record: Any, path: str) -> Iterator[Defect]:
    """The defects of the values that stand in `record` itself, under their paths below `path`.

    Records inside it are looked at when they are decoded.
    """
    for entry in dataclasses.fields(record):
        where = (type(record), entry.name)
        joined = f"{path}.{entry.name}" if path else entry.name
        yield from _value_defects(where, getattr(record, entry.name), joined)


def _value_defects(where: _Field, value: Any, path: str) -> Iterator[Defect]:
    match value:
        case Fact():
            yield from _fact_defects(where, value, path)
        case dict():
            for key, inner in value.items():
                yield from _value_defects(where, inner, f"{path}.{key}")
        case tuple():
            for index, inner in enumerate(value):
                yield from _value_defects(where, inner, f"{path}[{index}]")
        case bool():
            pass
        case int() | float():
            yield from _number_defects(where, value, path)
        case str() if where in WORDS and value not in WORDS[where]:
            yield Defect(path, "not_one_of", ", ".join(WORDS[where]))


def _fact_defects(where: _Field, fact: Fact[Any], path: str) -> Iterator[Defect]:
    allowed = UNITS.get(where, (fact.unit,))
    if fact.unit not in allowed:
        yield Defect(f"{path}.unit", "wrong_unit", f"{fact.unit} ≠ {', '.join(allowed)}")
    if fact.unit == FLAG:
        if fact.value not in (0, 1):
            yield Defect(f"{path}.value", "not_one_of", "0, 1")
        return
    if fact.unit == COUNT and fact.value == 0:
        return
    yield from _value_defects(where, fact.value, f"{path}.value")


def _number_defects(where: _Field, value: float, path: str) -> Iterator[Defect]:
    if not math.isfinite(value):
        yield Defect(path, "not_finite", str(value))
    elif where in _FRACTIONS and not 0 < value <= 1:
        yield Defect(path, "not_a_fraction", str(value))
    elif value < 0:
        yield Defect(path, "negative", str(value))
    elif value == 0 and where not in _MAY_BE_ZERO:
        yield Defect(path, "zero")
