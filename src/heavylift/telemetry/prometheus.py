"""The text format of Prometheus: an engine's own metrics, read by name. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, the text-based format.
"""

from __future__ import annotations

import math
import re
from typing import Final

_LINE: Final = re.compile(
    r"([A-Za-z_:][A-Za-z0-9_:]*)"
    r'(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?'  # a label's value may hold a brace
    r"\s+(\S+)(?:\s+-?\d+)?\s*"
)


def samples(text: str) -> dict[str, tuple[float, ...]]:
    """Metric -> its finite values, one per set of labels. Lines that are none are passed over."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line)
        if match is None:
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        if math.isfinite(value):
            found.setdefault(match[1], []).append(value)
    return {name: tuple(values) for name, values in found.items()}
