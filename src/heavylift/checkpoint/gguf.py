"""GGUF headers: metadata and tensor table, from the bytes of a file.

The reader trusts nothing: every count and length is held against what is left of the file and
against a limit before anything is allocated, so that a damaged or hostile file ends in a coded
error. It is as strict as ggml's own reader, which refuses what this one refuses.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from heavylift.checkpoint.formats import GGUF_NAMES, GGUF_TYPES, gguf_tensor_bytes
from heavylift.errors import HeavyliftError

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32
ALIGNMENT_KEY: Final = "general.alignment"

MAX_ENTRIES: Final = 1 << 16
MAX_TENSORS: Final = 1 << 18
MAX_KEY_BYTES: Final = (1 << 16) - 1
MAX_STRING_BYTES: Final = 1 << 26
# All values of the metadata together. The largest vocabularies known (with tokens, types, scores
# and merges) hold about 1.3 million.
MAX_VALUES: Final = 1 << 21
# ggml's own limits for a tensor: a name of 63 bytes, four dimensions, 2**63-1 elements.
MAX_TENSOR_NAME_BYTES: Final = 63
MAX_DIMS: Final = 4
MAX_ELEMENTS: Final = 2**63 - 1
MAX_ALIGNMENT: Final = 1 << 20

# The smallest bytes an entry can take, so that a lying count is refused before it is looped over.
_MIN_ENTRY_BYTES: Final = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES: Final = 8 + 1 + 4 + 4 + 8


class ValueType(IntEnum):
    """Types of metadata values, by their number in the file."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


