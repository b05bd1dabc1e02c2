"""Single settings that say something about memory: the fraction, slots, the chunk of a cache."""

from __future__ import annotations

from collections.abc import Iterator

from heavylift.lint.case import Case
from heavylift.lint.conditions import number
from heavylift.lint.finding import LintFinding
from heavylift.lint.hardware import NamedRack
from heavylift.lint.rules.memory import TIGHT_FRACTION, planned, wish_of
from heavylift.records.finding import Severity


def settings(case: Case) -> Iterator[LintFinding]:
    """Every finding on a single setting of memory."""
    if not case.serves or case.is_partial:
        return
    yield from _fraction(case)
    yield from _chunk(case)
    yield from _slots(case)


def _fraction(case: Case) -> Iterator[LintFinding]:
    fraction = number(case.setting("memory_fraction") or "")
    if fraction is None or fraction < TIGHT_FRACTION:
        return
    impossible = fraction > 1
    yield LintFinding(
        rule="unknown_value" if impossible else "tight_headroom",
        severity=Severity.FAIL if impossible else Severity.INFO,
        subject=case.flag_of("memory_fraction"),
        text="fraction_above_one" if impossible else "tight_headroom",
        params={"value": fraction},
        source=case.table.facts.source if case.table else None,
    )


def _slots(case: Case) -> Iterator[LintFinding]:
    """One context for all slots: each gets its share."""
    slots, context = case.number_of("slots"), case.number_of("context")
    if slots is None or slots <= 1 or not context or case.setting("unified") is not None:
        return
    yield LintFinding(
        rule="ctx_divided_by_parallel",
        severity=Severity.INFO,
        subject=case.flag_of("context"),
        detail=str(context // slots),
        text="ctx_divided_by_parallel",
        params={"value": f"{context:,}", "slots": slots, "other": f"{context // slots:,}"},
        source=case.table.facts.source if case.table else None,
    )


def _chunk(case: Case) -> Iterator[LintFinding]:
    """A cache chunk must be a whole block of every decode context rank."""
    chunk = case.beside("cache_chunk")
    if chunk is None or not case.is_hybrid:
        return
    block = case.number_of("block") or _block_tokens(case)
    dcp = case.layout.decode_context_parallel_size
    if block is None:
        if dcp > 1:
            yield LintFinding(
                rule="cache_chunk_not_block_times_dcp",
                severity=Severity.INFO,
                subject=case.flag_of("cache_chunk").lstrip("$"),
                text="cache_chunk_of_unknown_block",
                params={"value": chunk, "dcp": dcp},
                source="qsrt-lmcache",
            )
        return
    wanted = block * case.layout.decode_context_parallel_size
    variable = case.flag_of("cache_chunk").lstrip("$")
    if chunk % wanted:
        yield LintFinding(
            rule="cache_chunk_not_block_times_dcp",
            severity=Severity.FAIL,
            subject=variable if variable in case.command.env else case.flag_of("connector"),
            detail=str(wanted),
            text="cache_chunk_not_block_times_dcp",
            params={
                "value": chunk,
                "block": block,
                "other": wanted,
                "dcp": case.layout.decode_context_parallel_size,
            },
            mend=(f"env {variable}={wanted}",) if variable in case.command.env else (),
            source="qsrt-lmcache",
        )


def _block_tokens(case: Case) -> int | None:
    """Tokens of an attention block, from a plan; its size does not depend on the card."""
    cards = [*(rack.card for rack in case.racks), *case.library.cards]
    for card in cards:
        rack = NamedRack(card=card, nodes=None, per_node=case.layout.world_size)
        wish = wish_of(case, rack, any_form=True)
        if wish is not None:
            plan, _ = planned(case, wish)
            if plan is not None and plan.page_tokens:
                return plan.page_tokens
    return None
