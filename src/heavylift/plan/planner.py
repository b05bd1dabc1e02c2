"""From a request to the best plan: over engines when none is named, and over layouts."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from heavylift.errors import HeavyliftError, Scalar
from heavylift.facts.schema import EngineFacts, GpuFacts, NodeFacts
from heavylift.plan.assemble import (
    Candidate,
    candidate,
    hoped,
    hopeless,
    plan_candidate,
    plan_layout,
)
from heavylift.plan.bounds import cannot_hold
from heavylift.plan.defaults import resolve
from heavylift.plan.layout import (
    Refusal,
    candidates,
    layout_rule,
    ran_here,
    refusal,
    whole_experts_only,
)
from heavylift.plan.memory import capacity_at_best
from heavylift.plan.receipts import compare, layers_of, mismatch
from heavylift.plan.subject import HOST_VENDOR, ModelKnowledge, Same, Subject
from heavylift.plan.support import (
    UNPUBLISHED,
    publication_rank,
    recipes_on_card,
    refused_by_engine,
)
from heavylift.records.plan import (
    Capacity,
    EngineChoice,
    Layout,
    Note,
    Plan,
    PlanRequest,
    PlanVerdict,
    Rack,
    Rejected,
    Status,
)
from heavylift.records.receipt import Receipt

_VERDICTS = tuple(PlanVerdict)
_STATUSES = tuple(Status)
_REFUSED = (Status.UNSUPPORTED, Status.BROKEN)
# Fits and tight are both yes.
_ANSWERS = {verdict: max(1, index) for index, verdict in enumerate(_VERDICTS)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """A card and the machine it is built into."""

    gpu: GpuFacts
    node: NodeFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Knowledge:
    """Everything a planner may look at: the model, the engines, the cards."""

    model: ModelKnowledge
    engines: Mapping[str, EngineFacts]
    machines: Mapping[str, Machine]


_Criteria = tuple[tuple[str, int], ...]


def _order(found: Candidate) -> _Criteria:
    """What orders layouts, the deciding first: each with its name, less is better.

    Whether it holds at all; who ran it; whether it was published for this card or one built alike;
    the verdict. A layout that was run and is tight comes before one that fits and was never tried.
    Published ones then go by room for KV. Those nobody published go by what is usually right:
    tensor parallelism as wide as a machine, few pipeline stages, then room. Decode context
    parallelism buys room with speed and is never chosen for its room alone. Where nothing fits,
    the published come first, then the one that misses by least.
    """
    subject, layout = found.subject, found.layout
    published = ("unpublished", publication_rank(subject, layout))
    answer = ("answer", _ANSWERS[found.verdict])
    if found.verdict is PlanVerdict.DOES_NOT_FIT:
        return (answer, published, ("misses_by_more", -found.headroom_bytes))
    status = ("status", _STATUSES.index(found.support.status))
    verdict = ("verdict", _VERDICTS.index(found.verdict))
    context = ("decode_context", layout.decode_context_parallel_size)
    room = ("less_room", -found.kv_tokens)
    stages = ("more_stages", layout.pipeline_parallel_size)
    first = (answer, status, published, verdict)
    if published[1] < UNPUBLISHED:
        return (*first, context, room, stages)
    crosses = int(layout.tensor_parallel_size > subject.rack.gpus_per_node)
    return (
        *first,
        ("crosses_machines", crosses),
        ("narrower", -layout.tensor_parallel_size),
        stages,
        context,
        room,
    )


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The layouts of one subject: the best, those it was found among, and those refused.
    `all_hopeless`: the weights alone are too many in each, and each is told by its whole account.
    """

    best: Candidate
    allowed: tuple[Layout, ...]
    weighed: Mapping[Layout, Candidate]
    refused: tuple[Rejected, ...]
    all_hopeless: bool = False

    def plan(self, request: PlanRequest, *, with_lost: bool = True) -> Plan:
        """The plan of the best; `with_lost`: with every other layout and why it lost."""
        if not with_lost:
            return plan_candidate(self.best, request)
        others = [self._other(layout) for layout in self.allowed if layout != self.best.layout]
        others.sort(key=place)
        lost = tuple(_lost(other, self.best) for other in others)
        return replace(plan_candidate(self.best, request), rejected=lost + self.refused)

    def _other(self, layout: Layout) -> Candidate:
        subject = self.best.subject
        known = self.weighed.get(layout)
        if known is None and not self.all_hopeless:
            known = hopeless(subject, layout)
        return known or candidate(subject, layout)