# struct codes of the values of fixed size
STRUCT_CODES: Final = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata value. `type` is the type of the items when `value` is a tuple (an array).

    Strings keep bytes that are not UTF-8 as surrogates, so that a copied vocabulary is unchanged.
    """

    type: ValueType
    value: Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufTensor:
    """One row of the tensor table.

    `dims` are in ggml's order, the row first. `offset` counts from `GgufFile.data_offset`.
    """

    name: str
    dims: tuple[int, ...]
    dtype: str
    offset: int
    bytes: int

    @property
    def elements(self) -> int:
        """Numbers the tensor holds."""
        return math.prod(self.dims)


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufFile:
    """What the header of a file says. `data_offset` is where tensor data begins."""

    version: int
    metadata: dict[str, Entry]
    tensors: tuple[GgufTensor, ...]
    alignment: int
    data_offset: int

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, without padding."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def end(self) -> int:
        """The byte after the last one of any tensor: a shorter file is truncated."""
        if not self.tensors:
            return 0
        return self.data_offset + max(tensor.offset + tensor.bytes for tensor in self.tensors)

    def entry(self, key: str) -> Entry:
        """The metadata entry of that key. Raises CKPT062 when the file has none."""
        if key not in self.metadata:
            raise HeavyliftError("CKPT062", {"key": key})
        return self.metadata[key]


def parse(data: bytes | memoryview, *, path: str, whole: bool = True) -> GgufFile:
    """The header of the GGUF file whose bytes are `data`; `path` only names it in errors.

    `whole`: the data are all of the file, so that tensors beyond their end make it truncated.
    Otherwise they are its first bytes, and CKPT052 names how many the header needs at least.

    Raises `HeavyliftError` CKPT050 to CKPT060 for anything that is not a sound file.
    """
    with memoryview(data) as view, view.cast("B") as octets:
        return _Reader(octets, path, whole=whole).file()


class _Reader:
    """A cursor over the file that never reads past its end."""

    def __init__(self, view: memoryview, path: str, *, whole: bool) -> None:
        self._view = view
        self._whole = whole
        self._path = path
        self._at = 0
        self._values = 0

    def file(self) -> GgufFile:
        if bytes(self._view[:4]) != MAGIC:
            raise self._error("CKPT050")
        self._at = 4
        version = self._number("I")
        if version not in VERSIONS:
            raise self._error("CKPT051", version=version)
        tensor_count = self._count("tensors", MAX_TENSORS, _MIN_TENSOR_BYTES)
        entry_count = self._count("entries", MAX_ENTRIES, _MIN_ENTRY_BYTES)
        metadata = self._metadata(entry_count)
        alignment = self._alignment(metadata)
        rows = self._rows(tensor_count)
        data_offset = -(-self._at // alignment) * alignment
        self._check_places(rows, alignment, data_offset)
        return GgufFile(
            version=version,
            metadata=metadata,
            tensors=rows,
            alignment=alignment,
            data_offset=data_offset,
        )

    # --- parts -----------------------------------------------------------------------------------

    def _metadata(self, count: int) -> dict[str, Entry]:
        metadata: dict[str, Entry] = {}
        for _ in range(count):
            key = self._name("key", MAX_KEY_BYTES)
            if key in metadata:
                raise self._error("CKPT055", what="key", name=key)
            metadata[key] = self._entry(key)
        return metadata

    def _entry(self, key: str) -> Entry:
        kind = self._value_type(key)
        if kind is not ValueType.ARRAY:
            return Entry(kind, self._values_of(kind, 1, key)[0])
        item = self._value_type(key)
        # ggml knows no arrays of arrays; a file with one is refused, not recursed into.
        if item is ValueType.ARRAY:
            raise self._error("CKPT054", key=key, type=int(item))
        return Entry(item, self._values_of(item, self._number("Q"), key))

    def _value_type(self, key: str) -> ValueType:
        number = self._number("I")
        try:
            return ValueType(number)
        except ValueError as error:
            raise self._error("CKPT054", key=key, type=number) from error

    def _values_of(self, kind: ValueType, count: int, key: str) -> tuple[Scalar, ...]:
        self._values += count
        if self._values > MAX_VALUES:
            raise self._error("CKPT053", what=key, count=count, limit=MAX_VALUES)
        if kind is ValueType.STRING:
            self._need(count * 8)
            return tuple([self._string(MAX_STRING_BYTES, key) for _ in range(count)])
        code = STRUCT_CODES[kind]
        layout = struct.Struct(f"<{count}{code}")
        self._need(layout.size)
        values: tuple[Scalar, ...] = layout.unpack_from(self._view, self._at)
        self._at += layout.size
        return values

    def _alignment(self, metadata: dict[str, Entry]) -> int:
        entry = metadata.get(ALIGNMENT_KEY)
        if entry is None:
            return DEFAULT_ALIGNMENT
        value = entry.value
        sound = entry.type is ValueType.UINT32 and isinstance(value, int) and value.bit_count() == 1
        if not sound or not isinstance(value, int) or value > MAX_ALIGNMENT:
            raise self._error("CKPT059", value=str(value)[:40])
        return value

    def _rows(self, count: int) -> tuple[GgufTensor, ...]:
        rows = []
        seen = set()
        for _ in range(count):
            row = self._row()
            if row.name in seen:
                raise self._error("CKPT055", what="tensor", name=row.name)
            seen.add(row.name)
            rows.append(row)
        return tuple(rows)

    def _row(self) -> GgufTensor:
        name = self._name("tensor", MAX_TENSOR_NAME_BYTES)
        rank = self._number("I")
        if rank > MAX_DIMS:
            raise self._error("CKPT057", name=name, dims=rank)
        dims = tuple(self._number("Q") for _ in range(rank))
        if math.prod(dims) > MAX_ELEMENTS or any(size > MAX_ELEMENTS for size in dims):
            raise self._error("CKPT057", name=name, dims=" × ".join(map(str, dims)))
        number = self._number("I")
        if number not in GGUF_NAMES:
            raise self._error("CKPT056", name=name, type=number)
        dtype = GGUF_NAMES[number]
        if (dims[0] if dims else 1) % GGUF_TYPES[dtype].elements:
            raise self._error("CKPT057", name=name, dims=" × ".join(map(str, dims)))
        size = gguf_tensor_bytes(dtype, dims)
        return GgufTensor(name=name, dims=dims, dtype=dtype, offset=self._number("Q"), bytes=size)

    def _check_places(self, rows: tuple[GgufTensor, ...], alignment: int, data_offset: int) -> None:
        end = 0
        for row in sorted(rows, key=lambda row: row.offset):
            if row.offset % alignment or row.offset < end:
                raise self._error("CKPT058", name=row.name, offset=row.offset)
            end = row.offset + row.bytes
        if rows and self._whole and data_offset + end > len(self._view):
            raise self._truncated(data_offset + end)

    # --- primitives ------------------------------------------------------------------------------

    def _number(self, code: str) -> int:
        size = struct.calcsize(f"<{code}")
        self._need(size)
        (value,) = struct.unpack_from(f"<{code}", self._view, self._at)
        self._at += size
        number: int = value
        return number

    def _count(self, what: str, limit: int, minimum_bytes: int) -> int:
        count = self._number("Q")
        if count > limit:
            raise self._error("CKPT053", what=what, count=count, limit=limit)
        self._need(count * minimum_bytes)
        return count

    def _string(self, limit: int, what: str) -> str:
        length = self._number("Q")
        if length > limit:
            raise self._error("CKPT053", what=what, count=length, limit=limit)
        self._need(length)
        text = str(self._view[self._at : self._at + length], "utf-8", "surrogateescape")
        self._at += length
        return text

    def _name(self, what: str, limit: int) -> str:
        name = self._string(limit, what)
        if not name or not name.isprintable():
            raise self._error("CKPT060", what=what, name=ascii(name)[:80])
        return name

    def _need(self, count: int) -> None:
        if self._at + count > len(self._view):
            raise self._truncated(self._at + count)

    def _truncated(self, need: int) -> HeavyliftError:
        return self._error("CKPT052", need_bytes=need, have_bytes=len(self._view))

    def _error(self, code: str, **params: str | int) -> HeavyliftError:
        return HeavyliftError(code, {"path": self._path, **params})
