"""Bytes, GiB, GB and token counts: parsing and formatting.

The only place that knows 2**30. Memory is shown in GiB (2**30); nameplates, disks and networks in
GB (10**9). A bare "G" is refused because it has meant both.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
TIB: Final = 2**40
GB: Final = 10**9
TB: Final = 10**12

_BYTE_UNITS: Final = {
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": 10**3,
    "mb": 10**6,
    "gb": GB,
    "tb": TB,
}
# Token counts follow the field's habit: "128k" is 131,072 and "1M" is 1,048,576, because every
# published context length written that way is the power of two.
_TOKEN_UNITS: Final = {"": 1, "k": KIB, "m": MIB}

_QUANTITY: Final = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", re.ASCII)


def _split(text: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return Fraction(match[1].replace(",", "").replace("_", "")), match[2].lower()


def parse_bytes(text: str) -> int:
    """Bytes from text such as `288 GB`, `190.97GiB` or `884736`.

    Raises `ValueError` for an unknown or ambiguous unit (a bare `G`), a negative number or a
    fraction of a byte.
    """
    number, unit = _split(text)
    if unit not in _BYTE_UNITS and unit != "":
        raise ValueError(text)
    value = number * _BYTE_UNITS[unit or "b"]
    if value.denominator != 1:
        # "190.97 GiB" is no whole number of bytes; the nearest byte is what was meant.
        return round(value)
    return value.numerator


def parse_tokens(text: str) -> int:
    """Tokens from text such as `32768`, `128k` (131,072) or `1M` (1,048,576).

    Raises `ValueError` for an unknown unit or a result that is not a whole, positive number.
    """
    number, unit = _split(text)
    if unit not in _TOKEN_UNITS:
        raise ValueError(text)
    value = number * _TOKEN_UNITS[unit]
    if value.denominator != 1 or value < 1:
        raise ValueError(text)
    return value.numerator


def gib(value_bytes: int) -> float:
    """GiB (2**30 bytes) as a float, for display and ratios only."""
    return value_bytes / GIB


def format_gib(value_bytes: int, digits: int = 2) -> str:
    """`value_bytes` in GiB without the unit, e.g. `190.97`."""
    return f"{value_bytes / GIB:,.{digits}f}"


def format_bytes(value_bytes: int) -> str:
    """Bytes that read back exactly: `884,736 B`."""
    return f"{value_bytes:,} B"


def format_tokens(tokens: int) -> str:
    """A short token count that reads back exactly: `1M`, `32k`, `2,389`.

    `parse_tokens(format_tokens(n)) == n` for every positive n.
    """
    for unit, size in (("M", MIB), ("k", KIB)):
        if tokens >= size and tokens % size == 0:
            return f"{tokens // size:,}{unit}"
    return f"{tokens:,}"


def format_count(value: int) -> str:
    """A large count in the field's short form: `2.23 M`, `927 k`, `512`."""
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if value >= 10 * size:
            return f"{value / size:,.0f} {unit}"
        if value >= size:
            return f"{value / size:,.2f} {unit}"
    return f"{value:,}"


def format_gb(value_bytes: int, digits: int = 1) -> str:
    """`value_bytes` in decimal GB without the unit, for nameplates, disks and networks."""
    return f"{value_bytes / GB:,.{digits}f}"
