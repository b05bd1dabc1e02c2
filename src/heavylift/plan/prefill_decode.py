"""Sizing of split services: rates matched, memory checked, bytes exact, and a verdict.

Both pools are made of units, a unit being the rack that was asked about. Requests per second of a
prefill unit follow from the prompt's time, those of a decode unit from the largest batch within the
limit. Prefill units per decode unit = decode rate / prefill rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Final

from heavylift.errors import HeavyliftError
from heavylift.plan.cache_parts import bytes_per_token, state_parts_of, token_parts
from heavylift.plan.service import Service
from heavylift.plan.speed import Forecaster
from heavylift.records.plan import Layout, Note
from heavylift.records.prefill_decode import (
    Handover,
    HandoverTime,
    Pool,
    PrefillDecode,
    SplitNeed,
    SplitVerdict,
)
from heavylift.records.speed import Band, SpeedWorkload

CLEAR_GAIN: Final = 1.2
"""From here on a gain counts. Below, it is inside what the relation of prefill to decode is known
to (efficiencies of 0.2 to 0.4 fit the rows alike), and two pools cost more care than one."""

_HALVINGS: Final = 40
_MOST_UNITS: Final = 8
_SHORT_PROMPT_TOKENS: Final = 2048
_HIGH_HIT_RATIO: Final = 0.8


def handover(decode: Forecaster, tokens: int) -> Handover:
    """Bytes of a request of `tokens`.

    Formula: each receiving rank takes what it will hold: bytes per rank × tensor parallel / dcp
    """
    layout = decode.plan.layout
    once = Layout()
    ranks, dcp = layout.tensor_parallel_size, layout.decode_context_parallel_size

    def per_token(where: Layout) -> int:
        return bytes_per_token(token_parts(decode.subject, where))

    def per_sequence(where: Layout) -> int:
        parts = state_parts_of(decode.subject, where)
        return sum(part.layer_bytes * len(part.layers) for part in parts)

    wire = per_token(layout) * ranks // dcp
    return Handover(
        state_bytes=per_sequence(once),
        kv_bytes_per_token=per_token(once),
        wire_state_bytes=per_sequence(layout) * ranks,
        wire_kv_bytes_per_token=wire,
        wire_copies=wire / per_token(once),
        tokens=tokens,
    )


def batch_within(service: Service, tpot_limit_s: float) -> float:
    """The largest batch of a replica within the limit and the seats; 0 when even one is too slow.

    A token's time never falls as the batch grows, so halving finds it.
    """
    if service.tpot_s(1.0) > tpot_limit_s:
        return 0.0
    low, high = 1.0, float(max(1, service.seats))
    if service.tpot_s(high) <= tpot_limit_s:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if service.tpot_s(middle) <= tpot_limit_s:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rates:
    """Requests per second of units at one speed, and the decode batch of a replica. None: the
    limit is out of reach.
    """

    prefill: float
    decode: float | None
    batch: float
    whole: float | None


@dataclass(frozen=True)
class Split:
    """A question about splitting: a forecaster for each pool's unit, the workload and the limit."""

    prefill: Forecaster
    decode: Forecaster
    workload: SpeedWorkload
    tpot_limit_s: float
    clients: int | None = None
    """Clients to serve in all. None = as many as fill the units: rates alone are compared."""

    @cached_property
    def _factors(self) -> tuple[float, float]:
        basis = self.decode.basis_of(self.workload)
        return basis.low_ratio, basis.high_ratio

    def _service(self, *, split: bool) -> Service:
        whole = self.decode.service(self.workload)
        if not split:
            return whole
        return replace(whole, prefill=self.prefill.service(self.workload).decode)

    def _rates(self, factor: float) -> _Rates:
        """Rates when everything takes `factor` times the model's time: the limit shrinks by it."""
        facts = self.decode.facts.model
        limit = self.tpot_limit_s / factor
        split, whole = self._service(split=True), self._service(split=False)
        batch, whole_batch = batch_within(split, limit), batch_within(whole, limit)
        replicas = split.replicas
        pool = self.prefill.load
        prompts = pool.microbatches * pool.layout.data_parallel_size
        decode = replicas * split.requests_per_s(batch) / factor if batch else None
        return _Rates(
            prefill=prompts / (split.prompt_s * factor) * facts.prefill_pool_use.value,
            decode=None if decode is None else decode * facts.decode_pool_use.value,
            batch=batch * replicas,
            whole=replicas * whole.requests_per_s(whole_batch) / factor if whole_batch else None,
        )

    def answer(self) -> PrefillDecode:
        """The sizes, the bytes and the verdict. Raises PLAN077 when there are no prompts."""
        if self.workload.input_tokens == 0:
            raise HeavyliftError("PLAN077")
        low, high = (self._rates(factor) for factor in self._factors)
        plan, work = self.decode.plan, self.workload
        ratio = self._ratio(low, high)
        units = _units(ratio)
        split = self._per_gpu_split(low, high, units)
        whole = self._per_gpu_whole(low, high)
        gain = self._gain(low, high)
        needs = self._needs(low, high)
        moved = handover(self.decode, work.input_tokens)
        return PrefillDecode(
            model=plan.model,
            title=plan.title,
            engine=plan.engine,
            engine_title=plan.engine_title,
            engine_version=plan.engine_version,
            workload=work,
            tpot_limit_s=self.tpot_limit_s,
            prefill=self._pool(self.prefill, Band(low=high.prefill, high=low.prefill), None),
            decode=self._pool(
                self.decode,
                Band(low=high.decode or 0.0, high=low.decode or 0.0),
                Band(low=high.batch, high=low.batch),
            ),
            ratio=ratio,
            prefill_units=units[0],
            decode_units=units[1],
            split_per_gpu=split,
            whole_per_gpu=whole,
            gain=gain,
            needs=needs,
            handover=moved,
            times=self._times(moved),
            verdict=self.verdict,
            reasons=self._reasons(low, high, moved),
            depends_on=self._depends_on(),
            risks=_RISKS,
            basis=self.decode.basis_of(work),
        )

    def _pool(self, unit: Forecaster, rate: Band, batch: Band | None) -> Pool:
        return Pool(
            rack=unit.plan.rack,
            layout=unit.plan.layout,
            requests_per_s=rate,
            batch=batch,
            room_sequences=unit.plan.capacity.max_sequences,
        )

    def _ratio(self, low: _Rates, high: _Rates) -> Band | None:
        """Prefill units per decode unit. The speed's error meets both pools alike, so each end is
        taken at one speed.
        """
        if low.decode is None:
            return None
        ends = [low.decode / low.prefill]
        if high.decode is not None:
            ends.append(high.decode / high.prefill)
        return Band(low=min(ends), high=max(ends))

    def _split_requests(self, rates: _Rates, units: tuple[int, int]) -> float | None:
        """Requests per second and GPU of a split service: the slower pool decides."""
        if rates.decode is None:
            return None
        gpus = units[0] * self.prefill.plan.rack.gpu_count
        gpus += units[1] * self.decode.plan.rack.gpu_count
        return min(units[0] * rates.prefill, units[1] * rates.decode) / gpus

    def _per_gpu_split(self, low: _Rates, high: _Rates, units: tuple[int, int]) -> Band | None:
        return self._tokens(self._split_requests(high, units), self._split_requests(low, units))

    def _per_gpu_whole(self, low: _Rates, high: _Rates) -> Band | None:
        gpus = self.decode.plan.rack.gpu_count
        slow = None if high.whole is None else high.whole / gpus
        return self._tokens(slow, None if low.whole is None else low.whole / gpus)

    def _tokens(self, slow: float | None, fast: float | None) -> Band | None:
        if fast is None:
            return None
        made = self.workload.output_tokens
        return Band(low=(slow or 0.0) * made, high=fast * made)

    def _gain(self, low: _Rates, high: _Rates) -> Band | None:
        """Output per GPU, split over whole, with the pools matched at each end.

        Formula: 1 / (prefill GPUs / prefill rate + decode GPUs / decode rate) / (whole rate / GPUs)
        """
        prefill_gpus = self.prefill.plan.rack.gpu_count
        gpus = self.decode.plan.rack.gpu_count
        ends = [
            gpus / rates.whole / (prefill_gpus / rates.prefill + gpus / rates.decode)
            for rates in (low, high)
            if rates.whole and rates.decode
        ]
        return Band(low=min(ends), high=max(ends)) if ends else None

    def _needs(self, low: _Rates, high: _Rates) -> tuple[SplitNeed, ...]:
        """Whole units that the clients take, split and not, at both speeds.

        Formula: requests/s = clients / (output tokens × limit + prompt), units = ceil(that / rate)
        """
        if self.clients is None:
            return ()
        prompt, found = self._service(split=True).prompt_s, []
        for rates, factor in zip((low, high), self._factors, strict=True):
            if rates.decode is None:
                continue
            round_s = self.workload.output_tokens * self.tpot_limit_s + prompt * factor
            wanted = self.clients / round_s
            found.append(
                SplitNeed(
                    prefill_units=math.ceil(wanted / rates.prefill),
                    decode_units=math.ceil(wanted / rates.decode),
                    whole_units=math.ceil(wanted / rates.whole) if rates.whole else None,
                )
            )
        return tuple(found)

    def _gain_of_needs(self, needs: tuple[SplitNeed, ...]) -> Band | None:
        """GPUs whole over GPUs split, for the clients."""
        prefill, decode = (each.plan.rack.gpu_count for each in (self.prefill, self.decode))
        ends = [
            need.whole_units * decode / (need.prefill_units * prefill + need.decode_units * decode)
            for need in needs
            if need.whole_units is not None
        ]
        return Band(low=min(ends), high=max(ends)) if ends else None

    def _times(self, moved: Handover) -> tuple[HandoverTime, ...]:
        return tuple(
            HandoverTime(
                link=link.id,
                title=link.title,
                gb_per_s=link.gb_per_s,
                seconds=moved.wire_bytes / (link.gb_per_s * 1e9),
                requests_per_s=link.gb_per_s * 1e9 / moved.wire_bytes,
                source=link.source,
            )
            for link in self.decode.facts.links
        )

    @cached_property
    def verdict(self) -> SplitVerdict:
        """Pays, does not, or depends: by GPUs for the stated clients, else by rates."""
        low, high = (self._rates(factor) for factor in self._factors)
        rates_alone = self.clients is None
        gain = self._gain(low, high) if rates_alone else self._gain_of_needs(self._needs(low, high))
        if low.decode is None:
            return SplitVerdict.NOT_POSSIBLE
        if gain is None or gain.high < CLEAR_GAIN:
            return SplitVerdict.DOES_NOT_PAY
        # A gain at the fast end alone is no gain to build on: at the slow end it is below, or the
        # limit is out of reach.
        sure = gain.low >= CLEAR_GAIN and high.decode is not None
        return SplitVerdict.PAYS if sure else SplitVerdict.DEPENDS

    def _reasons(self, low: _Rates, high: _Rates, moved: Handover) -> tuple[Note, ...]:
        work, found = self.workload, []
        service = self._service(split=True)
        if low.decode is None:
            found.append(Note(code="limit_out_of_reach"))
        elif high.decode is None:
            found.append(Note(code="limit_at_the_edge"))
        if work.uncached_tokens < _SHORT_PROMPT_TOKENS:
            found.append(Note(code="short_prompts", params={"tokens": round(work.uncached_tokens)}))
        if work.cached_ratio >= _HIGH_HIT_RATIO:
            found.append(Note(code="high_hit_rate"))
        slow = [t for t in self._times(moved) if t.seconds > service.prompt_s > 0]
        if slow:
            found.append(
                Note(
                    code="handover_slower_than_prompt",
                    params={"gb_per_s": max(time.gb_per_s for time in slow)},
                )
            )
        if moved.state_bytes > moved.kv_bytes_per_token * moved.tokens:
            found.append(
                Note(
                    code="state_outweighs_kv",
                    params={"tokens": moved.state_bytes // moved.kv_bytes_per_token},
                )
            )
        if self.clients is not None and self.clients < low.batch:
            found.append(Note(code="few_clients", params={"clients": self.clients}))
        found.append(
            Note(
                code="link_needed",
                params={"gb_per_s": round(moved.wire_bytes * low.prefill / 1e9, 2)},
            )
        )
        return tuple(found)

    def _depends_on(self) -> tuple[Note, ...]:
        """What turns the verdict: half and twice the limit, no and nearly all of the prompt cached,
        each planned again.
        """
        others = (
            ("limit_halved", replace(self, tpot_limit_s=self.tpot_limit_s / 2)),
            ("limit_doubled", replace(self, tpot_limit_s=self.tpot_limit_s * 2)),
            ("nothing_cached", self._cached(0.0)),
            ("mostly_cached", self._cached(0.9)),
        )
        return tuple(
            Note(code=code, params={"verdict": other.verdict.value})
            for code, other in others
            if other.verdict is not self.verdict
        )

    def _cached(self, ratio: float) -> Split:
        return replace(self, workload=replace(self.workload, cached_ratio=ratio))


_RISKS: Final = (
    Note(code="state_lost_is_fluent"),
    Note(code="equality_gate"),
)


def _units(ratio: Band | None) -> tuple[int, int]:
    """Whole units near the middle of the ratio, in lowest terms, at least one of each."""
    if ratio is None:
        return 1, 1
    middle = (ratio.low * ratio.high) ** 0.5
    share = Fraction(middle).limit_denominator(_MOST_UNITS)
    if share < Fraction(1, _MOST_UNITS):
        return 1, _MOST_UNITS
    if share > _MOST_UNITS:
        return _MOST_UNITS, 1
    return share.numerator, share.denominator
