"""Memory added up where nothing can be planned: all weights against all cards, or one machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from heavylift.lint.case import Case
from heavylift.lint.finding import LintFinding
from heavylift.lint.hardware import NamedRack
from heavylift.lint.rules.memory import moves_weights, wish_of
from heavylift.records.finding import Severity
from heavylift.units import GB

_HOME_BYTES = 600 * GB
_USABLE = 0.85
_BUDGET_NAME = re.compile(
    r"ram|mem(?:ory)?[-_]?(?:gb|budget|limit|max)|cache[-_]?(?:gb|size)|budget", re.IGNORECASE
)
_BUDGET_VALUE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:G|GB|GiB)?", re.IGNORECASE)


def sums(case: Case) -> Iterator[LintFinding]:
    """Every finding on memory that needs no plan."""
    yield from _ram_budget(case)
    if not case.serves or case.is_partial:
        return
    if not case.racks:
        yield from _divides(case)
        yield from _home(case)
    for rack in case.racks:
        if wish_of(case, rack) is None:
            yield from _added_up(case, rack)


def _added_up(case: Case, rack: NamedRack) -> Iterator[LintFinding]:
    """All weights against all memory: a bound that no layout can beat."""
    size = case.weights_bytes
    tensor = case.engine is not None and bool(case.engine.settings.get("tensor"))
    if size is None or (tensor and moves_weights(case)):
        return
    unified = rack.card.link == "unified"
    memory_bytes = case.host_memory_bytes if unified else None
    have = (memory_bytes or rack.card.memory_bytes) * (rack.gpus or 1)
    spills = case.engine is not None and not case.engine.settings.get("tensor") and not unified
    if size <= have or (spills and case.setting("offload") is not None):
        return
    yield LintFinding(
        rule="weights_do_not_fit",
        severity=Severity.WARN if spills else Severity.FAIL,
        subject=case.layout.label if case.states_layout else case.model_name or "",
        detail=rack.card.title,
        text="weights_spill" if spills else "weights_beyond_rack",
        params={
            "need": f"{size / GB:,.0f} GB",
            "have": f"{have / GB:,.0f} GB",
            "short": f"{(size - have) / GB:,.0f} GB",
            "rack": _label(rack),
        },
        source=case.weights_source,
    )


def _home(case: Case) -> Iterator[LintFinding]:
    """No rack is named, and the runner is one for single machines."""
    size = case.weights_bytes
    if size is None or size < _HOME_BYTES or case.engine is None:
        return
    if case.engine.settings.get("tensor") or (case.model_name or "").endswith(".gguf"):
        return
    yield LintFinding(
        rule="weights_do_not_fit",
        severity=Severity.WARN,
        subject=case.model_name or "",
        detail="no_rack_named",
        text="weights_for_one_machine",
        params={"need": f"{size / GB:,.0f} GB", "engine": case.engine.title},
        source=case.weights_source,
    )


def _divides(case: Case) -> Iterator[LintFinding]:
    """Heads and experts over ranks, where no rack is named to plan on.

    Heads must divide. Experts may be spread unevenly by some kernels, and then some ranks wait.
    """
    facts, layout = case.known or case.model, case.layout
    if facts is None:
        return
    for count, ranks, code, name, severity in (
        (facts.heads, layout.tensor_parallel_size, "heads", "tensor", Severity.FAIL),
        (facts.experts, layout.expert_parallel_size, "experts", "expert", Severity.INFO),
    ):
        if count is not None and count % ranks:
            yield LintFinding(
                rule="layout_not_possible",
                severity=severity,
                subject=layout.label,
                detail=code,
                text=f"refused_{code}",
                params={code: count, name: ranks},
                source=facts.source,
            )


def _ram_budget(case: Case) -> Iterator[LintFinding]:
    """A memory budget in GB that the stated machine does not have."""
    have = case.host_memory_bytes
    if have is None or case.table is not None:
        return
    given = [(option.written, option.value) for option in case.command.options]
    for name, value in (*given, *case.command.env.items()):
        size = _BUDGET_VALUE.fullmatch(value or "")
        if _BUDGET_NAME.search(name) and size and float(size[1]) * GB > have * _USABLE:
            yield LintFinding(
                rule="ram_budget_over_physical",
                severity=Severity.WARN,
                subject=name,
                text="ram_budget_over_physical",
                params={"value": size[1], "other": have // GB},
            )


def _label(rack: NamedRack) -> str:
    parts = [str(each) for each in (rack.nodes, rack.per_node) if each is not None]
    return "x".join([*parts, rack.card.title])