def ranked(subject: Subject, constraints: Mapping[str, int]) -> Ranking:
    """The best layout of a subject.

    Those that do not hold even the weights are not looked at further where another does. Raises
    PLAN030 when the engine refuses every layout that the constraints allow, PLAN032 when the sizes
    stated make none.
    """
    allowed, refused = sifted(subject, constraints)
    if not allowed:
        raise _no_layout(subject, refused)
    weighing = _Weighing(subject, allowed)
    best = weighing.first()
    if not weighing.all_hopeless:
        return Ranking(best=best, allowed=allowed, weighed=weighing.weighed, refused=refused)
    # Of layouts that do not fit the published come first, whatever the others miss by.
    ranks = [publication_rank(subject, layout) for layout in allowed]
    weighed = {
        layout: candidate(subject, layout)
        for layout, rank in zip(allowed, ranks, strict=True)
        if rank == min(ranks)
    }
    best = min(weighed.values(), key=place)
    return Ranking(best=best, allowed=allowed, weighed=weighed, refused=refused, all_hopeless=True)


def best_that_holds(subject: Subject, allowed: tuple[Layout, ...]) -> Candidate | None:
    """The best layout of a subject, the one that `ranked` finds; None where none holds the model:
    then the one that misses by least is not looked for.
    """
    return _Weighing(subject, allowed).first_that_holds()


def best_hope(subject: Subject, allowed: tuple[Layout, ...]) -> tuple[int, int, int]:
    """What no layout of a subject comes before among ways to serve, as `engine_order` has it,
    before any is weighed.
    """
    # Where nobody published a layout for the card, all have the same hope.
    apart = allowed if recipes_on_card(subject) else allowed[:1]
    return min(engine_order(hoped(subject, layout)) for layout in apart)


class _Weighing:
    """Layouts put in order with as little weighing as the order takes.

    Each begins with its hope and is looked at more closely when it would come first: whether its
    weights alone are too many, what its heaviest stage allows, and at last its whole account.
    Nothing of it gets better by that, so the first that is known whole comes before all others.
    """

    def __init__(self, subject: Subject, allowed: tuple[Layout, ...]) -> None:
        self._subject = subject
        self._allowed = allowed
        # In order, and so a heap as it is.
        self._queue = list(_hopes(subject, allowed))
        self._at_best: dict[int, Capacity] = {}
        self._hopeless = 0
        self.weighed: dict[Layout, Candidate] = {}

    @property
    def all_hopeless(self) -> bool:
        """True when the weights alone were too many in every layout."""
        return self._hopeless == len(self._allowed)

    def first(self) -> Candidate:
        """The best layout."""
        found = self._first(only_holding=False)
        if found is None:
            raise TypeError(self._allowed)
        return found

    def first_that_holds(self) -> Candidate | None:
        """The best layout; None where it does not hold the model."""
        return self._first(only_holding=True)

    def _first(self, *, only_holding: bool) -> Candidate | None:
        queue = self._queue
        while queue:
            here, at = queue[0]
            layout = self._allowed[at]
            if only_holding and here[0] == _ANSWERS[PlanVerdict.DOES_NOT_FIT]:
                return None
            known = self.weighed.get(layout)
            if known is not None and (known.weights_alone is None or self.all_hopeless):
                return known
            heapq.heapreplace(queue, (self._closer(here, at), at))
        return None

    def _closer(self, here: list[int], at: int) -> list[int]:
        """Where a layout comes at best, looked at once more."""
        subject, layout = self._subject, self._allowed[at]
        # What the weights alone miss by is the least that a layout can miss by: enough to come
        # after others, not to come first.
        if at not in self._at_best and layout not in self.weighed:
            without = hopeless(subject, layout)
            if without is not None:
                self._hopeless += 1
                self.weighed[layout] = without
                return place(without)
            self._at_best[at] = capacity_at_best(subject, layout)
            at_best = place(hoped(subject, layout, self._at_best[at]))
            if at_best != here:
                return at_best
        self.weighed[layout] = candidate(subject, layout)
        return place(self.weighed[layout])


