"""What no layout can undercut: racks that are too small are found before a layout is tried."""

from __future__ import annotations

from heavylift.plan.arithmetic import ceil_div
from heavylift.plan.subject import Subject
from heavylift.plan.weights import least_stage_bytes
from heavylift.records.plan import Layout


def least_weights_bytes(subject: Subject) -> int:
    """The least weights that some GPU of the rack must hold: every tensor lies on one at least.

    Formula: what a single rank would hold / GPUs. Copies and padding of wider layouts only add.
    """
    whole = subject.knowledge.remembered(
        ("one_rank", subject.weights_key), lambda: least_stage_bytes(subject, Layout())
    )
    return ceil_div(whole, subject.rack.gpu_count)


def cannot_hold(subject: Subject) -> bool:
    """True when the weights alone are more than the cards show, however they are dealt."""
    return short_of_weights(subject) > 0


def short_of_weights(subject: Subject) -> int:
    """What each card lacks at least for the weights alone, bytes; not above zero where they fit."""
    count = subject.rack.gpu_count
    return least_weights_bytes(subject) - subject.visible_bytes_total // count
