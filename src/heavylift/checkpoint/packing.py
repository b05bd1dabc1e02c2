"""How many weights a stored tensor holds: bytes are what they are, parameters are logical.

Nothing is taken from a format's name. A packed tensor is unpacked by what lies beside it: how many
of its bytes share a scale, how wide its zero points are. Where that does not decide, the config's
own number of bits does; where there is none, the count is not known.

Source: the layouts of compressed-tensors, AutoGPTQ, AutoAWQ, bitsandbytes, MLX, ModelOpt and the
OCP microscaling format: MXFP4 shares a scale among 32 weights, NVFP4 among 16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from heavylift.checkpoint.formats import SAFETENSORS_TYPES
from heavylift.checkpoint.grouping import HeaderGroup

_BITS_PER_BYTE: Final = 8
_MXFP4_BYTES_PER_SCALE: Final = 16
_NVFP4_BYTES_PER_SCALE: Final = 8
_MOST_BITS: Final = 8
_WIDE: Final = {"I32": 32, "U32": 32}
_NARROW: Final = frozenset({"U8", "I8"})
_NOT_WEIGHTS: Final = frozenset({"BOOL", "I64", "U64", "I16", "U16", "I32"})
_FLOATS: Final = frozenset({"F32", "F16", "BF16", "F64"})
_REDUCED_FLOATS: Final = frozenset(
    name for name in SAFETENSORS_TYPES if name.startswith(("F8_", "F6_", "F4"))
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """Weights of one tensor (None: not known), bits of each, and whether they are quantised."""

    parameters: int | None
    bits: float | None
    quantised: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Hints:
    """What a config says of the packing: bits of a weight, weights that share a scale."""

    bits: int | None = None
    group_size: int | None = None


def packing(
    group: HeaderGroup, beside: Mapping[str, HeaderGroup], hints: Hints, four_bit: frozenset[str]
) -> Packing:
    """The packing of a group's tensors. `beside` are the side tensors of the same weight, by the
    end of their name; `four_bit` the ends that say that a byte packs two.
    """
    count = math.prod(group.shape)
    if group.dtype not in SAFETENSORS_TYPES:
        return _plain(count, group.bytes_each, quantised=True)
    if group.dtype in _NARROW:
        return _bytes_packed(count, group, beside, four_bit)
    if group.dtype in _WIDE and (beside or group.dtype == "U32"):
        return _words_packed(count, group, beside, hints)
    if group.dtype in _NOT_WEIGHTS:
        return Packing(parameters=0, bits=None, quantised=False)
    return _plain(count, group.bytes_each, quantised=group.dtype in _REDUCED_FLOATS)


def unpacked(group: HeaderGroup, weights: int) -> Packing:
    """The packing of tensors that are known to hold so many weights each."""
    found = _plain(weights, group.bytes_each, quantised=False)
    is_reduced = group.dtype not in _FLOATS or weights != math.prod(group.shape)
    return Packing(parameters=weights, bits=found.bits, quantised=weights > 0 and is_reduced)


def _plain(count: int, size: int, *, quantised: bool) -> Packing:
    bits = size * _BITS_PER_BYTE / count if count else None
    return Packing(parameters=count, bits=bits, quantised=quantised)


UNREAD: Final = Packing(parameters=None, bits=None, quantised=True)
"""Of weights whose packing nobody described."""


def _bytes_packed(
    count: int, group: HeaderGroup, beside: Mapping[str, HeaderGroup], four_bit: frozenset[str]
) -> Packing:
    """Bytes: two weights in each, or one, as the number of scales tells."""
    two = Packing(parameters=2 * count, bits=4.0, quantised=True)
    if four_bit & beside.keys():
        return two
    for scale in beside.values():
        scales = math.prod(scale.shape)
        if scales and count % scales == 0:
            shared = count // scales
            if scale.dtype in ("U8", "F8_E8M0") and shared == _MXFP4_BYTES_PER_SCALE:
                return two
            if scale.dtype == "F8_E4M3" and shared == _NVFP4_BYTES_PER_SCALE:
                return two
    if group.dtype == "I8":
        return Packing(parameters=count, bits=8.0, quantised=True)
    return UNREAD


def _words_packed(
    count: int, group: HeaderGroup, beside: Mapping[str, HeaderGroup], hints: Hints
) -> Packing:
    """Words of 32 bits: by the zero points, by the scales and the config's group, by its bits."""
    word = _WIDE[group.dtype]
    bits = _bits_by_zeros(beside, word)
    if bits is None:
        bits = _bits_by_scales(count, beside, hints, word)
    if bits is None and hints.bits is not None:
        bits = Fraction(hints.bits)
    if bits is None or not 1 <= bits <= _MOST_BITS:
        return UNREAD
    weights = Fraction(count * word) / bits
    return Packing(parameters=math.floor(weights), bits=float(bits), quantised=True)


def _bits_by_zeros(beside: Mapping[str, HeaderGroup], word: int) -> Fraction | None:
    """A zero point has the bits of a weight, and there is one for every scale."""
    zeros, scales = beside.get("qzeros"), beside.get("scales")
    if zeros is None or scales is None or zeros.dtype not in _WIDE:
        return None
    scale_count = math.prod(scales.shape)
    return Fraction(math.prod(zeros.shape) * word, scale_count) if scale_count else None


def _bits_by_scales(
    count: int, beside: Mapping[str, HeaderGroup], hints: Hints, word: int
) -> Fraction | None:
    """Words for each scale, over the weights that share one."""
    scales = beside.get("scales") or beside.get("weight_scale")
    if scales is None or hints.group_size is None:
        return None
    scale_count = math.prod(scales.shape)
    if not scale_count:
        return None
    return Fraction(count * word, scale_count * hints.group_size)
