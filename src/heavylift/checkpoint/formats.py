"""Sizes of the data types of checkpoint files: elements per block and bytes per block.

GGUF types are blocks of quantised weights with their scales inside; safetensors types are plain
numbers, a few of them narrower than a byte. Source: the type table of llama.cpp's ggml as shipped
in xllamacpp 2026.10.11549, and the dtype list of safetensors 0.8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class BlockType:
    """A data type: `elements` numbers take `bytes` bytes, and neither can be divided."""

    elements: int
    bytes: int

    def size(self, count: int) -> int:
        """Bytes of `count` elements. Raises `ValueError` unless they fill whole blocks."""
        blocks, rest = divmod(count, self.elements)
        if rest or count < 0:
            raise ValueError(count)
        return blocks * self.bytes


# GGUF type name -> (number in the file, elements per block, bytes per block). The numbers that are
# missing were withdrawn by ggml and are refused by it.
_GGUF: Final = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34),
    "Q8_1": (9, 32, 40),
    "Q2_K": (10, 256, 84),
    "Q3_K": (11, 256, 110),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
    "Q8_K": (15, 256, 292),
    "IQ2_XXS": (16, 256, 66),
    "IQ2_XS": (17, 256, 74),
    "IQ3_XXS": (18, 256, 98),
    "IQ1_S": (19, 256, 50),
    "IQ4_NL": (20, 32, 18),
    "IQ3_S": (21, 256, 110),
    "IQ2_S": (22, 256, 82),
    "IQ4_XS": (23, 256, 136),
    "I8": (24, 1, 1),
    "I16": (25, 1, 2),
    "I32": (26, 1, 4),
    "I64": (27, 1, 8),
    "F64": (28, 1, 8),
    "IQ1_M": (29, 256, 56),
    "BF16": (30, 1, 2),
    "TQ1_0": (34, 256, 54),
    "TQ2_0": (35, 256, 66),
    "MXFP4": (39, 32, 17),
    "NVFP4": (40, 64, 36),
    "Q1_0": (41, 128, 18),
    "Q2_0": (42, 64, 18),
}

GGUF_TYPES: Final = {name: BlockType(elements, size) for name, (_, elements, size) in _GGUF.items()}
GGUF_NUMBERS: Final = {name: number for name, (number, _, _) in _GGUF.items()}
GGUF_NAMES: Final = {number: name for name, number in GGUF_NUMBERS.items()}

SAFETENSORS_TYPES: Final = {
    "BOOL": BlockType(1, 1),
    "F4": BlockType(2, 1),
    "F6_E2M3": BlockType(4, 3),
    "F6_E3M2": BlockType(4, 3),
    "U8": BlockType(1, 1),
    "I8": BlockType(1, 1),
    "F8_E5M2": BlockType(1, 1),
    "F8_E4M3": BlockType(1, 1),
    "F8_E8M0": BlockType(1, 1),
    "F8_E4M3FNUZ": BlockType(1, 1),
    "F8_E5M2FNUZ": BlockType(1, 1),
    "I16": BlockType(1, 2),
    "U16": BlockType(1, 2),
    "F16": BlockType(1, 2),
    "BF16": BlockType(1, 2),
    "I32": BlockType(1, 4),
    "U32": BlockType(1, 4),
    "F32": BlockType(1, 4),
    "C64": BlockType(1, 8),
    "F64": BlockType(1, 8),
    "I64": BlockType(1, 8),
    "U64": BlockType(1, 8),
}

# Names that both formats use mean the same there.
_ALL: Final = {**SAFETENSORS_TYPES, **GGUF_TYPES}


def bytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a tensor of either format, stored without gaps.

    Raises `KeyError` for an unknown type and `ValueError` for elements that do not fill whole
    blocks.
    """
    return _ALL[dtype].size(math.prod(shape))


def gguf_tensor_bytes(dtype: str, dims: Sequence[int]) -> int:
    """Bytes of a GGUF tensor of type `dtype`; `dims[0]` is the row, which blocks run along.

    Raises `KeyError` for an unknown type and `ValueError` for a row that is not whole blocks.
    """
    kind = GGUF_TYPES[dtype]
    row = dims[0] if dims else 1
    return kind.size(row) * math.prod(dims[1:])
