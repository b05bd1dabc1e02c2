"""The whole search: every rack, engine, KV dtype and layout for one model and workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from heavylift.errors import HeavyliftError
from heavylift.plan.assemble import Candidate
from heavylift.plan.bounds import cannot_hold
from heavylift.plan.planner import Knowledge, Ranking, engine_order, ranked, sifted, subjects
from heavylift.plan.subject import Subject
from heavylift.plan.support import refused_by_engine
from heavylift.records.plan import PlanRequest, PlanVerdict, Rack
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
    """The best way to serve on every card of `racks`; a card on which none holds is left out."""
    counts = _Counts()
    best: dict[str, Candidate] = {}
    for rack in racks:
        for ranking in _rankings(knowledge, build(rack), counts):
            found = ranking.best
            if found.verdict in (PlanVerdict.DOES_NOT_FIT, PlanVerdict.UNSUPPORTED):
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


def _rankings(knowledge: Knowledge, request: PlanRequest, counts: _Counts) -> Iterator[Ranking]:
    for subject in subjects(request, knowledge):
        if isinstance(subject, HeavyliftError) or refused_by_engine(subject):
            continue
        counts.engines.add(subject.engine.id)
        for dtyped in _by_kv_dtype(request, knowledge, subject):
            allowed, refused = sifted(dtyped, request.layout_constraints)
            counts.candidates += len(allowed) + len(refused)
            counts.refused += len(refused)
            if not allowed:
                continue
            if cannot_hold(dtyped):
                counts.too_small += len(allowed)
                continue
            yield ranked(dtyped, request.layout_constraints)


def _by_kv_dtype(request: PlanRequest, knowledge: Knowledge, subject: Subject) -> Iterator[Subject]:
    """The subject with each KV dtype that its engine offers; only the stated one where one is."""
    if request.kv_cache_dtype is not None:
        yield subject
        return
    for dtype in subject.scope.all(subject.engine.kv_dtypes):
        asked = replace(request, engine=subject.engine.id, kv_cache_dtype=dtype.name)
        (found,) = subjects(asked, knowledge)
        if isinstance(found, Subject):
            yield found


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
