"""The plan behind a memory failure: model, rack and layout as the log tells them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from heavylift.facts.schema import (
    GpuFacts,
)
from heavylift.records.diagnosis import Diagnosis
from heavylift.units import GIB

MEMORY_CAUSES: Final = frozenset(
    {
        "weights_do_not_fit",
        "static_memory_fraction",
        "oom_graph_capture",
        "oom_at_runtime",
        "kv_cache_smaller_than_context",
        "kv_or_slot_exhaustion",
    }
)

_LAYOUT_FLAGS: Final[Mapping[str, str]] = {"tensor": "tp", "pipeline": "pp", "data": "dp"}
"""Settings of a start that make its layout, and the options of `plan` that state them."""

# What a program prints of a card's memory differs from the catalogue's by what the driver keeps.
_SAME_CARD_RATIO: Final = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanQuestion:
    """What to plan: the model as the log names it, the rack as one types it, options of `plan`."""

    model: str
    rack: str
    options: dict[str, int | str] = field(default_factory=dict)


def question(
    diagnosis: Diagnosis,
    gpus: Iterable[GpuFacts],
    *,
    model: str | None = None,
    rack: str | None = None,
) -> PlanQuestion | None:
    """The plan that answers a memory failure; None when it is none, or model or rack is unknown.

    `model` and `rack` given by the caller come before what the log tells.
    """
    if not diagnosis.causes or diagnosis.causes[0].cause_class not in MEMORY_CAUSES:
        return None
    settings = diagnosis.context.settings
    layout = {name: int(settings[name]) for name in _LAYOUT_FLAGS if name in settings}
    model = model or settings.get("model")
    rack = rack or _rack(diagnosis.causes[0].numbers, layout, gpus)
    if model is None or rack is None:
        return None
    options: dict[str, int | str] = {
        flag: layout[name] for name, flag in _LAYOUT_FLAGS.items() if layout.get(name, 1) > 1
    }
    if "context" in settings:
        options["context"] = int(settings["context"])
    if diagnosis.context.engine is not None:
        options["engine"] = diagnosis.context.engine
    return PlanQuestion(model=model, rack=rack, options=options)


def _rack(
    numbers: Mapping[str, float], layout: Mapping[str, int], gpus: Iterable[GpuFacts]
) -> str | None:
    """`8xH200` from the capacity a failure printed and the ranks it was started with; None when the
    capacity is not printed, or is that of no card or of several.
    """
    capacity = numbers.get("capacity_gib")
    if capacity is None or not layout:
        return None
    same = [
        gpu
        for gpu in gpus
        if abs(gpu.memory_visible.value / GIB - capacity) <= _SAME_CARD_RATIO * capacity
    ]
    if len(same) != 1:
        return None
    count = layout.get("tensor", 1) * layout.get("pipeline", 1) * layout.get("data", 1)
    return f"{count}x{same[0].title}"
