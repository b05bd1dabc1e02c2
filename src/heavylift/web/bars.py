"""A plan as bars: where each segment of each GPU begins and ends, as parts of one scale. Pure.

A bar is the memory the driver shows. What counts against the engine's budget is drawn from the
left, and what is left of it up to the budget line; what lies outside the budget begins at that
line. A segment has a part that is known and a part that may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from heavylift.records.plan import Plan, Segment, StageMemory
from heavylift.records.ranges import Interval

HEADROOM: Final = "headroom"
"""What is left of the budget: drawn like a segment, and none of the engine's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A stretch of a bar. `start` and `size` are parts of the scale, from 0 to 1.

    `is_sure` False = it may be needed: the way from the low of a term to its high.
    """

    name: str
    start: float
    size: float
    bytes: Interval
    is_sure: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One GPU. `stage` None = the layout leaves it idle. `left_bytes`: budget - known need."""

    gpu: int
    machine: int
    stage: int | None
    pieces: tuple[Piece, ...]
    used_bytes: int
    left_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """All GPUs on one scale: `scale_bytes` is its end. Marks are parts of it."""

    bars: tuple[Bar, ...]
    scale_bytes: int
    budget_at: float
    visible_at: float
    budget_bytes: int
    visible_bytes: int


def bars(plan: Plan) -> Bars:
    """The bars of a plan, a GPU each, in the order of ranks."""
    inside = frozenset(plan.budgets[0].inside)
    budget, visible = plan.per_gpu.budget_bytes, plan.per_gpu.visible_bytes
    accounts = [_account(stage) for stage in plan.stages]
    scale = max(visible, *(_end(account, inside, budget) for account in accounts))
    drawn = [_pieces(account, inside, budget, scale) for account in accounts]
    rows = []
    for gpu in range(plan.rack.gpu_count):
        stage = _stage(plan, gpu)
        account = {} if stage is None else accounts[stage]
        in_pool = sum(value.low for name, value in account.items() if name in inside)
        rows.append(
            Bar(
                gpu=gpu,
                machine=gpu // plan.rack.gpus_per_node,
                stage=stage,
                pieces=() if stage is None else drawn[stage],
                used_bytes=sum(value.low for value in account.values()),
                left_bytes=budget - in_pool,
            )
        )
    return Bars(
        bars=tuple(rows),
        scale_bytes=scale,
        budget_at=budget / scale,
        visible_at=visible / scale,
        budget_bytes=budget,
        visible_bytes=visible,
    )


def _stage(plan: Plan, gpu: int) -> int | None:
    """The pipeline stage of a GPU: ranks go tensor first, then stages, then replicas."""
    if gpu >= plan.layout.world_size:
        return None
    return gpu // plan.layout.tensor_parallel_size % plan.layout.pipeline_parallel_size


def _account(stage: StageMemory) -> dict[str, Interval]:
    return {
        Segment.WEIGHTS: Interval.exactly(stage.weights_bytes),
        Segment.KV_CACHE: Interval.exactly(stage.kv_cache_bytes),
        Segment.RECURRENT_STATE: Interval.exactly(stage.recurrent_state_bytes),
        Segment.WORKSPACE: stage.workspace_bytes,
        Segment.OUTSIDE_POOL: stage.outside_pool_bytes,
    }


def _end(account: dict[str, Interval], inside: frozenset[str], budget: int) -> int:
    pool = sum(_high(value) for name, value in account.items() if name in inside)
    rest = sum(_high(value) for name, value in account.items() if name not in inside)
    return max(pool, budget) + rest


def _high(value: Interval) -> int:
    """The end of what is drawn: an open end is drawn at its low, and said in words."""
    return value.low if value.high is None else value.high


def _pieces(
    account: dict[str, Interval], inside: frozenset[str], budget: int, scale: int
) -> tuple[Piece, ...]:
    pool = [(name, value) for name, value in account.items() if name in inside]
    rest = [(name, value) for name, value in account.items() if name not in inside]
    pieces = list(_run(pool, 0, scale))
    at = sum(_high(value) for _, value in pool)
    if at < budget:
        left = Interval.exactly(budget - at)
        pieces.append(_piece(HEADROOM, at, budget, scale, left, is_sure=False))
    pieces += _run(rest, max(at, budget), scale)
    return tuple(pieces)


def _run(account: list[tuple[str, Interval]], at: int, scale: int) -> Iterator[Piece]:
    """What is known first, so that the eye adds it up; then what may come on top."""
    for name, value in account:
        if value.low:
            yield _piece(name, at, at + value.low, scale, value, is_sure=True)
            at += value.low
    for name, value in account:
        more = _high(value) - value.low
        if more:
            yield _piece(name, at, at + more, scale, value, is_sure=False)
            at += more


def _piece(name: str, start: int, end: int, scale: int, value: Interval, *, is_sure: bool) -> Piece:
    return Piece(
        name=str(name),
        start=start / scale,
        size=(end - start) / scale,
        bytes=value,
        is_sure=is_sure,
    )
