"""How a quantised linear layer is stored: the tensors that take the place of its weight.

A scheme turns a matrix of `rows` outputs and `columns` inputs into packed numbers and their scales.
Sources: compressed-tensors, AutoAWQ, GPTQModel, bitsandbytes and ModelOpt as vLLM 0.32.0 reads
their files, and the FP8 blocks of DeepSeek-V3's own files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from heavylift.checkpoint.formats import GGUF_TYPES, bytes_of
from heavylift.facts.expressions import evaluate
from heavylift.facts.schema import QuantisedFacts


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor of a quantised layer.

    `shape` is written in `rows`, `columns` and `group`; `row_axis` and `column_axis` say where the
    outputs and inputs went (None = the tensor is not cut along them). `params` = weights per
    element; 0 for scales.
    """

    suffix: str
    dtype: str
    shape: tuple[str, ...]
    row_axis: int | None = None
    column_axis: int | None = None
    params: int = 0

    def axis(self, base_axis: int) -> int | None:
        """The axis of this tensor that a cut of the matrix along `base_axis` meets."""
        return self.row_axis if base_axis == 0 else self.column_axis

    def sizes(self, rows: int, columns: int, group: int) -> tuple[int, ...]:
        """The shape for a matrix. Raises ExpressionError where it does not come out whole."""
        names = {"rows": rows, "columns": columns, "group": group}
        return tuple(evaluate(size, names) for size in self.shape)


def _matrix(suffix: str, dtype: str, columns: str = "columns", params: int = 0) -> Piece:
    return Piece(suffix, dtype, ("rows", columns), 0, 1, params)


def _single(suffix: str, dtype: str = "F32") -> Piece:
    return Piece(suffix, dtype, ("1",))


_PER_ROW: Final = Piece("weight_scale", "F32", ("rows", "1"), 0)
_NVFP4_SCALES: Final = _matrix("weight_scale", "F8_E4M3", "ceil(columns/16)")
_TRANSPOSED_SCALES: Final = Piece("scales", "F16", ("ceil(columns/group)", "rows"), 1, 0)
_ZEROS: Final = Piece("qzeros", "I32", ("ceil(columns/group)", "ceil(rows/8)"), 1, 0)

GGUF_SCHEME: Final = "gguf-"
"""What schemes begin with that store a matrix in blocks of a GGUF type: `gguf-Q8_0`."""

