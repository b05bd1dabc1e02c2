"""The text format of Prometheus: an engine's own metrics, read by name. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, the text-based format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

_LINE: Final = re.compile(
    r"([A-Za-z_:][A-Za-z0-9_:]*)"
    r'(\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?'  # a label's value may hold a brace
    r"\s+(\S+)(?:\s+-?\d+)?\s*"
)


_BOUND: Final = re.compile(r'[{,]\s*le="([^"]*)"')

Buckets = tuple[tuple[float, float], ...]
"""A histogram: upper bounds, rising, the last one infinite, each with how many lie at or below."""


def samples(text: str) -> dict[str, tuple[float, ...]]:
    """Metric -> its finite values, one per set of labels. Lines that are none are passed over."""
    found: dict[str, list[float]] = {}
    for name, _, value in _lines(text):
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def histogram(text: str, name: str) -> Buckets | None:
    """The histogram of that name, summed over its sets of labels; None when it is not there."""
    counts: dict[float, float] = {}
    for metric, labels, value in _lines(text):
        bound = _BOUND.search(labels) if metric == f"{name}_bucket" else None
        number = None if bound is None else _number(bound[1])
        if number is not None:
            counts[number] = counts.get(number, 0.0) + value
    # Without the last bucket nobody knows how many there are.
    return tuple(sorted(counts.items())) if math.inf in counts else None


def _lines(text: str) -> Iterator[tuple[str, str, float]]:
    """Name, labels and finite value of each sample."""
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line)
        value = None if match is None else _number(match[3])
        if match is not None and value is not None and math.isfinite(value):
            yield match[1], match[2] or "", value


def _number(words: str) -> float | None:
    try:
        return float(words)
    except ValueError:
        return None
