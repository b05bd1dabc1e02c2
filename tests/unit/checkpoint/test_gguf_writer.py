"""The GGUF writer: its files are what llama.cpp's own package reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFReader

from heavylift.checkpoint.gguf import Entry, GgufTensor, ValueType
from heavylift.checkpoint.gguf_file import read_gguf
from heavylift.checkpoint.gguf_writer import TensorSpec, build, write_gguf
from heavylift.errors import HeavyliftError

METADATA = {
    "general.architecture": Entry(ValueType.STRING, "kimi-k3"),
    "k.count": Entry(ValueType.UINT32, 7),
    "k.words": Entry(ValueType.STRING, ("a", "ß", "")),
    "k.flags": Entry(ValueType.INT32, (0, 1, 1)),
    "k.ratio": Entry(ValueType.FLOAT32, 0.25),
    "k.on": Entry(ValueType.BOOL, True),
}
TENSORS = (
    TensorSpec(name="a.weight", dims=(64, 3), dtype="MXFP4"),
    TensorSpec(name="b.weight", dims=(5,), dtype="F32"),
    TensorSpec(name="c.weight", dims=(2, 3, 4), dtype="BF16"),
)


def content(tensor: GgufTensor) -> bytes:
    """Bytes that tell tensors apart."""
    return tensor.name[:1].encode() * tensor.bytes


def test_the_reference_reader_reads_what_we_write(tmp_path: Path) -> None:
    """Metadata, shapes, types and data come back through the gguf package."""
    path = tmp_path / "ours.gguf"
    write_gguf(path, build(METADATA, TENSORS), content)
    reader = GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    assert {key: fields[key] for key in METADATA} == {
        "general.architecture": "kimi-k3",
        "k.count": 7,
        "k.words": ["a", "ß", ""],
        "k.flags": [0, 1, 1],
        "k.ratio": 0.25,
        "k.on": True,
    }
    assert [
        (t.name, t.tensor_type.name, list(t.shape), t.data.tobytes()) for t in reader.tensors
    ] == [
        ("a.weight", "MXFP4", [64, 3], b"a" * 102),
        ("b.weight", "F32", [5], b"b" * 20),
        ("c.weight", "BF16", [2, 3, 4], b"c" * 48),
    ]


def test_a_sparse_file_has_the_size_but_not_the_blocks(tmp_path: Path) -> None:
    """Without content a tensor of 2**40 bytes costs the header only."""
    path = tmp_path / "hole.gguf"
    layout = build({}, [TensorSpec(name="t", dims=(2**38,), dtype="F32")])
    write_gguf(path, layout, None)
    status = path.stat()
    assert status.st_size == layout.total_bytes == 2**40 + len(layout.header)
    assert status.st_blocks * 512 < 100_000
    assert read_gguf(path).tensor_bytes == 2**40


def test_a_failed_write_leaves_nothing_and_is_coded(tmp_path: Path) -> None:
    """The file appears whole or not at all."""
    with pytest.raises(HeavyliftError, match="ENV030"):
        write_gguf(tmp_path / "absent" / "x.gguf", build({}, []), None)

    def fail(_tensor: GgufTensor) -> bytes:
        raise OSError(28, "No space left on device")

    with pytest.raises(HeavyliftError, match="No space left on device"):
        write_gguf(tmp_path / "x.gguf", build(METADATA, TENSORS), fail)
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_is_no_whole_block_is_refused() -> None:
    """The mistake shows when the header is built, not when an engine loads the file."""
    with pytest.raises(ValueError, match="33"):
        build({}, [TensorSpec(name="t", dims=(33,), dtype="MXFP4")])


def test_alignment_of_the_metadata_is_kept(tmp_path: Path) -> None:
    """A stated alignment places header and tensors."""
    path = tmp_path / "aligned.gguf"
    metadata = {"general.alignment": Entry(ValueType.UINT32, 256)}
    write_gguf(path, build(metadata, TENSORS), content)
    file = read_gguf(path)
    assert file.data_offset % 256 == 0
    assert [tensor.offset for tensor in file.tensors] == [0, 256, 512]
