"""Data type tables: what a number of a checkpoint takes."""

from __future__ import annotations

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from heavylift.checkpoint.formats import (
    GGUF_NAMES,
    GGUF_NUMBERS,
    GGUF_TYPES,
    SAFETENSORS_TYPES,
    BlockType,
    bytes_of,
    gguf_tensor_bytes,
)


@pytest.mark.parametrize("reference", list(GGML_QUANT_SIZES), ids=lambda kind: kind.name)
def test_every_type_of_the_gguf_package_has_the_same_number_and_sizes(
    reference: GGMLQuantizationType,
) -> None:
    """Number, elements per block and bytes per block are those of llama.cpp's own package."""
    elements, size = GGML_QUANT_SIZES[reference]
    name = GGUF_NAMES[int(reference)]
    assert name == reference.name
    assert GGUF_TYPES[name] == BlockType(elements, size)


def test_only_the_newest_type_is_ahead_of_the_package() -> None:
    """Q2_0 (ggml number 42: 64 weights in a half and 16 bytes) is in ggml, not yet in gguf 0.19."""
    known = {kind.name for kind in GGML_QUANT_SIZES}
    assert set(GGUF_TYPES) - known <= {"Q2_0"}
    assert GGUF_TYPES["Q2_0"] == BlockType(64, 2 + 64 // 4)


def test_withdrawn_numbers_are_not_known() -> None:
    """Numbers that ggml has taken out of use name no type."""
    assert not {4, 5, 31, 32, 33, 36, 37, 38} & set(GGUF_NUMBERS.values())


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        ("F32", (7168, 896), 25_690_112),  # K3's router in GGUF
        ("MXFP4", (3584, 3072, 896), 3584 * 3072 * 896 // 32 * 17),
        ("BF16", (163840, 7168), 2_348_810_240),  # K3's embedding in safetensors
        ("F4", (3,), None),  # half a byte is left over
        ("F6_E3M2", (4, 2), 6),
        ("F8_E8M0", (5,), 5),
        ("U8", (), 1),
    ],
)
def test_bytes_of_a_tensor_follow_from_dtype_and_shape(
    dtype: str, shape: tuple[int, ...], size: int | None
) -> None:
    """Whole blocks are counted; a remainder is refused, not rounded."""
    if size is None:
        with pytest.raises(ValueError, match="3"):
            bytes_of(dtype, shape)
    else:
        assert bytes_of(dtype, shape) == size


def test_a_gguf_row_must_be_whole_blocks() -> None:
    """Blocks run along rows: 16 × 2 has the elements of one MXFP4 block but no whole row."""
    assert bytes_of("MXFP4", (16, 2)) == 17
    with pytest.raises(ValueError, match="16"):
        gguf_tensor_bytes("MXFP4", (16, 2))


def test_types_of_both_formats_agree() -> None:
    """A name that GGUF and safetensors share means the same size in both."""
    shared = set(GGUF_TYPES) & set(SAFETENSORS_TYPES)
    assert shared >= {"F32", "BF16", "F16", "I8"}
    assert all(GGUF_TYPES[name] == SAFETENSORS_TYPES[name] for name in shared)
