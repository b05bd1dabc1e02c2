"""GGUF files written by us: tiny checkpoints to serve, and headers of huge ones to ask about.

Building a header is pure; `write_gguf` is the only function that touches the disk.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from heavylift.checkpoint.formats import GGUF_NUMBERS, gguf_tensor_bytes
from heavylift.checkpoint.gguf import (
    ALIGNMENT_KEY,
    DEFAULT_ALIGNMENT,
    MAGIC,
    STRUCT_CODES,
    Entry,
    GgufTensor,
    Scalar,
    ValueType,
)
from heavylift.errors import HeavyliftError

_VERSION: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """A tensor to be placed in a file: `dims` in ggml's order, the row first."""

    name: str
    dims: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufLayout:
    """A finished header and where each tensor goes. `total_bytes` is the size of the file."""

    header: bytes
    tensors: tuple[GgufTensor, ...]
    total_bytes: int


def build(metadata: Mapping[str, Entry], tensors: Sequence[TensorSpec]) -> GgufLayout:
    """The header of a file with these entries and tensors, which lie one after the other.

    Raises `KeyError` for an unknown dtype, `ValueError` for a row that is not whole blocks and
    `struct.error` for a number that its type cannot hold: mistakes of the caller, not of a user.
    """
    alignment = metadata[ALIGNMENT_KEY].value if ALIGNMENT_KEY in metadata else DEFAULT_ALIGNMENT
    if not isinstance(alignment, int):
        raise TypeError(alignment)
    placed = _place(tensors, alignment)
    parts = [MAGIC, struct.pack("<IQQ", _VERSION, len(placed), len(metadata))]
    parts.extend(_string(key) + _entry(entry) for key, entry in metadata.items())
    parts.extend(_row(tensor) for tensor in placed)
    header = b"".join(parts)
    header += bytes(-len(header) % alignment)
    last = placed[-1].offset + placed[-1].bytes if placed else 0
    return GgufLayout(
        header=header, tensors=placed, total_bytes=len(header) + last + -last % alignment
    )


def write_gguf(
    path: Path, layout: GgufLayout, content: Callable[[GgufTensor], bytes] | None
) -> None:
    """Write the file; it appears under its name only when it is whole.

    `content` gives the bytes of a tensor. None leaves all data out: the file has its full size but
    takes only the header's room on disk (a sparse file). Raises ENV030 when the disk or the file
    system does not take it.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            file.write(layout.header)
            if content is not None:
                for tensor in layout.tensors:
                    file.seek(len(layout.header) + tensor.offset)
                    file.write(content(tensor))
            file.truncate(layout.total_bytes)
        partial.replace(path)
    except OSError as error:
        raise HeavyliftError(
            "ENV030",
            {
                "path": str(path),
                "bytes": layout.total_bytes,
                "reason": error.strerror or type(error).__name__,
            },
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _place(tensors: Sequence[TensorSpec], alignment: int) -> tuple[GgufTensor, ...]:
    placed = []
    offset = 0
    for spec in tensors:
        size = gguf_tensor_bytes(spec.dtype, spec.dims)
        placed.append(
            GgufTensor(name=spec.name, dims=spec.dims, dtype=spec.dtype, offset=offset, bytes=size)
        )
        offset += size + -size % alignment
    return tuple(placed)


def _string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _entry(entry: Entry) -> bytes:
    if not isinstance(entry.value, tuple):
        return struct.pack("<I", entry.type) + _values(entry.type, (entry.value,))
    head = struct.pack("<IIQ", ValueType.ARRAY, entry.type, len(entry.value))
    return head + _values(entry.type, entry.value)


def _values(kind: ValueType, values: tuple[Scalar, ...]) -> bytes:
    if kind is ValueType.STRING:
        return b"".join(_string(str(value)) for value in values)
    return struct.pack(f"<{len(values)}{STRUCT_CODES[kind]}", *values)


def _row(tensor: GgufTensor) -> bytes:
    rank = len(tensor.dims)
    return _string(tensor.name) + struct.pack(
        f"<I{rank}QIQ", rank, *tensor.dims, GGUF_NUMBERS[tensor.dtype], tensor.offset
    )
