"""Whole-number division upwards: how engines count blocks, ranks and columns."""

from __future__ import annotations


def ceil_div(value: int, divisor: int) -> int:
    """`value` / `divisor`, rounded up."""
    return -(-value // divisor)


def round_up(value: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `value`."""
    return ceil_div(value, multiple) * multiple
