"""The text format of Prometheus: an engine's own metrics, read by name. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, the text-based format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

_LINE: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{[^}]*\})?\s+(\S+)(?:\s+\d+)?\s*")


def totals(text: str) -> dict[str, float]:
    """Each metric's value, summed over its labels. Lines that are none are passed over."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line)
        if match is None:
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        if math.isfinite(value):
            found[match[1]] = found.get(match[1], 0.0) + value
    return found


def first_of(values: dict[str, float], names: Iterable[str]) -> float | None:
    """The value of the first name that is there; None when none is."""
    return next((values[name] for name in names if name in values), None)
