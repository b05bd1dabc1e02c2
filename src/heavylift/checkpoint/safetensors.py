"""The safetensors header: bytes in, a table of tensors and its defects out. Opens no file.

A file is 8 bytes with the length N of the header (little-endian), N bytes of JSON that map each
tensor's name to its dtype, shape and place in the data, and the data without gaps.

The reader is strict, because engines are: what it lets pass, they load. A sound header takes one
typed decode and a few passes at C speed; only a header that raises a doubt is walked entry by
entry, to name what is wrong with it.

Source: the format description in the safetensors project's README.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, NoReturn

import msgspec

from heavylift.checkpoint.defects import Defect, at_most
from heavylift.checkpoint.formats import SAFETENSORS_TYPES
from heavylift.units import MIB

LENGTH_BYTES: Final = 8
HEADER_LIMIT_BYTES: Final = 100_000_000
"""The longest header the safetensors library itself accepts."""

TENSORS_PER_FILE_LIMIT: Final = 1_000_000
"""Twice what the whole of Kimi K3 has; a longer list is taken for an attack on memory."""

LFS_POINTER_START: Final = b"version https://git-lfs"

_METADATA: Final = "__metadata__"
_MOST_DIMENSIONS: Final = 64
_LARGEST: Final = 2**63 - 1
# Naming each defect takes a slow walk; a longer broken header is refused as a whole.
_WALK_LIMIT_BYTES: Final = 16 * MIB

_COLONS_A_TENSOR: Final = 4
# The header's own brace and that of the metadata; entries of the metadata, colons in names.
_BRACES_BESIDE: Final = 2
_COLONS_BESIDE: Final = 200_000

_Size = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A tensor, or the metadata: all fields optional, so that one type decodes every value."""

    dtype: str | None = None
    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=_MOST_DIMENSIONS)] | None = None
    data_offsets: tuple[_Size, _Size] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    values: dict[str, str] | None = msgspec.field(name=_METADATA, default=None)


_ENTRIES: Final = msgspec.json.Decoder(dict[str, _Entry])
_METADATA_ONLY: Final = msgspec.json.Decoder(_Metadata)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderTable:
    """The tensors of one file, as columns of equal length.

    `begins` are the first byte of each tensor and `ends` the one after its last, both from the
    start of the data.
    """

    names: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    begins: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    @property
    def lengths(self) -> list[int]:
        """Bytes of each tensor."""
        return list(map(operator.sub, self.ends, self.begins))

    @property
    def data_bytes(self) -> int:
        """Bytes of data the header speaks of."""
        return max(self.ends, default=0)


