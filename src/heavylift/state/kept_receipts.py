"""Receipts of earlier starts on this machine, for the plan they answer to."""

from __future__ import annotations

from pathlib import Path

from heavylift.plan.receipts import layers_of, mismatch
from heavylift.records.plan import Plan
from heavylift.records.receipt import Receipt
from heavylift.state.deployments import open_deployments


def newest_receipt(path: Path, plan: Plan) -> Receipt | None:
    """The newest receipt in the store at `path` of a start of exactly this plan, or None. One of
    the whole model goes before any of some of its layers.

    Raises as `open_deployments`, `sqlite3.Error` and `msgspec.MsgspecError` for a store that cannot
    be read.
    """
    with open_deployments(path) as store:
        kept = store.receipts(
            model=plan.model,
            variant=plan.variant,
            engine=plan.engine,
            rack=plan.rack.label,
            layout=plan.layout,
        )
    of_plan = [receipt for receipt in kept if mismatch(receipt, plan) is None]
    whole = (receipt for receipt in of_plan if layers_of(receipt) is None)
    return next(whole, of_plan[0] if of_plan else None)
