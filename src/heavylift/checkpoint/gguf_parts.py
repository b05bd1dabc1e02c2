"""GGUF models as folders hold them: one file or many parts, several models side by side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from heavylift.checkpoint import gguf
from heavylift.checkpoint.defects import Defect, at_most
from heavylift.checkpoint.files import Files, OpenFile
from heavylift.checkpoint.grouping import TensorKey
from heavylift.checkpoint.safetensors import LFS_POINTER_START
from heavylift.errors import HeavyliftError
from heavylift.units import MIB

SUFFIX: Final = ".gguf"
HEADER_LIMIT_BYTES: Final = 256 * MIB
"""The longest header that is read; a vocabulary of 200,000 tokens with its merges takes 12 MiB."""

Value = int | float | bool | str

_MOST_LAYERS: Final = 10_000

_FIRST_READ_BYTES: Final = MIB
_GROWTH: Final = 4
_PART: Final = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.ASCII)
# llama.cpp's name for a vision projector beside a model, which is a file of its own.
_PROJECTOR: Final = re.compile(r"(?:^|[-/_.])mmproj", re.IGNORECASE)
_TOO_SHORT: Final = "CKPT052"


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufModel:
    """The files of one model: `names` in the order of their parts, `others` what is beside them."""

    names: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufPart:
    """One file's figures. `header_bytes` is where its data begin."""

    name: str
    tensors: int
    tensor_bytes: int
    header_bytes: int
    file_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufRead:
    """What the headers of a model say. `metadata` are the single values of the first part,
    `by_layer` its lists of whole numbers that are no longer than any model has layers.
    """

    parts: tuple[GgufPart, ...] = ()
    tallied: Counter[TensorKey] = field(default_factory=Counter)
    metadata: Mapping[str, Value] = field(default_factory=dict)
    by_layer: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    defects: tuple[Defect, ...] = ()


def choose(names: Iterable[str], start: str, where: str) -> GgufModel | None:
    """The model that `start` is a part of; without a start the only one, None when there is none.

    Parts that are not there are named as well: a split says how many it has. A vision projector is
    beside a model, not a model, unless it was asked for. Raises CKPT029 when there are several.
    """
    present = sorted(name for name in names if name.endswith(SUFFIX))
    models: dict[str, list[str]] = {}
    for name in present:
        models.setdefault(parts_of(name)[0], parts_of(name))
    if start:
        chosen = parts_of(start)
    else:
        found = [parts for parts in models.values() if not _PROJECTOR.search(parts[0])]
        if len(found) > 1:
            listed = ", ".join(parts[0] for parts in found[:20])
            raise HeavyliftError("CKPT029", {"path": where, "count": len(found), "names": listed})
        if not found:
            return None
        chosen = found[0]
    return GgufModel(
        names=tuple(chosen), others=tuple(name for name in present if name not in set(chosen))
    )


def find(paths: Iterable[str], part: str) -> list[str]:
    """First parts of the models whose path has `part` in it: `Q4_K_M`, a folder, a file.

    A word that only begins a longer one (`Q4` in `Q4_K_M`) counts when no path has it whole.
    """
    first = sorted({parts_of(path)[0] for path in paths if path.endswith(SUFFIX)})
    wanted = part.lower()
    whole = re.compile(rf"(?:^|[-./]){re.escape(wanted)}(?:[-./]|$)")
    found = [path for path in first if whole.search(path.lower())]
    found = found or [path for path in first if wanted in path.lower()]
    return [path for path in found if not _PROJECTOR.search(path)] or found


def parts_of(name: str) -> list[str]:
    """All part names of the split that `name` belongs to; itself when it is no part."""
    found = _PART.search(name)
    if found is None:
        return [name]
    count = int(found["count"])
    stem = name[: found.start()]
    return [f"{stem}-{number:05d}-of-{count:05d}{SUFFIX}" for number in range(1, count + 1)] or [
        name
    ]


