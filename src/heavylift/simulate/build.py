"""From plans and their forecasts of speed to the fleets that are run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from heavylift.plan.cache import cache_model
from heavylift.plan.prefill_decode import handover
from heavylift.plan.speed import Forecaster
from heavylift.plan.stages import stages
from heavylift.records.plan import Plan
from heavylift.records.simulation import PaceEnd
from heavylift.records.speed import SpeedBasis, SpeedWorkload
from heavylift.simulate.fleet import Failures, FleetSpec, PoolSpec, Router
from heavylift.simulate.pace import Pace
from heavylift.simulate.pool import Room

PACES: Final = (PaceEnd.SLOW, PaceEnd.MIDDLE, PaceEnd.FAST)

_PROBE_BYTES: Final = 1 << 50
_STEP_TOKENS: Final = 8192
"""Tokens of a step where an engine's own is not known; the answer says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """Times the model's time that decode steps and prompts take."""

    decode: float
    prefill: float


def factors(forecaster: Forecaster, workload: SpeedWorkload) -> dict[PaceEnd, Factors]:
    """By pace: the ends of the two spreads and their geometric means.

    Prompts lie about the model as measured times to the first token do, as in the forecast.
    """
    basis = forecaster.basis_of(workload)
    prompts = forecaster.first_token_spread(basis)
    return {
        PaceEnd.SLOW: Factors(decode=basis.high_ratio, prefill=prompts.high),
        PaceEnd.MIDDLE: Factors(
            decode=math.sqrt(basis.low_ratio * basis.high_ratio),
            prefill=math.sqrt(prompts.low * prompts.high),
        ),
        PaceEnd.FAST: Factors(decode=basis.low_ratio, prefill=prompts.low),
    }


@dataclass(frozen=True)
class Unit:
    """A rack with its layout, as replicas of a fleet: one per data-parallel rank."""

    forecaster: Forecaster
    workload: SpeedWorkload
    caches_prefixes: bool = True
    spared_ratio: float = 0.0
    kv_tokens: int | None = None
    """Tokens of the pool of one replica, as its engine reported them: engines count whole sequences
    with their state, so the state takes nothing besides. None = as planned."""

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.forecaster.plan

    @property
    def replicas(self) -> int:
        """Replicas of one rack."""
        return self.plan.layout.data_parallel_size

    @cached_property
    def state_and_block_tokens(self) -> tuple[int, int]:
        """What a sequence's state takes of the pool, and what its tokens are rounded up to, tokens.

        Both are asked of the engine's way to store them, in a room that is large: pool tokens over
        sequences of one block, less that block.
        """
        subject, layout = self.forecaster.subject, self.plan.layout
        cache = cache_model(subject, layout)
        block = (self.plan.page_tokens or 1) * layout.decode_context_parallel_size
        states = [0]
        for stage in stages(subject, layout):
            pool = cache.pool_tokens(stage, _PROBE_BYTES)
            sequences = cache.sequences_in(stage, _PROBE_BYTES, block, reserved=False)
            # A stage that keeps no KV, or nothing at all, sets no bound.
            if sequences and pool < _PROBE_BYTES:
                states.append(round(pool / sequences) - block)
        return max(0, *states), block

    def tokens(self, pace: PaceEnd) -> int:
        """Tokens of one replica's pool: careful at the slow end if that is known."""
        if self.kv_tokens is not None:
            return self.kv_tokens
        capacity, context = self.plan.capacity, self.plan.context_tokens
        state, block = self.state_and_block_tokens
        high = capacity.kv_tokens.high or 0
        careful = capacity.max_sequences.low * (-(-context // block) * block + state)
        if pace is PaceEnd.FAST or not careful:
            tokens = high
        else:
            careful = min(careful, high)
            tokens = careful if pace is PaceEnd.SLOW else round(math.sqrt(careful * high))
        return tokens // self.replicas

    @property
    def seats(self) -> int | None:
        """Sequences of a replica at once; None = no limit known."""
        taken = self.forecaster.admitted
        return None if taken is None else taken[0]

    def room(self, pace: PaceEnd) -> Room:
        """What a replica holds."""
        state, block = self.state_and_block_tokens if self.kv_tokens is None else (0, 1)
        return Room(
            tokens=self.tokens(pace),
            seats=self.seats,
            state_tokens=state,
            block_tokens=block,
            caches_prefixes=self.caches_prefixes,
            spared_ratio=self.spared_ratio,
        )

    @property
    def budget(self) -> int:
        """Tokens of a step."""
        return self.plan.max_num_batched_tokens or _STEP_TOKENS

    @property
    def budget_is_known(self) -> bool:
        """True when the engine's tokens of a step are a fact or stated."""
        return self.plan.max_num_batched_tokens is not None

    def pool(self, racks: int, pace: PaceEnd, times_model: Factors) -> PoolSpec:
        """`racks` of these at a pace."""
        speculation = self.workload.speculation
        times = self.forecaster.times(self.forecaster.calibration.fixed_s_per_layer)
        return PoolSpec(
            replicas=racks * self.replicas,
            pace=Pace.of(
                times,
                factor=times_model.decode,
                prefill_factor=times_model.prefill,
                drafted=speculation.draft_tokens if speculation else 0,
                accepted=speculation.accepted_tokens if speculation else 1.0,
            ),
            room=self.room(pace),
            budget=self.budget,
        )


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Racks that serve, and racks for prompts alone where there are any, with what joins them."""

    serve: Unit
    racks: int
    prefill: Unit | None = None
    prefill_racks: int = 0
    link_gb_per_s: float | None = None
    router: Router = Router.LEAST
    failures: Failures | None = None

    @cached_property
    def basis(self) -> SpeedBasis:
        """What the interval of speed rests on."""
        return self.serve.forecaster.basis_of(self.serve.workload)

    def spec(self, pace: PaceEnd) -> FleetSpec:
        """The fleet at a pace."""
        factor = factors(self.serve.forecaster, self.serve.workload)[pace]
        moved = handover(self.serve.forecaster, 0)
        rate = (self.link_gb_per_s or math.inf) * 1e9
        return FleetSpec(
            serve=self.serve.pool(self.racks, pace, factor),
            prefill=None
            if self.prefill is None
            else self.prefill.pool(self.prefill_racks, pace, factor),
            handover_s=moved.wire_state_bytes / rate,
            handover_s_per_token=moved.wire_kv_bytes_per_token / rate,
            router=self.router,
            failures=self.failures,
            longest_tokens=self.longest_tokens,
        )

    @property
    def longest_tokens(self) -> int:
        """Where the model's context ends."""
        return self.serve.forecaster.subject.model.max_context.value

    @property
    def gpu_count(self) -> int:
        """GPUs in all."""
        more = 0 if self.prefill is None else self.prefill.plan.rack.gpu_count * self.prefill_racks
        return self.serve.plan.rack.gpu_count * self.racks + more

    def sized(self, spec: FleetSpec, racks: int) -> FleetSpec:
        """The same with another number of racks; those for prompts grow in proportion."""
        serve = replace(spec.serve, replicas=racks * self.serve.replicas)
        if spec.prefill is None or self.prefill is None:
            return replace(spec, serve=serve)
        prompts = max(1, math.ceil(self.prefill_racks * racks / self.racks))
        return replace(
            spec,
            serve=serve,
            prefill=replace(spec.prefill, replicas=prompts * self.prefill.replicas),
        )


def start_s(plan: Plan, gb_per_s: float) -> float:
    """Seconds in which a machine reads its weights when a replica starts: bytes over GB/s."""
    whole = plan.host.load_bytes_per_node or plan.host.disk_bytes / plan.rack.nodes
    return whole / (gb_per_s * 1e9)


def spared(spec: FleetSpec, ratio: float) -> FleetSpec:
    """The same with a part of all new prompt tokens taken as known."""

    def more(pool: PoolSpec) -> PoolSpec:
        kept = 1 - (1 - pool.room.spared_ratio) * (1 - ratio)
        return replace(pool, room=replace(pool.room, spared_ratio=kept))

    prefill = None if spec.prefill is None else more(spec.prefill)
    return replace(spec, serve=more(spec.serve), prefill=prefill)


def holding(specs: Sequence[FleetSpec]) -> bool:
    """True when every replica holds anything at all."""
    return all(spec.serve.room.tokens > 0 for spec in specs)