def byte_length(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor; None when its bits do not fill whole bytes. KeyError: unknown dtype."""
    try:
        return SAFETENSORS_TYPES[dtype].size(math.prod(shape))
    except ValueError:
        return None


def header_length(start: bytes, file_bytes: int, file: str) -> int | Defect:
    """Length of the header from the first bytes of a file, or what speaks against reading on.

    `start` holds at least the first 64 bytes of the file, or all of it.
    """
    if start.startswith(LFS_POINTER_START):
        return Defect(file=file, problem="lfs_pointer")
    if len(start) < LENGTH_BYTES:
        return Defect(
            file=file, problem="file_too_short", observed=file_bytes, expected=LENGTH_BYTES
        )
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    if length > HEADER_LIMIT_BYTES:
        return Defect(file=file, problem="header_too_long", observed=length)
    if LENGTH_BYTES + length > file_bytes:
        needed = LENGTH_BYTES + length
        return Defect(file=file, problem="header_beyond_file", observed=file_bytes, expected=needed)
    return length


def decode_header(raw: bytes, file: str) -> tuple[HeaderTable, tuple[Defect, ...]]:
    """The table of a header (the JSON, without the length before it) and what is wrong with it.

    Entries that cannot be understood are left out of the table, each with a defect.
    """
    # Counted before anything is made of them: ten million empty entries take a gigabyte.
    braces, colons = raw.count(b"{"), raw.count(b":")
    if braces > TENSORS_PER_FILE_LIMIT + _BRACES_BESIDE:
        return HeaderTable(), (Defect(file=file, problem="too_many_tensors", observed=braces),)
    decoded = _decode(raw, most_colons=_COLONS_A_TENSOR * braces + _COLONS_BESIDE)
    if decoded is None:
        return _walk(raw, file)
    entries, metadata_keys = decoded
    entries.pop(_METADATA, None)
    if len(entries) > TENSORS_PER_FILE_LIMIT:
        return HeaderTable(), (
            Defect(file=file, problem="too_many_tensors", observed=len(entries)),
        )
    # A decoder keeps the last of two equal keys, silently. Every key has a colon: when there are
    # as many colons as keys that came out, nothing was given twice. A colon inside a name or in
    # the metadata is no defect, it only costs the walk.
    keys = _COLONS_A_TENSOR * len(entries) + metadata_keys
    if raw[:1] != b"{" or colons != keys:
        return _walk(raw, file)
    dtypes = [entry.dtype for entry in entries.values()]
    shapes = [entry.shape for entry in entries.values()]
    spans = [entry.data_offsets for entry in entries.values()]
    if not SAFETENSORS_TYPES.keys() >= set(dtypes) or None in shapes or None in spans:
        return _walk(raw, file)
    return _table(list(entries), dtypes, shapes, spans), ()


def _decode(raw: bytes, *, most_colons: int) -> tuple[dict[str, _Entry], int] | None:
    """Entries by name, and the keys of the metadata with its own; None when in doubt."""
    if raw.count(b":") > most_colons:
        return None
    try:
        metadata = _METADATA_ONLY.decode(raw).values
        metadata_keys = 0 if metadata is None else 1 + len(metadata)
        del metadata
        return _ENTRIES.decode(raw), metadata_keys
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _table(names: list[str], dtypes: list[Any], shapes: list[Any], spans: list[Any]) -> HeaderTable:
    """Columns without gaps; `spans` are pairs of begin and end."""
    begins, ends = zip(*spans, strict=True) if spans else ((), ())
    return HeaderTable(
        names=tuple(names), dtypes=tuple(dtypes), shapes=tuple(shapes), begins=begins, ends=ends
    )


def layout_defects(table: HeaderTable, file: str) -> tuple[Defect, ...]:
    """Tensors that overlap one another, leave a gap, or end before they begin.

    Each is named with the byte where it begins and the byte where it was expected to.
    """
    if table.begins == (0, *table.ends[:-1]) and all(map(operator.le, table.begins, table.ends)):
        return ()
    return tuple(at_most(_misplaced(table, file)))


def length_defects(table: HeaderTable, file: str) -> tuple[Defect, ...]:
    """Tensors whose bytes are not dtype × shape."""
    return tuple(
        at_most(
            Defect(
                file=file,
                problem="wrong_length",
                tensor=name,
                observed=length,
                expected=byte_length(dtype, shape),
            )
            for name, dtype, shape, length in zip(
                table.names, table.dtypes, table.shapes, table.lengths, strict=True
            )
            if length != byte_length(dtype, shape)
        )
    )


def _misplaced(table: HeaderTable, file: str) -> Iterator[Defect]:
    expected = 0
    for begin, end, name in sorted(zip(table.begins, table.ends, table.names, strict=True)):
        if end < begin:
            yield Defect(
                file=file, problem="offsets_reversed", tensor=name, observed=f"[{begin}, {end}]"
            )
        elif begin != expected:
            problem = "offsets_overlap" if begin < expected else "offsets_gap"
            yield Defect(file=file, problem=problem, tensor=name, observed=begin, expected=expected)
        expected = max(expected, end)


# --- the slow walk, for headers that raise a doubt -----------------------------------------------


def _walk(raw: bytes, file: str) -> tuple[HeaderTable, tuple[Defect, ...]]:
    """As `decode_header`, entry by entry, with every defect named."""
    if len(raw) > _WALK_LIMIT_BYTES:
        return HeaderTable(), (Defect(file=file, problem="header_malformed"),)
    try:
        # Objects become tuples of pairs: unlike dicts, they keep a key that is given twice.
        document = json.loads(
            raw.decode("utf-8"), object_pairs_hook=tuple, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        return HeaderTable(), (Defect(file=file, problem="header_not_json"),)
    if not isinstance(document, tuple) or raw[:1] != b"{":
        return HeaderTable(), (Defect(file=file, problem="header_not_json"),)
    defects: list[Defect] = []
    rows: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    for name, value in document:
        if name in seen:
            defects.append(Defect(file=file, problem="duplicate_name", tensor=name))
            continue
        seen.add(name)
        if name == _METADATA:
            if not _is_text_map(value):
                defects.append(Defect(file=file, problem="bad_metadata"))
            continue
        problem, observed = _entry_problem(value)
        if problem:
            defects.append(
                Defect(file=file, problem=problem, tensor=name, observed=repr(observed)[:80])
            )
            continue
        rows[name] = dict(value)
    table = _table(
        list(rows),
        [row["dtype"] for row in rows.values()],
        [tuple(row["shape"]) for row in rows.values()],
        [row["data_offsets"] for row in rows.values()],
    )
    return table, tuple(at_most(defects))


def _refuse_constant(constant: str) -> NoReturn:
    """NaN and Infinity, which Python's reader would let pass, are not JSON."""
    raise ValueError(constant)


def _entry_problem(value: Any) -> tuple[str, Any]:
    """What is wrong with one entry (pairs of field and value), and the value that is."""
    if not isinstance(value, tuple):
        return "entry_not_object", value
    fields = dict(value)
    if len(fields) != len(value):
        return "duplicate_field", [key for key, _ in value]
    for field, (problem, is_sound) in _FIELDS.items():
        if field not in fields:
            return "field_missing", field
        if not is_sound(fields[field]):
            return problem, fields[field]
    return "", None


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str) and value in SAFETENSORS_TYPES


def _are_sizes(value: Any) -> bool:
    # type(), because True is an int to isinstance.
    return isinstance(value, list) and all(
        type(number) is int and 0 <= number <= _LARGEST for number in value
    )


def _is_shape(value: Any) -> bool:
    return _are_sizes(value) and len(value) <= _MOST_DIMENSIONS


def _is_span(value: Any) -> bool:
    return _are_sizes(value) and len(value) == len(("begin", "end"))


_FIELDS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "dtype": ("bad_dtype", _is_dtype),
    "shape": ("bad_shape", _is_shape),
    "data_offsets": ("bad_offsets", _is_span),
}


def _is_text_map(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(entry, str) for _, entry in value)