def read(files: Files, model: GgufModel) -> GgufRead:
    """The headers of every part, one after the other.

    Raises CKPT050 to CKPT060 for a part that is no sound GGUF; what is missing, cut off, a pointer
    or given twice is collected.
    """
    parts: list[GgufPart] = []
    defects: list[Defect] = []
    tallied: Counter[TensorKey] = Counter()
    metadata: dict[str, Value] = {}
    by_layer: dict[str, tuple[int, ...]] = {}
    seen: dict[str, str] = {}
    for number, name in enumerate(model.names):
        opened = files.open(name)
        if isinstance(opened, Defect):
            defects.append(opened)
            continue
        try:
            header = _header(opened, name)
        finally:
            opened.close()
        if isinstance(header, Defect):
            defects.append(header)
            continue
        if not parts:
            metadata, by_layer = _single_values(header), _by_layer(header)
        parts.append(
            GgufPart(
                name=name,
                tensors=len(header.tensors),
                tensor_bytes=header.tensor_bytes,
                header_bytes=header.data_offset,
                file_bytes=opened.size,
            )
        )
        tallied.update(_tally(header))
        defects += _part_defects(name, header, opened.size)
        defects += at_most(_repeated(name, header, seen))
        defects += _split_defects(name, header, number, len(model.names))
    promised = metadata.get("split.tensors.count")
    if type(promised) is int and len(parts) == len(model.names) and promised != len(seen):
        first = model.names[0]
        defects.append(
            Defect(file=first, problem="split_tensors", observed=len(seen), expected=promised)
        )
    return GgufRead(
        parts=tuple(parts),
        tallied=tallied,
        metadata=metadata,
        by_layer=by_layer,
        defects=tuple(defects),
    )


def _header(opened: OpenFile, name: str) -> gguf.GgufFile | Defect:
    """The header, read as far as it turns out to go."""
    count = _FIRST_READ_BYTES
    while True:
        count = min(count, opened.size, HEADER_LIMIT_BYTES)
        data = opened.read(count, 0)
        if data.startswith(LFS_POINTER_START):
            return Defect(file=name, problem="lfs_pointer")
        try:
            return gguf.parse(data, path=name, whole=False)
        except HeavyliftError as error:
            need = error.params.get("need_bytes")
            if error.code != _TOO_SHORT or not isinstance(need, int):
                raise
            if need > opened.size:
                return Defect(
                    file=name, problem="header_beyond_file", observed=opened.size, expected=need
                )
            if count >= min(opened.size, HEADER_LIMIT_BYTES):
                return Defect(file=name, problem="gguf_header_too_long", observed=need)
            count = max(need, count * _GROWTH)


def _tally(header: gguf.GgufFile) -> Counter[TensorKey]:
    # ggml lists a tensor's sizes from the innermost; safetensors, and everything here, the other
    # way round.
    return Counter((row.name, row.dtype, row.dims[::-1], row.bytes) for row in header.tensors)


def _single_values(header: gguf.GgufFile) -> dict[str, Value]:
    return {
        key: entry.value
        for key, entry in header.metadata.items()
        if not isinstance(entry.value, tuple)
    }


def _by_layer(header: gguf.GgufFile) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for key, entry in header.metadata.items():
        if isinstance(entry.value, tuple) and 0 < len(entry.value) <= _MOST_LAYERS:
            numbers = tuple(each for each in entry.value if isinstance(each, int))
            if len(numbers) == len(entry.value):
                found[key] = numbers
    return found


def _part_defects(name: str, header: gguf.GgufFile, file_bytes: int) -> Iterable[Defect]:
    if header.end > file_bytes:
        yield Defect(file=name, problem="file_truncated", observed=file_bytes, expected=header.end)


def _repeated(name: str, header: gguf.GgufFile, seen: dict[str, str]) -> Iterable[Defect]:
    for row in header.tensors:
        first = seen.setdefault(row.name, name)
        if first != name:
            yield Defect(file=name, problem="tensor_repeated", tensor=row.name, observed=first)


def _split_defects(name: str, header: gguf.GgufFile, number: int, count: int) -> Iterable[Defect]:
    """A part that says of itself that it is another one."""
    values = _single_values(header)
    stated = (values.get("split.no", number), values.get("split.count", count))
    # A model that was never split may carry a count of nought or one.
    if stated[0] != number or (count > 1 and stated[1] != count):
        yield Defect(
            file=name,
            problem="split_part",
            observed=f"{stated[0]}/{stated[1]}",
            expected=f"{number}/{count}",
        )