def _hopes(subject: Subject, allowed: tuple[Layout, ...]) -> Sequence[tuple[list[int], int]]:
    """The places that layouts would have if each held the model with room to spare, the best
    first. What is kept of a text, and in how many bytes, does not matter to them.
    """
    rack = subject.rack
    key = (
        "hopes",
        subject.weights_key,
        subject.version_text,
        subject.gpu.id,
        (rack.nodes, rack.gpus_per_node, rack.parts),
        Same(allowed),
    )
    return subject.knowledge.remembered(
        key,
        lambda: sorted((place(hoped(subject, each)), at) for at, each in enumerate(allowed)),
    )


def sifted(
    subject: Subject, constraints: Mapping[str, int]
) -> tuple[tuple[Layout, ...], tuple[Rejected, ...]]:
    """The layouts that the engine allows on the rack, and those it refuses."""
    rack = subject.rack
    key = (
        "layouts",
        # All that an engine's word on a layout rests on, beside the model.
        (Same(layout_rule(subject)), whole_experts_only(subject), subject.engine.title),
        # Racks of as many cards differ in being one machine or several.
        (rack.gpu_count, rack.nodes > 1),
        # What was published for a card may add layouts.
        (subject.engine.id, subject.variant.id, subject.gpu.id) if ran_here(subject) else None,
        tuple(constraints.items()),
    )
    return subject.knowledge.remembered(key, lambda: _sift(subject, constraints))


def _sift(
    subject: Subject, constraints: Mapping[str, int]
) -> tuple[tuple[Layout, ...], tuple[Rejected, ...]]:
    refused: list[Rejected] = []
    allowed: list[Layout] = []
    for layout in candidates(subject, constraints):
        no = refusal(subject, layout)
        if no is not None:
            refused.append(_refused(layout, no))
        else:
            allowed.append(layout)
    return tuple(allowed), tuple(refused)


def place(found: Candidate) -> list[int]:
    """Where a layout comes among those of its subject; less is better."""
    return [value for _, value in _order(found)]


def _refused(layout: Layout, no: Refusal) -> Rejected:
    return Rejected(layout=layout, code=no.code, params=no.params)


def _lost(other: Candidate, best: Candidate) -> Rejected:
    """The first thing in which a layout came second."""
    pairs = zip(_order(other), _order(best), strict=False)
    deciding = next((mine[0] for mine, theirs in pairs if mine != theirs), "less_room")
    code = {
        "answer": f"verdict_{other.verdict}",
        "verdict": f"verdict_{other.verdict}",
        "status": f"status_{other.support.status}",
    }.get(deciding, deciding)
    return Rejected(
        layout=other.layout,
        code=code,
        params={
            "kv_tokens": other.kv_tokens,
            "best_kv_tokens": best.kv_tokens,
            "headroom_bytes": other.headroom_bytes,
            "best": best.layout.label,
            "stages": other.layout.pipeline_parallel_size,
            "tensor": other.layout.tensor_parallel_size,
            "verdict": other.verdict.value,
        },
    )


def _no_layout(subject: Subject, refused: Sequence[Rejected]) -> HeavyliftError:
    if not refused:
        return HeavyliftError(
            "PLAN032", {"rack": subject.rack.label, "gpus": subject.rack.gpu_count}
        )
    # Sizes an engine takes say more than what it does not offer.
    first = next((entry for entry in refused if entry.code == "tensor_size"), refused[0])
    return HeavyliftError(
        "PLAN030",
        {
            "model": subject.model.title,
            "engine": subject.engine.title,
            "rack": subject.rack.label,
            "layout": first.layout.label,
            "refusal": first.code,
            **first.params,
        },
    )


