"""The forecast of speed: a layout, a workload and what is known of the class, to bands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from heavylift.errors import HeavyliftError
from heavylift.facts.speed_schema import SpeedFacts
from heavylift.plan.calibration import (
    Calibration,
    Observation,
    anchored,
    calibrate,
    spread_of,
)
from heavylift.plan.defaults import resolve
from heavylift.plan.planner import Knowledge
from heavylift.plan.service import Service, check_workload
from heavylift.plan.step_time import Constants, Load, StepTime, hardware_of, load_of
from heavylift.plan.subject import Subject
from heavylift.plan.support import whole_service_recipes
from heavylift.records.plan import Layout, Note, Plan
from heavylift.records.speed import (
    AnchorPoint,
    Band,
    Evidence,
    Speculation,
    Speed,
    SpeedBasis,
    SpeedPart,
    SpeedTerm,
    SpeedWorkload,
)


def subject_of(plan: Plan, knowledge: Knowledge) -> Subject:
    """The subject a plan was made of. Raises PLAN009 for cards of several kinds."""
    if plan.rack.parts:
        # Ranks of unlike cards wait for one another in ways that nobody measured here.
        raise HeavyliftError("PLAN009", {"rack": plan.rack.label})
    machine = knowledge.machines[plan.rack.gpu]
    request = replace(plan.request, engine=plan.engine)
    engine = knowledge.engines[plan.engine]
    return resolve(request, knowledge.model, engine, machine.gpu, machine.node)


def crosses_nodes(subject: Subject, layout: Layout) -> bool:
    """True when a tensor-parallel group is wider than what one fast link domain holds."""
    node, rack = subject.node, subject.rack
    domain = node.gpus_per_link_domain.value
    spans = domain > node.gpus_per_node.value
    return layout.tensor_parallel_size > (domain if spans else rack.gpus_per_node)


@dataclass(frozen=True)
class Forecaster:
    """A planned layout with the facts of speed, ready to be asked about workloads."""

    plan: Plan
    subject: Subject
    facts: SpeedFacts
    anchors: tuple[AnchorPoint, ...] = ()
    anchors_from: str = ""
    """The code of the note that says where anchors nobody stated come from."""

    @cached_property
    def load(self) -> Load:
        """What a step reads. Raises PLAN070 for a variant without tensors by group."""
        return load_of(self.subject, self.plan.layout)

    @cached_property
    def _crosses(self) -> bool:
        return crosses_nodes(self.subject, self.plan.layout)

    @cached_property
    def calibration(self) -> Calibration:
        """What is known: the class, or the anchors of the user's own service."""
        plan = self.plan
        found = calibrate(self.facts.book, plan.rack.gpu, plan.engine, crosses_nodes=self._crosses)
        if not self.anchors:
            return found
        observations = [
            Observation(measured_s=point.tpot_s, model_s=self._anchor_model(point))
            for point in self.anchors
        ]
        return anchored(self.facts.book, found.basis, observations)

    def _anchor_model(self, point: AnchorPoint) -> Callable[[float], float]:
        work = SpeedWorkload(
            concurrency=point.concurrency,
            input_tokens=point.input_tokens,
            output_tokens=point.output_tokens,
            cached_ratio=point.cached_ratio,
        )
        return lambda fixed_us: self._service(work, fixed_us * 1e-6).settled_tpot_s

    def times(self, fixed_s_per_layer: float) -> StepTime:
        """Step and prefill times at a fixed cost per layer."""
        model = self.facts.model
        return StepTime(
            load=self.load,
            hardware=hardware_of(self.subject.gpu, model, crosses_nodes=self._crosses),
            constants=Constants.of(model),
            fixed_s_per_layer=fixed_s_per_layer,
        )

    def service(self, workload: SpeedWorkload) -> Service:
        """The settled service of a workload.

        Raises PLAN073 when not one sequence fits, PLAN074 for a workload out of range.
        """
        return self._service(workload, self.calibration.fixed_s_per_layer)

    def _service(self, workload: SpeedWorkload, fixed_s_per_layer: float) -> Service:
        check_workload(workload)
        room = self.seats(workload)
        if room < 1:
            raise HeavyliftError(
                "PLAN073",
                {"context": workload.context_tokens, "rack": self.plan.rack.label},
            )
        return Service(decode=self.times(fixed_s_per_layer), workload=workload, seats=room)

    def seats(self, workload: SpeedWorkload) -> int:
        """Sequences a replica holds at most: KV and state, and the limit the user set."""
        asked = workload.context_tokens
        held = self.plan.capacity.max_sequences.high or 0
        if asked != self.plan.context_tokens:
            held = (self.plan.capacity.kv_tokens.high or 0) // asked
        each = held // self.plan.layout.data_parallel_size
        stated = self.plan.request.max_num_seqs
        return each if stated is None else min(each, stated)

    @cached_property
    def admitted(self) -> tuple[int, str] | None:
        """Sequences that a replica is started to admit at once, and who says so: stated, the
        engine's, or of this layout's own recipe. None = no limit known.

        What a recipe for another layout sets says nothing about this one.
        """
        plan = self.plan
        if plan.max_num_seqs is None or plan.request.max_num_seqs is not None:
            return None if plan.max_num_seqs is None else (plan.max_num_seqs, "request")
        taken = next(entry for entry in plan.defaults if entry.name == "max_num_seqs")
        if taken.origin != "recipe" or taken.source == plan.support.recipe:
            return plan.max_num_seqs, taken.source
        for recipe in whole_service_recipes(self.subject):
            if recipe.id == plan.support.recipe and "max_num_seqs" in recipe.settings:
                return int(recipe.settings["max_num_seqs"]), recipe.id
        return None

    def speed(self, workload: SpeedWorkload) -> Speed:
        """The forecast of a workload."""
        plan, service = self.plan, self.service(workload)
        basis = self.basis_of(workload)
        batch, tpot = service.decode_batch, service.settled_tpot_s
        rate = service.output_tokens_per_s
        drafted = workload.speculation.draft_tokens if workload.speculation else 0
        gpus = plan.rack.gpu_count
        per_s = Band(low=rate / basis.high_ratio, high=rate / basis.low_ratio)
        return Speed(
            model=plan.model,
            title=plan.title,
            variant=plan.variant,
            variant_title=plan.variant_title,
            engine=plan.engine,
            engine_title=plan.engine_title,
            engine_version=plan.engine_version,
            rack=plan.rack,
            layout=plan.layout,
            workload=workload,
            basis=basis,
            tpot_s=Band(low=tpot * basis.low_ratio, high=tpot * basis.high_ratio),
            ttft_s=self._first_token(service, basis),
            output_tokens_per_s=per_s,
            output_tokens_per_s_per_gpu=Band(low=per_s.low / gpus, high=per_s.high / gpus),
            tpot_floor_s=service.decode.floor_s(
                batch, workload.input_tokens + workload.output_tokens / 2
            ),
            decode_batch=batch * service.replicas,
            distinct_experts=service.decode.distinct_experts(batch, 1 + drafted),
            experts=self.load.experts,
            room_sequences=plan.capacity.max_sequences,
            terms=self._terms(service),
            binding=_binding(service),
            refusal=self._refusal(service),
            notes=self._notes(basis),
        )

    def basis_of(self, workload: SpeedWorkload) -> SpeedBasis:
        """The basis of a workload's bands: wider with speculation unless the anchor had it too.

        The spread of speculating rows was taken about a class's own fixed cost: it stands in for
        the class's, and comes on top where the class is unseen.
        """
        basis = self.calibration.basis
        if workload.speculation is None or basis.evidence is Evidence.ANCHORED:
            return basis
        spread = spread_of(self.facts.book, "speculation")
        if basis.evidence is not Evidence.UNSEEN:
            return replace(
                basis,
                low_ratio=min(basis.low_ratio, spread.low_ratio),
                high_ratio=max(basis.high_ratio, spread.high_ratio),
            )
        return replace(
            basis,
            low_ratio=basis.low_ratio * spread.low_ratio,
            high_ratio=basis.high_ratio * spread.high_ratio,
        )

    def first_token_spread(self, basis: SpeedBasis) -> Band:
        """Times the model's time that first tokens took: any class's, and an unseen class's."""
        spread = spread_of(self.facts.book, "ttft")
        unseen = basis.evidence is Evidence.UNSEEN
        return Band(
            low=spread.low_ratio * (basis.low_ratio if unseen else 1.0),
            high=spread.high_ratio * (basis.high_ratio if unseen else 1.0),
        )

    def _first_token(self, service: Service, basis: SpeedBasis) -> Band:
        """From requests that come evenly to all clients sending at once, each end spread."""
        spread = self.first_token_spread(basis)
        return Band(low=service.ttft_s * spread.low, high=service.burst_ttft_s * spread.high)

    def _terms(self, service: Service) -> tuple[SpeedTerm, ...]:
        batch = service.decode_batch
        parts = service.token_parts(batch)
        total = sum(parts.values())
        formulas = self._formulas(service)
        found = [
            SpeedTerm(id=name, share_ratio=seconds / total, formula=formulas[name])
            for name, seconds in parts.items()
            if seconds > 0
        ]
        return tuple(sorted(found, key=lambda term: -term.share_ratio))

    def _formulas(self, service: Service) -> dict[SpeedPart, str]:
        load, work = self.load, service.workload
        batch = service.decode_batch / load.microbatches
        fixed_us = service.decode.fixed_s_per_layer * 1e6
        dense = sum(stage.dense_bytes for stage in load.stages)
        experts = sum(stage.expert_bytes for stage in load.stages)
        kv = sum(stage.kv_bytes_per_token for stage in load.stages)
        state = sum(stage.state_bytes_per_sequence for stage in load.stages)
        touched = service.decode.distinct_experts(service.decode_batch) or 0
        context = work.input_tokens + work.output_tokens / 2
        return {
            SpeedPart.FIXED: f"{load.layers} layers × {fixed_us:,.0f} us",
            SpeedPart.DENSE_WEIGHTS: f"{dense / 1e9:,.2f} GB",
            SpeedPart.EXPERT_WEIGHTS: f"{touched:,.0f} of {load.experts or 0:,} experts"
            f" × {experts / 1e9:,.2f} GB",
            SpeedPart.KV_CACHE: f"{max(1.0, batch):,.1f} × {context:,.0f} tokens × {kv:,.0f} B",
            SpeedPart.RECURRENT_STATE: f"2 × {max(1.0, batch):,.1f} × {state / 1e6:,.1f} MB",
            SpeedPart.COMPUTE: f"2 × {load.active_params / 1e9:,.1f} G × {max(1.0, batch):,.1f}",
            SpeedPart.COLLECTIVES: f"2 × {load.layers} reductions over"
            f" {load.layout.tensor_parallel_size} ranks",
            SpeedPart.PREFILL: f"{work.uncached_tokens:,.0f} tokens per prompt",
        }

    def _refusal(self, service: Service) -> Note | None:
        if not service.is_short_of_seats:
            return None
        state = sum(stage.state_bytes_per_sequence for stage in self.load.stages)
        kv = sum(stage.kv_bytes_per_token for stage in self.load.stages)
        work = service.workload
        larger = "recurrent_state" if state > kv * work.context_tokens else "kv_cache"
        limit = self.plan.request.max_num_seqs
        return Note(
            code="beyond_max_num_seqs" if limit == service.seats else "beyond_room",
            params={
                "asked": work.concurrency,
                "room": service.seats * service.replicas,
                "context": work.context_tokens,
                "term": larger,
            },
        )

    def _notes(self, basis: SpeedBasis) -> tuple[Note, ...]:
        notes = []
        version = self.plan.engine_version
        if basis.evidence is Evidence.KNOWN and version not in basis.versions:
            notes.append(
                Note(
                    code="version_not_measured",
                    params={
                        "version": version,
                        "last": basis.last,
                        "drift": self.facts.model.version_drift.value,
                    },
                )
            )
        if self.anchors_from:
            notes.append(Note(code=self.anchors_from, params={"points": len(self.anchors)}))
        if basis.reason:
            notes.append(Note(code=basis.reason, params={"rows": basis.rows}))
        return tuple(notes)


