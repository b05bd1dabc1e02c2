"""The GGUF reader: sound files read as written, unsound ones refused by code."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from heavylift.checkpoint.gguf import Entry, GgufFile, ValueType, parse
from heavylift.checkpoint.gguf_file import read_gguf
from heavylift.cli.text import text as text_of
from heavylift.errors import HeavyliftError


def text(value: str | bytes) -> bytes:
    """A GGUF string."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def number_entry(key: str | bytes, value: int = 1) -> bytes:
    """A metadata entry with a UINT32."""
    return text(key) + struct.pack("<II", ValueType.UINT32, value)


def row(name: str = "t", dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    """A row of the tensor table; kind 0 is F32."""
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def file_of(
    *,
    entries: list[bytes] | None = None,
    rows: list[bytes] | None = None,
    version: int = 3,
    entry_count: int | None = None,
    row_count: int | None = None,
    data: int = 128,
) -> bytes:
    """A GGUF file from its parts; counts may lie."""
    entries, rows = entries or [], rows or []
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(rows) if row_count is None else row_count,
        len(entries) if entry_count is None else entry_count,
    )
    body = head + b"".join(entries) + b"".join(rows)
    return body + bytes(-len(body) % 32) + bytes(data)


def array_entry(kind: int, count: int, content: bytes = b"") -> bytes:
    """An array entry whose count may lie."""
    return text("a") + struct.pack("<IIQ", ValueType.ARRAY, kind, count) + content


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """A file written by llama.cpp's own package, with every kind of value."""
    path = tmp_path / "reference.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint8("k.u8", 200)
    writer.add_int8("k.i8", -3)
    writer.add_uint16("k.u16", 65535)
    writer.add_int16("k.i16", -300)
    writer.add_uint32("k.u32", 2**32 - 1)
    writer.add_int32("k.i32", -(2**31))
    writer.add_float32("k.f32", 0.5)
    writer.add_bool("k.bool", val=True)
    writer.add_string("k.string", "Ġ")
    writer.add_uint64("k.u64", 2**64 - 1)
    writer.add_int64("k.i64", -(2**63))
    writer.add_float64("k.f64", 1e300)
    writer.add_array("k.words", ["a", "", "ß"])
    writer.add_array("k.numbers", [1, -2, 3])
    writer.add_tensor("first.weight", np.ones((4, 64), dtype=np.float32))
    writer.add_tensor("second.weight", np.ones((3,), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_of_the_reference_writer_is_read_back(reference: Path) -> None:
    """All value types come back with their type and value."""
    metadata = read_gguf(reference).metadata
    assert metadata["general.architecture"] == Entry(ValueType.STRING, "llama")
    assert {key: entry.value for key, entry in metadata.items() if key.startswith("k.")} == {
        "k.u8": 200,
        "k.i8": -3,
        "k.u16": 65535,
        "k.i16": -300,
        "k.u32": 2**32 - 1,
        "k.i32": -(2**31),
        "k.f32": 0.5,
        "k.bool": True,
        "k.string": "Ġ",
        "k.u64": 2**64 - 1,
        "k.i64": -(2**63),
        "k.f64": 1e300,
        "k.words": ("a", "", "ß"),
        "k.numbers": (1, -2, 3),
    }


def test_tensor_table_of_the_reference_writer_is_read_back(reference: Path) -> None:
    """Names, dimensions in ggml's order, types, sizes and places."""
    file = read_gguf(reference)
    assert [(t.name, t.dims, t.dtype, t.offset, t.bytes) for t in file.tensors] == [
        ("first.weight", (64, 4), "F32", 0, 1024),
        ("second.weight", (3,), "F16", 1024, 6),
    ]
    assert file.tensor_bytes == 1030
    assert file.data_offset % file.alignment == 0


def test_bytes_that_are_not_utf8_survive_in_strings() -> None:
    """A vocabulary may hold raw bytes; copying it must not change them."""
    entry = text("k") + struct.pack("<I", ValueType.STRING) + text(b"\xff\xfe")
    value = parse(file_of(entries=[entry]), path="f").entry("k").value
    assert isinstance(value, str)
    assert value.encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_a_missing_key_is_named() -> None:
    """Asking for a key that is not there is a coded error, never a default."""
    with pytest.raises(HeavyliftError) as caught:
        parse(file_of(), path="f").entry("general.name")
    assert (caught.value.code, caught.value.params["key"]) == ("CKPT062", "general.name")


UNSOUND: dict[str, tuple[str, bytes]] = {
    "empty": ("CKPT050", b""),
    "other magic": ("CKPT050", b"PK\x03\x04" + bytes(60)),
    "magic only": ("CKPT052", b"GGUF"),
    "version 1": ("CKPT051", file_of(version=1)),
    "big-endian": ("CKPT051", file_of(version=3 << 24)),
    "more tensors than the limit": ("CKPT053", file_of(row_count=2**63)),
    "more tensors than bytes": ("CKPT052", file_of(row_count=1 << 18)),
    "more entries than the limit": ("CKPT053", file_of(entry_count=2**40)),
    "more entries than bytes": ("CKPT052", file_of(entry_count=1 << 16)),
    "array count lies": ("CKPT053", file_of(entries=[array_entry(0, 2**62)])),
    "array count beyond the end": ("CKPT052", file_of(entries=[array_entry(0, 1 << 18)])),
    "string array beyond the end": ("CKPT052", file_of(entries=[array_entry(8, 1 << 18)])),
    "array of arrays": ("CKPT054", file_of(entries=[array_entry(9, 1, bytes(64))])),
    "unknown value type": ("CKPT054", file_of(entries=[text("a") + struct.pack("<I", 13)])),
    "string too long": (
        "CKPT053",
        file_of(entries=[text("a") + struct.pack("<IQ", ValueType.STRING, 2**40)]),
    ),
    "string beyond the end": (
        "CKPT052",
        file_of(entries=[text("a") + struct.pack("<IQ", ValueType.STRING, 2**20)]),
    ),
    "key twice": ("CKPT055", file_of(entries=[number_entry("a"), number_entry("a")])),
    "empty key": ("CKPT060", file_of(entries=[number_entry("")])),
    "key of raw bytes": ("CKPT060", file_of(entries=[number_entry(b"\xff")])),
    "alignment zero": ("CKPT059", file_of(entries=[number_entry("general.alignment", 0)])),
    "alignment 24": ("CKPT059", file_of(entries=[number_entry("general.alignment", 24)])),
    "alignment of another type": (
        "CKPT059",
        file_of(entries=[text("general.alignment") + struct.pack("<Ii", ValueType.INT32, 32)]),
    ),
    "tensor twice": ("CKPT055", file_of(rows=[row(), row()])),
    "five dimensions": ("CKPT057", file_of(rows=[row(dims=(1, 1, 1, 1, 1))])),
    "elements overflow": ("CKPT057", file_of(rows=[row(dims=(2**40, 2**40))])),
    "row is no whole block": ("CKPT057", file_of(rows=[row(dims=(33,), kind=39)])),
    "withdrawn type": ("CKPT056", file_of(rows=[row(kind=4)])),
    "unknown type": ("CKPT056", file_of(rows=[row(kind=1000)])),
    "misaligned": ("CKPT058", file_of(rows=[row(offset=4)])),
    "overlap": ("CKPT058", file_of(rows=[row(), row("u", offset=64)], data=512)),
    "tensor beyond the end": ("CKPT052", file_of(rows=[row(dims=(1024,))])),
    "tensor name of 64 bytes": ("CKPT053", file_of(rows=[row("n" * 64)])),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_an_unsound_file_is_refused_by_code(case: str) -> None:
    """Each kind of damage has its own code and a sentence that names the file."""
    code, data = UNSOUND[case]
    with pytest.raises(HeavyliftError) as caught:
        parse(data, path="some.gguf")
    assert caught.value.code == code
    assert text_of(f"error.{code}", **caught.value.params).startswith("some.gguf")


def test_a_lying_count_in_a_huge_sparse_file_allocates_nothing(tmp_path: Path) -> None:
    """The room behind a header can be a terabyte of hole: limits hold, not only the file's end."""
    path = tmp_path / "hole.gguf"
    path.write_bytes(file_of(entries=[array_entry(0, 2**38)]))
    with path.open("r+b") as file:
        file.truncate(2**40)
    tracemalloc.start()
    with pytest.raises(HeavyliftError, match="CKPT053"):
        read_gguf(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: folder / "absent.gguf",
        lambda folder: folder,
    ],
    ids=["absent", "a folder"],
)
def test_a_path_that_cannot_be_read_is_a_coded_error(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    """The reason of the operating system is kept."""
    with pytest.raises(HeavyliftError, match="CKPT061"):
        read_gguf(make(tmp_path))


def test_an_empty_file_is_not_a_gguf_file(tmp_path: Path) -> None:
    """An empty file cannot be mapped, which must not show."""
    path = tmp_path / "empty.gguf"
    path.touch()
    with pytest.raises(HeavyliftError, match="CKPT050"):
        read_gguf(path)


def test_an_empty_file_of_the_format_has_no_tensors() -> None:
    """No entries and no tensors are a sound file."""
    file = parse(file_of(data=0), path="f")
    assert file == GgufFile(
        version=3, metadata={}, tensors=(), alignment=32, data_offset=file.data_offset
    )