Found = Sequence[Subject | HeavyliftError]
"""A request on each engine that may take it, or the error with which one does not."""


def best_plan(request: PlanRequest, knowledge: Knowledge, found: Found | None = None) -> Plan:
    """The best plan for a request: over the engines when none is named, and over layouts.

    `found` is what `subjects` gives for the request, where it is at hand. Raises what `choose`
    raises.
    """
    return choose(request, knowledge, found).plan()


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What was chosen of the engines asked, the best first, and those that refuse the request."""

    request: PlanRequest
    rankings: tuple[Ranking, ...]
    refusing: tuple[Subject, ...]

    @property
    def best(self) -> Candidate:
        """The layout that is taken."""
        return self._taken.best

    @property
    def _taken(self) -> Ranking:
        # Room on an engine that does not run here is no answer where another says what is missing.
        runs = (each for each in self.rankings if each.best.support.status not in _REFUSED)
        return next(runs, self.rankings[0])

    def plan(self, *, with_lost: bool = True) -> Plan:
        """The plan of the best, with what became of the other engines where none was named.

        Without `with_lost` the layouts that lost are not worked out: a comparison shows none.
        """
        plan = self._taken.plan(self.request, with_lost=with_lost)
        if self.request.engine is not None:
            return plan
        choices = [_choice(each.best) for each in self.rankings]
        return replace(plan, engines=(*choices, *map(_refusal_of, self.refusing)))


def choose(request: PlanRequest, knowledge: Knowledge, found: Found | None = None) -> Choice:
    """The engines and layouts of a request in their order, without a plan of any.

    Raises what `resolve` raises; with several engines, an engine that cannot take the request is
    passed over and the error is raised only when none can.
    """
    failed: HeavyliftError | None = None
    rankings: list[Ranking] = []
    found = subjects(request, knowledge) if found is None else found
    refusing = [each for each in found if isinstance(each, Subject) and refused_by_engine(each)]
    # An engine that does not run here is searched only where every one says so.
    skipped = refusing if len(refusing) < len(found) else []
    for subject in found:
        if isinstance(subject, HeavyliftError):
            failed = failed or subject
            continue
        if any(subject is each for each in skipped):
            continue
        try:
            rankings.append(ranked(subject, request.layout_constraints))
        except HeavyliftError as error:
            if request.engine is not None:
                raise
            failed = failed or error
    if not rankings:
        raise failed or HeavyliftError("PLAN031", {"model": knowledge.model.model.title})
    # Equal plans keep the order of the engines: that of the model's own list.
    rankings.sort(key=lambda each: engine_order(each.best))
    return Choice(request=request, rankings=tuple(rankings), refusing=tuple(skipped))


def subjects(request: PlanRequest, knowledge: Knowledge) -> Found:
    """The request on each engine that may take it. With an engine named its error is raised."""
    machine = knowledge.machines[request.rack.gpu]
    found: list[Subject | HeavyliftError] = []
    for engine in _engines(request, knowledge, machine.gpu):
        try:
            found.append(
                resolve(
                    request,
                    knowledge.model,
                    engine,
                    machine.gpu,
                    machine.node,
                    cards=cards_of(request.rack, knowledge),
                )
            )
        except HeavyliftError as error:
            if request.engine is not None:
                raise
            found.append(error)
    return found


def cards_of(rack: Rack, knowledge: Knowledge) -> tuple[GpuFacts, ...]:
    """The card of each rank of a rack with several kinds; empty where there is one."""
    return tuple(knowledge.machines[part.gpu].gpu for part in rack.parts for _ in range(part.count))


def none_can_hold(found: Found) -> bool:
    """True when on no engine the weights alone would fit, so that nothing needs to be searched."""
    taken = [each for each in found if isinstance(each, Subject)]
    return bool(taken) and all(map(cannot_hold, taken))


def _refusal_of(subject: Subject) -> EngineChoice:
    said = refused_by_engine(subject)
    if said is None:
        raise TypeError(subject)
    return EngineChoice(
        engine=subject.engine.id,
        title=subject.engine.title,
        version=subject.version_text,
        layout=None,
        verdict=PlanVerdict.UNSUPPORTED,
        support=said,
        headroom_bytes=None,
    )


def _choice(best: Candidate) -> EngineChoice:
    return EngineChoice(
        engine=best.subject.engine.id,
        title=best.subject.engine.title,
        version=best.subject.version_text,
        layout=best.layout,
        verdict=best.verdict,
        support=best.support,
        headroom_bytes=best.headroom_bytes,
    )


def plan_on_layout(
    request: PlanRequest, knowledge: Knowledge, engine: str, layout: Layout
) -> Plan | None:
    """The plan of a request on one engine and layout, without a search; None when the engine
    refuses that layout.

    For answers while an input is being moved: what a search then finds may be another layout.
    Raises what `resolve` raises.
    """
    machine = knowledge.machines[request.rack.gpu]
    subject = resolve(
        request, knowledge.model, knowledge.engines[engine], machine.gpu, machine.node
    )
    offered = candidates(subject, request.layout_constraints)
    if layout not in offered or refusal(subject, layout) is not None:
        return None
    return plan_layout(subject, request, layout)


def with_receipt(plan: Plan, receipt: Receipt, knowledge: Knowledge) -> Plan:
    """The plan with a receipt's measured terms in place of assumed and unknown ones, or with them
    as floors where only some of the layers were started.

    A receipt of something else changes nothing and is named in a note.
    """
    other = mismatch(receipt, plan)
    if other is not None:
        note = Note(code="receipt_of_other", params={"what": other})
        return replace(plan, notes=(*plan.notes, note), measured=compare(plan, receipt))
    machine = knowledge.machines[plan.rack.gpu]
    subject = resolve(
        plan.request,
        knowledge.model,
        knowledge.engines[plan.engine],
        machine.gpu,
        machine.node,
        receipt=receipt,
        cards=cards_of(plan.rack, knowledge),
    )
    measured = plan_layout(subject, plan.request, plan.layout)
    notes = measured.notes
    if receipt.logged_version not in (None, plan.engine_version):
        params: dict[str, Scalar] = {
            "logged": receipt.logged_version,
            "planned": plan.engine_version,
        }
        notes = (*notes, Note(code="receipt_of_version", params=params))
    layers = layers_of(receipt)
    if layers is not None:
        notes = (*notes, Note(code="receipt_of_layers", params={"layers": layers}))
        return replace(measured, rejected=plan.rejected, notes=notes)
    return replace(measured, rejected=plan.rejected, measured=compare(plan, receipt), notes=notes)


def engine_order(found: Candidate) -> tuple[int, int, int]:
    """What puts engines, and ways to serve, in order: whether it holds, who ran it, the verdict."""
    verdict = _VERDICTS.index(found.verdict)
    if found.verdict is PlanVerdict.DOES_NOT_FIT:
        return (verdict, 0, 0)
    return (_ANSWERS[found.verdict], _STATUSES.index(found.support.status), verdict)


def _engines(request: PlanRequest, knowledge: Knowledge, gpu: GpuFacts) -> list[EngineFacts]:
    """The engine named, or those that take the variant named, or the model's own checkpoint, as its
    facts list them.

    On a host without a card: the engines that split whole layers, which is what runs on a CPU.
    """
    if request.engine is not None:
        return [knowledge.engines[request.engine]]
    asked = None if request.variant is None else knowledge.model.variant(request.variant)
    if asked is not None:
        return [knowledge.engines[name] for name in asked.engines if name in knowledge.engines]
    if gpu.vendor == HOST_VENDOR:
        return [
            engine
            for engine in knowledge.engines.values()
            if any(rule.splits == "layers" for rule in engine.layouts)
        ]
    return [knowledge.engines[name] for name in knowledge.model.model.variants[0].engines]