SCHEMES: Final[Mapping[str, tuple[Piece, ...]]] = {
    "fp8": (
        _matrix("weight", "F8_E4M3", params=1),
        _single("weight_scale"),
        _single("input_scale"),
    ),
    "fp8-channel": (_matrix("weight", "F8_E4M3", params=1), _PER_ROW),
    "fp8-block": (
        _matrix("weight", "F8_E4M3", params=1),
        Piece("weight_scale_inv", "F32", ("ceil(rows/group)", "ceil(columns/group)"), 0, 1),
    ),
    "fp8-block-e8m0": (
        _matrix("weight", "F8_E4M3", params=1),
        Piece("scale", "F8_E8M0", ("ceil(rows/group)", "ceil(columns/group)"), 0, 1),
    ),
    "mxfp4-e8m0": (
        _matrix("weight", "I8", "columns/2", 2),
        _matrix("scale", "F8_E8M0", "columns/32"),
    ),
    "int8-channel": (_matrix("weight", "I8", params=1), _PER_ROW),
    "nvfp4": (
        _matrix("weight", "U8", "columns/2", 2),
        _NVFP4_SCALES,
        _single("weight_scale_2"),
        _single("input_scale"),
    ),
    "nvfp4-weight-only": (
        _matrix("weight", "U8", "columns/2", 2),
        _NVFP4_SCALES,
        _single("weight_scale_2"),
    ),
    "nvfp4-packed": (
        _matrix("weight_packed", "U8", "columns/2", 2),
        _NVFP4_SCALES,
        _single("weight_global_scale"),
        _single("input_global_scale"),
    ),
    "mxfp4-packed": (
        _matrix("weight_packed", "U8", "columns/2", 2),
        _matrix("weight_scale", "U8", "columns/32"),
    ),
    "mxfp8": (
        _matrix("weight", "F8_E4M3", params=1),
        _matrix("weight_scale", "U8", "columns/32"),
    ),
    "int4-packed": (
        _matrix("weight_packed", "I32", "columns/8", 8),
        _matrix("weight_scale", "BF16", "ceil(columns/group)"),
    ),
    "int4-awq": (
        Piece("qweight", "I32", ("columns", "ceil(rows/8)"), 1, 0, 8),
        _ZEROS,
        _TRANSPOSED_SCALES,
    ),
    "int4-gptq": (
        Piece("qweight", "I32", ("columns/8", "rows"), 1, 0, 8),
        _ZEROS,
        _TRANSPOSED_SCALES,
        Piece("g_idx", "I32", ("columns",), None, 0),
    ),
    "int8-gptq": (
        Piece("qweight", "I32", ("columns/4", "rows"), 1, 0, 4),
        Piece("qzeros", "I32", ("ceil(columns/group)", "ceil(rows/4)"), 1, 0),
        _TRANSPOSED_SCALES,
        Piece("g_idx", "I32", ("columns",), None, 0),
    ),
    "int4-bitsandbytes": (
        Piece("weight", "U8", ("rows*columns/2", "1"), 0, 0, 2),
        Piece("weight.absmax", "U8", ("ceil(rows*columns/64)",), 0, 0),
        Piece("weight.nested_absmax", "F32", ("ceil(rows*columns/16384)",), 0, 0),
        Piece("weight.quant_map", "F32", ("16",)),
        Piece("weight.nested_quant_map", "F32", ("256",)),
    ),
}
"""Scheme name -> the tensors of one layer, the one with the weights first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTensor:
    """A tensor of a quantised layer, ready to be counted. `axis` None = it is never cut."""

    suffix: str
    dtype: str
    shape: tuple[int, ...]
    axis: int | None
    bytes: int
    params: int


@lru_cache(maxsize=4096)
def stored(scheme: str, shape: tuple[int, ...], axis: int, group: int) -> tuple[StoredTensor, ...]:
    """The tensors in which `scheme` stores a matrix of `shape`, cut along `axis` by ranks.

    Dimensions before the last two (experts in one tensor) are kept. Raises KeyError for an unknown
    scheme, ExpressionError where the matrix does not fill it.
    """
    *stack, rows, columns = shape
    base = axis - len(stack)
    found = []
    for piece in _pieces(scheme):
        sizes = (*stack, *piece.sizes(rows, columns, group))
        cut = piece.axis(base) if base >= 0 else None
        found.append(
            StoredTensor(
                suffix=piece.suffix,
                dtype=piece.dtype,
                shape=sizes,
                axis=None if cut is None else cut + len(stack),
                bytes=bytes_of(piece.dtype, sizes),
                params=min(math.prod(sizes) * piece.params, math.prod(shape)),
            )
        )
    return tuple(found)


def _pieces(scheme: str) -> tuple[Piece, ...]:
    """The tensors of a scheme; those of a GGUF type are one, scales and all."""
    kind = scheme.removeprefix(GGUF_SCHEME)
    if kind == scheme:
        return SCHEMES[scheme]
    if kind not in GGUF_TYPES:
        raise KeyError(scheme)
    return (_matrix("weight", kind, params=1),)


def scheme_of(
    rules: Iterable[QuantisedFacts], name: str, layer: int | None
) -> QuantisedFacts | None:
    """The first rule that takes a tensor of the family's list in a layer, or None."""
    return next(
        (
            rule
            for rule in rules
            if (not rule.layers or layer in rule.layers)
            and any(matches(pattern, name) for pattern in rule.tensors)
        ),
        None,
    )


def matches(pattern: str, name: str) -> bool:
    """True when `name` is `pattern`, in which `*` stands for any part."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))