def _binding(service: Service) -> SpeedPart:
    """Where most of a client's round goes: waiting for a seat, or the largest part of a token."""
    decoding = service.workload.output_tokens * service.settled_tpot_s
    if service.is_short_of_seats and service.ttft_s > decoding:
        return SpeedPart.QUEUE
    parts = service.token_parts(service.decode_batch)
    return max(parts, key=lambda name: parts[name])


def forecaster(
    plan: Plan,
    knowledge: Knowledge,
    facts: SpeedFacts,
    anchors: Sequence[AnchorPoint] = (),
    *,
    anchors_from: str = "",
) -> Forecaster:
    """The forecaster of a plan. `anchors_from`: the code of a note on where the anchors are from,
    unless they were stated.
    """
    return Forecaster(plan, subject_of(plan, knowledge), facts, tuple(anchors), anchors_from)


def speculation(facts: SpeedFacts, model: str, method: str, draft_tokens: int) -> Speculation:
    """The measured acceptance of a method. Raises PLAN075 when none was measured."""
    for entry in facts.acceptances:
        measured = entry.accepted_tokens
        if (entry.model, entry.method) != (model, method) or draft_tokens > len(measured):
            continue
        if accepted := measured[draft_tokens - 1]:
            return Speculation(
                method=method,
                draft_tokens=draft_tokens,
                accepted_tokens=accepted,
                source=entry.source,
            )
    known = ", ".join(
        f"{entry.method}:{count}"
        for entry in facts.acceptances
        if entry.model == model
        for count, accepted in enumerate(entry.accepted_tokens, 1)
        if accepted
    )
    raise HeavyliftError(
        "PLAN075", {"method": method, "drafted": draft_tokens, "model": model, "known": known}
    )
