"""Bytes, GiB, GB and token counts: reading and showing.

The only place that knows 2**30. Memory is shown in GiB (2**30); nameplates, disks and networks in
GB (10**9). A bare "G" is refused because it has meant both.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
TIB: Final = 2**40
GB: Final = 10**9
TB: Final = 10**12

_BYTE_UNITS: Final = {
    "": 1,
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

_QUANTITY: Final = re.compile(
    r"\s*([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:_[0-9]+)*)(\.[0-9]+)?\s*([A-Za-z]*)\s*"
)


def plain_width(text: str) -> str:
    """A text with the letters, digits and signs of East Asian keyboards (`８ｘＢ`) as the plain
    ones they stand for.
    """
    return unicodedata.normalize("NFKC", text)


def _quantity(text: str, units: Mapping[str, int]) -> Fraction:
    match = _QUANTITY.fullmatch(plain_width(text))
    if match is None or match[3].lower() not in units:
        raise ValueError(text)
    number = match[1].replace(",", "").replace("_", "") + (match[2] or "")
    return Fraction(number) * units[match[3].lower()]


def parse_bytes(text: str) -> int:
    """Bytes from text such as `288 GB`, `190.97GiB` or `884,736`, to the nearest byte.

    Raises `ValueError` for an unknown or ambiguous unit (a bare `G`) or a negative number.
    """
    return round(_quantity(text, _BYTE_UNITS))


def parse_tokens(text: str) -> int:
    """Tokens from text such as `32768`, `131,072`, `128k` (131,072) or `1.5M` (1,572,864).

    Raises `ValueError` for an unknown unit or a result that is not a whole, positive number.
    """
    value = _quantity(text, _TOKEN_UNITS)
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


def format_gb(value_bytes: int, digits: int = 1) -> str:
    """`value_bytes` in decimal GB without the unit, for nameplates, disks and networks."""
    return f"{value_bytes / GB:,.{digits}f}"
