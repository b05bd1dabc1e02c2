"""What a plan lets one see on a GPU once its engine runs. Pure."""

from __future__ import annotations

from heavylift.records.plan import Plan
from heavylift.records.ranges import Interval


def reserves(plan: Plan) -> bool:
    """True when the engine takes a share of the memory at its start, whatever is needed of it."""
    # The whole of the card is a limit too, and no share that anybody takes.
    return any(budget.fraction is not None for budget in plan.budgets)


def in_use(plan: Plan) -> Interval:
    """Bytes in use on one GPU: at least what is certain, at most what the plan allows.

    An engine that reserves turns what the plan calls headroom into cache, up to its budget; what
    lies outside of the pool comes on top. High None = the plan knows no bound.
    """
    per_gpu = plan.per_gpu
    low = per_gpu.certain_total_bytes
    if not reserves(plan):
        high = per_gpu.high_total_bytes
    elif per_gpu.outside_pool_bytes.high is None:
        high = per_gpu.visible_bytes
    else:
        high = min(per_gpu.visible_bytes, per_gpu.budget_bytes + per_gpu.outside_pool_bytes.high)
    return Interval(low=low, high=None if high is None else max(low, high))
