"""Rules of the GGUF reader and writer that hold for every file."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.checkpoint.formats import GGUF_TYPES
from heavylift.checkpoint.gguf import Entry, Scalar, ValueType, parse
from heavylift.checkpoint.gguf_writer import TensorSpec, build
from heavylift.errors import HeavyliftError

NAMES = st.text(string.ascii_lowercase + "._{}0", min_size=1, max_size=20)
BY_TYPE: dict[ValueType, st.SearchStrategy[Scalar]] = {
    ValueType.UINT8: st.integers(0, 2**8 - 1),
    ValueType.INT8: st.integers(-(2**7), 2**7 - 1),
    ValueType.UINT16: st.integers(0, 2**16 - 1),
    ValueType.INT16: st.integers(-(2**15), 2**15 - 1),
    ValueType.UINT32: st.integers(0, 2**32 - 1),
    ValueType.INT32: st.integers(-(2**31), 2**31 - 1),
    ValueType.FLOAT32: st.floats(width=32, allow_nan=False),
    ValueType.BOOL: st.booleans(),
    ValueType.STRING: st.text("aZ0 \n\0ĠßΩ漢😀", max_size=20),
    ValueType.UINT64: st.integers(0, 2**64 - 1),
    ValueType.INT64: st.integers(-(2**63), 2**63 - 1),
    ValueType.FLOAT64: st.floats(allow_nan=False),
}


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """A value or an array of any type."""
    kind = draw(st.sampled_from(sorted(BY_TYPE)))
    if draw(st.booleans()):
        return Entry(kind, draw(BY_TYPE[kind]))
    return Entry(kind, tuple(draw(st.lists(BY_TYPE[kind], max_size=5))))


@st.composite
def tensors(draw: st.DrawFn, *, at_least: int = 0) -> list[TensorSpec]:
    """Tensors of distinct names, of any type, with rows of whole blocks."""
    specs = []
    for name in draw(st.lists(NAMES, min_size=at_least, max_size=6, unique=True)):
        dtype = draw(st.sampled_from(sorted(GGUF_TYPES)))
        row = GGUF_TYPES[dtype].elements * draw(st.integers(1, 3))
        rest = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
        specs.append(TensorSpec(name=name, dims=(row, *rest), dtype=dtype))
    return specs


METADATA = st.dictionaries(NAMES.map("k.{}".format), entries(), max_size=6)


def whole(metadata: dict[str, Entry], specs: list[TensorSpec]) -> bytes:
    """A file with zeros for data."""
    layout = build(metadata, specs)
    return layout.header + bytes(layout.total_bytes - len(layout.header))


@given(METADATA, tensors())
def test_what_is_written_is_read_back(metadata: dict[str, Entry], specs: list[TensorSpec]) -> None:
    """parse(build(x)) is x, for every type of value and tensor."""
    file = parse(whole(metadata, specs), path="f")
    assert file.metadata == metadata
    assert file.tensors == build(metadata, specs).tensors


@given(METADATA, tensors(at_least=1), st.data())
def test_a_truncated_file_is_refused_by_code(
    metadata: dict[str, Entry], specs: list[TensorSpec], data: st.DataObject
) -> None:
    """Cut anywhere before the end of its last tensor, a file ends in a coded error."""
    layout = build(metadata, specs)
    last = layout.tensors[-1]
    end = len(layout.header) + last.offset + last.bytes
    cut = data.draw(st.integers(0, end - 1))
    with pytest.raises(HeavyliftError):
        parse(whole(metadata, specs)[:cut], path="f")


@given(METADATA, tensors(), st.data())
def test_a_mutated_file_never_ends_in_another_error(
    metadata: dict[str, Entry], specs: list[TensorSpec], data: st.DataObject
) -> None:
    """Any bytes changed: the file is read or refused by code, nothing else."""
    file = bytearray(whole(metadata, specs))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(file) - 1))
        file[at] = data.draw(st.sampled_from((0, 1, 2, 8, 9, 12, 13, 0x7F, 0x80, 0xFF)))
    with contextlib.suppress(HeavyliftError):
        parse(bytes(file), path="f")


@given(st.binary(max_size=200))
def test_noise_behind_the_magic_never_ends_in_another_error(noise: bytes) -> None:
    """Nor does anything that only begins like a file."""
    with contextlib.suppress(HeavyliftError):
        parse(b"GGUF\x03\0\0\0" + noise, path="f")
