"""The whole search: every rack, engine, KV dtype and layout for one model and workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import KvDtypeRule
from heavylift.plan.assemble import Candidate
from heavylift.plan.bounds import cannot_hold
from heavylift.plan.defaults import with_kv_dtype
from heavylift.plan.planner import (
    Knowledge,
    best_hope,
    best_that_holds,
    engine_order,
    sifted,
    subjects,
)
from heavylift.plan.subject import Subject
from heavylift.plan.support import refused_by_engine
from heavylift.records.plan import Layout, PlanRequest, PlanVerdict, Rack
from heavylift.records.search import Searched, Sought


@dataclass(slots=True)
class _Counts:
    candidates: int = 0
    refused: int = 0
    too_small: int = 0
    engines: set[str] = field(default_factory=set)


def search(
    knowledge: Knowledge, racks: Sequence[Rack], build: Callable[[Rack], PlanRequest]
) -> Searched:
    """The best way to serve on every card of `racks`; a card on which none holds is left out.

    Every way is counted, and judged by what it could be at best. Its memory is looked at where
    that comes before the best way that was found for its card: others could not be the answer.
    """
    counts = _Counts()
    best: dict[str, Candidate] = {}
    for rack in racks:
        for subject, allowed in _served(knowledge, build(rack), counts):
            before = best.get(rack.gpu)
            if before is not None and not _could_be_first(subject, allowed, before):
                continue
            for dtyped in _by_kv_dtype(subject, build(rack)):
                found = best_that_holds(dtyped, allowed)
                if found is None or found.verdict is PlanVerdict.UNSUPPORTED:
                    continue
                before = best.get(rack.gpu)
                if before is None or _place(found) < _place(before):
                    best[rack.gpu] = found
    model = knowledge.model.model
    return Searched(
        model=model.id,
        title=model.title,
        racks=len(racks),
        engines=len(counts.engines),
        candidates=counts.candidates,
        refused=counts.refused,
        too_small=counts.too_small,
        best=tuple(_sought(each) for each in sorted(best.values(), key=_place)),
    )


def _served(
    knowledge: Knowledge, request: PlanRequest, counts: _Counts
) -> Iterator[tuple[Subject, tuple[Layout, ...]]]:
    """The engines of a rack with the layouts they allow, where the cards hold the weights."""
    for subject in subjects(request, knowledge):
        if isinstance(subject, HeavyliftError) or refused_by_engine(subject):
            continue
        counts.engines.add(subject.engine.id)
        allowed, refused = sifted(subject, request.layout_constraints)
        dtypes = len(_kv_dtypes(subject, request)) or 1
        counts.candidates += dtypes * (len(allowed) + len(refused))
        counts.refused += dtypes * len(refused)
        if not allowed:
            continue
        if cannot_hold(subject):
            counts.too_small += dtypes * len(allowed)
            continue
        yield subject, allowed


def _kv_dtypes(subject: Subject, request: PlanRequest) -> tuple[KvDtypeRule, ...]:
    """The KV dtypes that the engine offers, each once; none where one was stated."""
    if request.kv_cache_dtype is not None:
        return ()
    return subject.scope.all(subject.engine.kv_dtypes)


def _by_kv_dtype(subject: Subject, request: PlanRequest) -> Iterator[Subject]:
    """The subject with each KV dtype that its engine offers; only the stated one where one is."""
    dtypes = _kv_dtypes(subject, request)
    if not dtypes:
        yield subject
    for dtype in dtypes:
        yield with_kv_dtype(subject, dtype)


def _could_be_first(subject: Subject, allowed: tuple[Layout, ...], before: Candidate) -> bool:
    """Whether a layout could come before a way that was found; room is not known beforehand."""
    hope = (*best_hope(subject, allowed), subject.rack.gpu_count)
    return hope <= _place(before)[: len(hope)]


def _place(found: Candidate) -> tuple[int, ...]:
    rack = found.subject.rack
    return (*engine_order(found), rack.gpu_count, -found.kv_tokens)


def _sought(found: Candidate) -> Sought:
    subject = found.subject
    return Sought(
        rack=subject.rack.label,
        gpus=subject.rack.gpu_count,
        engine=subject.engine.id,
        engine_version=subject.version_text,
        kv_cache_dtype=subject.kv_dtype,
        layout=found.layout,
        verdict=found.verdict,
        status=found.support.status,
        headroom_bytes=found.headroom_bytes,
        kv_tokens=found.kv_tokens,
    )
