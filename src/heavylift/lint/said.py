"""What a command says of a plan: the settings that decide its memory, and those a plan cannot take.

The words are those of a plan's options, so that what was typed beside the command goes before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from heavylift.lint.case import Case
from heavylift.lint.command import FALSE
from heavylift.lint.conditions import number

# What changes the memory of a start and has no place in a plan.
_NOT_TAKEN: Final = ("offload", "kv_bytes", "inner_data", "quantization", "config_file")
# Ways to draft that load nothing, and those that load the model's own heads.
_NOTHING_LOADED: Final = ("ngram", "suffix")
_OWN_HEADS: Final = ("mtp", "nextn")


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """`options` are those of a plan that the command states; `not_taken` the flags, as written,
    that change its memory and that no plan takes; `model` as the command names it.
    """

    engine: str
    model: str | None
    options: dict[str, Any] = field(default_factory=dict)
    not_taken: tuple[str, ...] = ()


def said_of_plan(case: Case) -> Said | None:
    """What a command says of a plan; None for one that starts no engine whose ranks are planned."""
    engine = case.engine
    if engine is None or engine.plans_as is None or not case.serves:
        return None
    if not engine.settings.get("tensor"):
        return None
    fraction = case.setting("memory_fraction")
    layout = case.layout
    stated = {
        "engine": engine.plans_as,
        "engine_version": case.version.number or case.version.text,
        "tp": layout.tensor_parallel_size,
        "pp": layout.pipeline_parallel_size,
        "dp": layout.data_parallel_size,
        "ep": layout.expert_parallel_size,
        "dcp": layout.decode_context_parallel_size,
        "context": case.number_of("context"),
        "max_num_seqs": case.number_of("sequences"),
        "max_batched_tokens": case.number_of("batched_tokens"),
        "gpu_memory_utilization": None if fraction is None else number(fraction),
        "kv_dtype": case.setting("kv_dtype"),
        "moe_backend": case.setting("moe_backend"),
        "text_only": case.setting("text_only") not in (None, FALSE) or None,
        **_drafts(case),
    }
    return Said(
        engine=engine.plans_as,
        model=_model(case),
        options={name: value for name, value in stated.items() if value is not None},
        not_taken=tuple(
            case.flag_of(name) for name in _NOT_TAKEN if case.setting(name) not in (None, FALSE)
        ),
    )


def _model(case: Case) -> str | None:
    """The model by the name of the command; for a path, the one that it is known to stand for."""
    named = case.model_name
    if named is not None and named.startswith(("/", ".", "~", "$")):
        known = None if case.model is None else case.model.plans_as
        return known or named
    return named


def _drafts(case: Case) -> dict[str, Any]:
    """The model's own heads with their tokens, or the name of what else drafts."""
    drafter, method = case.setting("draft_model"), (case.setting("draft_method") or "").lower()
    if any(word in method for word in _OWN_HEADS):
        return {"mtp": case.number_of("draft_tokens") or 1}
    if drafter is not None:
        return {"drafter": drafter}
    if not method or any(word in method for word in _NOTHING_LOADED):
        return {}
    return {"drafter": method}
